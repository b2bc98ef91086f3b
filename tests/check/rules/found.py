"""What the rules find in small functions: the line at fault of a wrong one ends in `# here`."""

import shapeflow as sf
from shapeflow.check.rules import find_silent


def found(rule, target, *inputs):
    """What one rule finds."""
    return [problem for problem in find_silent(sf.trace(target, *inputs)) if problem.rule == rule]


def errors(target, *inputs):
    """What all rules are sure of."""
    return [problem for problem in find_silent(sf.trace(target, *inputs)) if problem.level == "error"]


def at_the_marked_line(problem):
    return problem.code.endswith("# here")
