"""The work of one process: build the targets of a job, check each, and send what was found as soon as it is known.

A job is one target, or all of one file. What goes wrong with a target becomes a problem of its report, so that the
next one is checked all the same; time that is over raises inside the model's code, and what was found so far is kept.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

import torch
from torch import nn

from shapeflow.arguments import parse_inputs
from shapeflow.check.check import check
from shapeflow.check.constructed import remembered_sizes
from shapeflow.check.explore import OutOfTime
from shapeflow.check.jobs import Checked, Job, Span
from shapeflow.check.problem import Problem, Report
from shapeflow.check.targets import Found, Way, made, targets_in
from shapeflow.errors import InputError, ShapeflowError, SpecError, TargetError, TraceError
from shapeflow.importer import describe
from shapeflow.target import Target, load
from shapeflow.torch_private import real_module
from shapeflow.trace.construct import Recipe
from shapeflow.trace.source import short_path

PATIENCE = 0.5
"""Seconds after its limit in which a check may end by itself, before its code is interrupted."""
AGAIN = 3.0
SYMBOLIC_SHARE = 0.3
"""Of a target's time: a check of all widths that takes more gives way to one of numbers."""

Tell: TypeAlias = Callable[[str], None]


class Stopwatch:
    """Interrupts code that does not look at the clock, by a signal, where there are such; `rang` says that it did."""

    def __init__(self) -> None:
        self.rang = False
        self.armed = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()

    @contextlib.contextmanager
    def limit(self, seconds: float | None) -> Iterator[None]:
        """Raise OutOfTime in the block a little after its time, and again if that is caught."""
        if seconds is None or not self.armed:
            yield
            return
        began, before = time.monotonic(), signal.signal(signal.SIGALRM, self._ring)
        delay, interval = signal.setitimer(signal.ITIMER_REAL, seconds + PATIENCE, AGAIN)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            if delay:  # somebody else's alarm, such as that of a test runner, goes on
                signal.setitimer(signal.ITIMER_REAL, max(delay - (time.monotonic() - began), 0.001), interval)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        self.rang = True
        raise OutOfTime


@dataclass(slots=True)
class Bench:
    """Where the targets of one job are checked.

    `owners` are the models that are made already, by their names, `known` what was found of each (by its id).
    """

    job: Job
    tell: Tell = lambda text: None
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    owners: dict[str, nn.Module] = field(default_factory=dict)
    known: dict[int, Checked] = field(default_factory=dict)

    def targets(self) -> list[Found]:
        """The targets of the job's file. Raises TargetError, also when the file takes too long to import."""
        try:
            with self.stopwatch.limit(self.job.limit), remembered_sizes():
                return targets_in(self.job.target)
        except OutOfTime:
            raise TargetError(f"{self.job.target} does not import within {self.job.limit:g} s") from None

    def one(self) -> Checked:
        """The job's one target. Raises TargetError, InputError and SpecError for what the user has to mend."""
        job = self.job
        began = time.monotonic()
        try:
            with self.stopwatch.limit(job.limit):
                with remembered_sizes():
                    target = load(job.target, arguments=job.arguments, has_inputs=bool(job.inputs))
                return self._checked(target, began)
        except OutOfTime:
            return Checked(_timed_out(job.target, job.limit, began))

    def found(self, found: Found) -> Checked:
        """One target of the job's file; every error is told in its report."""
        began = time.monotonic()
        try:
            with self.stopwatch.limit(self.job.limit):
                checked = self._first_that_runs(found, began)
        except OutOfTime:
            checked = Checked(_timed_out(found.text, self.job.limit, began))
        except Exception as error:  # whatever: one broken target does not stop the others
            checked = Checked(_failed(found.text, error, began))
        return replace(checked, report=_placed(checked.report, short_path(str(Path(found.file).resolve())), found.line))

    def _first_that_runs(self, found: Found, began: float) -> Checked:
        """A target whose arguments are guessed is at fault only when it crashes alike for every guess."""
        crashed: list[Checked] = []
        refused: TargetError | None = None
        for way in self._made(found):
            if isinstance(way, TargetError):
                refused = refused or way
                continue
            checked = self._checked_symbols(way, began) if way.symbolic else self._checked_way(found, way, began)
            if checked is None:
                continue
            if not way.guess or not _always_crashes(checked.report):
                return checked
            crashed.append(checked)
        if not crashed:
            raise refused or TargetError(f"{found.text} could not be built")
        return _agreed(crashed)

    def _checked_way(self, found: Found, way: Way, began: float) -> Checked:
        target, model = way.target, way.target.value
        if id(model) in self.known:  # the class of a model that stands in the same file
            checked = self.known[id(model)]
            return replace(checked, report=replace(checked.report, name=target.text), notes=target.notes)
        checked = self._checked(target, began, values=way.values)
        checked = _without_blind_guesses(checked, target.signature.parameters)
        if not found.needs and isinstance(model, nn.Module):
            self.owners.setdefault(found.name, model)
            self.known[id(model)] = checked
        if way.owner and self.known[id(self.owners[way.owner])].report.ok:
            checked = _asked_of_the_owner(checked, way.owner)
        return _told(found.name, way, checked)

    def _checked_symbols(self, way: Way, began: float) -> Checked | None:
        """None where the constructor takes no symbols, or the check of all sizes takes more than its share of time."""
        try:
            checked = self._checked(way.target, began, share=SYMBOLIC_SHARE)
        except TargetError:
            return None
        if not checked.report.finished or _always_crashes(checked.report):
            return None
        name = way.target.text.rpartition(":")[2]
        return _told(name, way, _without_blind_guesses(checked, way.target.signature.parameters))

    def _made(self, found: Found) -> Iterator[Way | TargetError]:
        """The ways to make a target; a constructor that refuses one guess may take the next."""
        ways = made(found, self.owners)
        while True:
            try:
                with remembered_sizes():
                    way = next(ways)
            except StopIteration:
                return
            except TargetError as error:
                yield error
                return
            yield way

    def _checked(
        self, target: Target, began: float, share: float = 1.0, values: Mapping[str, object] | None = None
    ) -> Checked:
        positional, named = parse_inputs(self.job.inputs, target.signature)
        report = check(
            target.value,
            *positional,
            hints=dict(self.job.hints) or None,
            limit=self.job.limit and self.job.limit * share,
            progress=self.tell,
            **(values or {}),
            **named,
        )
        report = replace(report, name=target.text, seconds=time.monotonic() - began)
        return Checked(report, tuple(_spans(target.value)), target.notes)


def _without_blind_guesses(checked: Checked, parameters: Iterable[str]) -> Checked:
    """A crash that depends on axes without a name, as in `"... width"`, is a note: nobody chose the input."""
    blind = re.compile(rf"({'|'.join(map(re.escape, parameters))})_\d+")

    def judged(problem: Problem) -> Problem:
        names = problem.dims if problem.rule != "SF101" else tuple(problem.witness or ())
        of_sizes = problem.rule in ("SF101", "SF102", "SF103") and problem.level == "error"
        return replace(problem, level="note") if of_sizes and any(map(blind.fullmatch, names)) else problem

    return _with(checked, map(judged, checked.report.problems))


def _asked_of_the_owner(checked: Checked, owner: str) -> Checked:
    """A part of a model that holds: what it asks of its inputs' sizes alone, the model gives it."""

    def judged(problem: Problem) -> Problem:
        if problem.level != "error" or not problem.rule.startswith(("SF1", "SF2")):
            return problem
        return replace(problem, level="note", details=(*problem.details, f"inside {owner} it holds"))

    return _with(checked, map(judged, checked.report.problems))


def _told(name: str, way: Way, checked: Checked) -> Checked:
    """The report, with a note where arguments were guessed."""
    if not way.guess:
        return checked
    how = "called with" if way.values else "built with"
    what = "it" if way.values else "its constructor"
    message = f"{name} is {how} {way.guess}, as {what} needs arguments: what is told here holds for these"
    return _with(checked, [*checked.report.problems, Problem("SF401", "note", message)])


def _with(checked: Checked, problems: Iterable[Problem]) -> Checked:
    return replace(checked, report=replace(checked.report, problems=tuple(problems)))


def _always_crashes(report: Report) -> bool:
    return report.domain is None


def _agreed(crashed: list[Checked]) -> Checked:
    """The first of several guesses that all crash: a warning, unless it is at the same line each time."""
    places = [
        {(each.rule, each.file, each.line) for each in one.report.problems if each.level == "error"} for one in crashed
    ]
    if all(place == places[0] for place in places[1:]):
        return crashed[0]
    first = crashed[0]
    problems = (replace(each, level="warning") if each.level == "error" else each for each in first.report.problems)
    return _with(first, problems)


def _failed(name: str, error: Exception, began: float) -> Report:
    """What to say of a target that raised before a check could tell anything."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    message, details = lines[0], tuple(lines[1:])
    if isinstance(error, TargetError):
        problem = Problem("SF401", "note", message, details=details)
    elif isinstance(error, SpecError):
        problem = Problem("SF203", "warning", f"an annotation cannot be read: {message}", details=details)
    elif isinstance(error, InputError):
        problem = Problem("SF402", "note", message, details=details)
    elif isinstance(error, TraceError):
        problem = Problem("SF402", "warning", message, details=details)
    else:
        fault = f"the check itself failed: {describe(error)}"
        problem = Problem("SF402", "warning", fault, fix="this is a fault in shapeflow: please report it")
    return Report(name, (problem,), seconds=time.monotonic() - began)


def _timed_out(name: str, limit: float | None, began: float) -> Report:
    message = f"stopped after {limit:g} s, before anything was found"
    problem = Problem("SF403", "warning", message, fix="a longer limit, or sizes with numbers")
    return Report(name, (problem,), seconds=time.monotonic() - began, finished=False)


def _placed(report: Report, file: str, line: int) -> Report:
    """What has no line of its own stands where the target is defined."""
    problems = tuple(each if each.file else replace(each, file=file, line=line) for each in report.problems)
    return replace(report, problems=problems)


def _spans(value: Any) -> Iterator[Span]:
    """The lines of the user's code that a check has seen: the classes of all modules, or the function."""
    inner = value.built().module if isinstance(value, Recipe) else real_module(value)
    parts = [type(each) for each in inner.modules()] if isinstance(inner, nn.Module) else [inspect.unwrap(inner)]
    for part in dict.fromkeys(parts):
        if getattr(part, "__module__", "").partition(".")[0] == "torch":
            continue
        try:
            lines, first = inspect.getsourcelines(part)
            file = inspect.getsourcefile(part)
        except (OSError, TypeError):  # no source: made by exec, or written in C
            continue
        if file is not None and "site-packages" not in file:
            yield Span(short_path(file), first, first + len(lines) - 1)


# In a process of its own


def serve(connection: Any, paths: list[str]) -> None:
    """Take jobs from a connection until it closes; what the user's code prints goes to stderr, not into the output."""
    os.dup2(2, 1)
    sys.path[:0] = [path for path in paths if path not in sys.path]
    torch.set_num_threads(1)  # the processes share the cores
    check(_nothing, "B")  # what torch imports only when it runs is not part of the first target's time
    with contextlib.suppress(EOFError, BrokenPipeError):
        connection.send(("ready", None))
        while True:
            _serve_job(connection, connection.recv())


def _nothing(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def _serve_job(connection: Any, job: Job) -> None:
    """Answers `("begin", name)`, `("checked", Checked)`, ..., `("end", None)`; `("failed", text)` for a mistake."""
    bench = Bench(job)
    if not job.is_file:
        connection.send(("begin", job.target))
        try:
            connection.send(("checked", bench.one()))
        except ShapeflowError as error:
            connection.send(("failed", str(error)))
        except Exception as error:  # whatever: the process goes on with the next job
            connection.send(("checked", Checked(_failed(job.target, error, time.monotonic()))))
    else:
        connection.send(("begin", ""))
        try:
            targets = bench.targets()
        except TargetError as error:
            connection.send(("failed", str(error)))
            targets = []
        connection.send(("targets", [each.text for each in targets]))
        for each in _owners_first(targets):
            if each.text not in job.done:
                connection.send(("begin", each.text))
                connection.send(("checked", bench.found(each)))
                if bench.stopwatch.rang:  # interrupted at any place: what it left behind is not to be trusted
                    break
    connection.send(("restart" if bench.stopwatch.rang else "end", None))


def _owners_first(targets: list[Found]) -> list[Found]:
    """Models that need no arguments first: the others may be parts of them."""
    return sorted(targets, key=lambda each: bool(each.needs))
