"""The rules: everything that the check can find, and the search for right-shaped operations that are probably wrong.

>>> RULES["SF301"].title
'a reshape interleaves axes'
"""

from __future__ import annotations

from shapeflow.check.problem import Problem
from shapeflow.check.rules import (
    batch_as_time,
    broadcasting,
    default_dim,
    evaluation,
    loss,
    mask,
    misaligned,
    order,
    padding,
    polarity,
    recut,
    rotary,
    softmax,
    unused,
    whole_batch,
)
from shapeflow.check.rules.rule import Rule
from shapeflow.check.rules.scene import Scene
from shapeflow.check.rules.shown import SHOWN
from shapeflow.trace.result import Trace

__all__ = ["RULES", "Rule", "find_silent"]

FILES = (
    recut,
    broadcasting,
    misaligned,
    softmax,
    mask,
    batch_as_time,
    whole_batch,
    loss,
    polarity,
    default_dim,
    unused,
    order,
    padding,
    rotary,
    evaluation,
)
FOUND = tuple(rule for file in FILES for rule in file.RULES)
RULES: dict[str, Rule] = {rule.id: rule for rule in sorted((*SHOWN, *FOUND), key=lambda rule: rule.id)}


def find_silent(trace: Trace) -> tuple[Problem, ...]:
    """What every rule finds in a trace; the same of one line, in each block of a model, is told once."""
    scene = Scene.of(trace)
    problems = [problem for rule in RULES.values() if rule.find is not None for problem in rule.find(scene)]
    first = {_key(problem): problem for problem in reversed(problems)}
    return tuple(problem for problem in problems if first[_key(problem)] is problem)


def _key(problem: Problem) -> tuple[object, ...]:
    """Rule and line; two faults of one line differ in how they are mended."""
    return problem.rule, problem.file, problem.line, problem.fix, "" if problem.line else problem.message
