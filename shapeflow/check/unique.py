"""A fault in a shared part is found in every target that holds it: told once, by the first.

>>> [(report.name, problem.rule) for report, problem in unique([encoder, model_with_that_encoder])]
[('net.py:Encoder', 'SF301')]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shapeflow.check.problem import Problem, Report


def unique(reports: Iterable[Report]) -> Iterator[tuple[Report, Problem]]:
    """Each problem once, with the first report that has it. A problem without a line is one of its target alone."""
    seen: set[tuple[str, str, int]] = set()
    for report in reports:
        fresh = set()
        for problem in report.problems:
            place = place_of(problem)
            if place is None or place not in seen:
                yield report, problem
            if place is not None:
                fresh.add(place)
        seen |= fresh


def place_of(problem: Problem) -> tuple[str, str, int] | None:
    """What tells that two targets have the same fault: the rule and the line. Sizes in messages may differ."""
    return (problem.rule, problem.file, problem.line) if problem.file else None
