"""`check`: whether the shapes hold for all sizes, for which they do not, and what is probably wrong all the same.

>>> report = sf.check(model, "B T:int64")
>>> report.ok, str(report.domain)
(True, 'B >= 1, 1 <= T <= 512')
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from shapeflow.check.annotations import annotation_problems
from shapeflow.check.crash import crash_problems
from shapeflow.check.domain import domain_of
from shapeflow.check.explore import MOST_RUNS, Exploration, Explorer, deadline, declared_ranges
from shapeflow.check.problem import Problem, Report
from shapeflow.check.rules import find_silent
from shapeflow.check.sizes import Sizes
from shapeflow.trace.result import Condition, Trace
from shapeflow.trace.source import location
from shapeflow.trace.tracer import Search, prepared

LEVELS = ("error", "warning", "note")


def check(
    target: Any,
    /,
    *inputs: Any,
    hints: Mapping[str, int] | None = None,
    limit: float | None = None,
    progress: Callable[[str], None] | None = None,
    **named: Any,
) -> Report:
    """Check a module or a function for all sizes of its inputs, which are given as to `sf.trace`.

    `limit` are seconds after which the search stops: what was found so far is reported, `Report.finished` is False.
    `hints` chooses sizes of the first run. Raises InputError and SpecError for inputs that do not fit.
    """
    start = time.monotonic()
    subject, bound = prepared(target, inputs, named, hints or {})
    tick = deadline(limit, progress)
    search = Search(subject, bound, hints or {}, tick)
    found = Explorer(search, bound, tick).explore()
    ranges = declared_ranges(bound)

    attempt = found.general
    problems = crash_problems(found, search)
    if attempt is not None:
        problems += annotation_problems(attempt, _sizes_of(found))
        problems = _merged(problems, list(find_silent(Trace(attempt))))
    if not found.finished:
        problems.append(_stopped(found, limit))
    return Report(
        name=subject.name,
        problems=_sorted(problems),
        domain=None if found.base is None else domain_of(found, ranges),
        conditions=_conditions(found),
        runs=found.runs,
        seconds=time.monotonic() - start,
        finished=found.finished,
    )


TOLD_BETTER = {"SF309": ("SF103",), "SF310": ("SF107", "SF103", "SF102")}
"""Rules on the graph that know why what the runs showed happens: theirs is the message, the runs' is the witness."""


def _merged(shown: list[Problem], silent: list[Problem]) -> list[Problem]:
    """Both kinds, without what is told twice of one line; a result that changes its rank has no line of its own."""
    for index, problem in enumerate(silent):
        others = TOLD_BETTER.get(problem.rule, ())
        same = [each for each in shown if each.rule in others and (each.line in (problem.line, 0))]
        if same:
            silent[index] = replace(problem, witness=problem.witness or same[0].witness)
            shown = [each for each in shown if each not in same]
    return [*shown, *silent]


def _stopped(found: Exploration, limit: float | None) -> Problem:
    if found.runs >= MOST_RUNS:
        message = f"stopped after {found.runs} runs: the sizes decide too much to try every way"
    else:
        message = f"stopped after {limit:g} s, with what {found.runs} runs had shown until then"
    return Problem("SF403", "warning", message, fix="give some of the sizes numbers, or a longer limit")


def _sizes_of(found: Exploration) -> Sizes:
    return found.base_sizes if found.always is None else found.always.sizes


def _conditions(found: Exploration) -> tuple[Condition, ...]:
    """What the domain rests on, each with the line that asks."""
    known = [Condition(str(need.relation), location(need.place), need.operator) for need in found.needs]
    return tuple(dict.fromkeys(known))


def _sorted(problems: list[Problem]) -> tuple[Problem, ...]:
    """Each once, errors first, then by line."""
    unique = dict.fromkeys(_key(problem) for problem in problems)
    first = {key: next(problem for problem in problems if _key(problem) == key) for key in unique}
    return tuple(sorted(first.values(), key=lambda each: (LEVELS.index(each.level), each.file, each.line, each.rule)))


def _key(problem: Problem) -> tuple[Any, ...]:
    return problem.rule, problem.file, problem.line, problem.module, problem.message
