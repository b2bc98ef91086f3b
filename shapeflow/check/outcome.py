"""What came of a check of many targets: reports without what is ignored, and with the ignores that match nothing.

>>> settle(done, config, rules).status(strict=False)
1
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shapeflow.check.config import Config
from shapeflow.check.ignore import comments_in, silence
from shapeflow.check.jobs import Checked, Done, Job, Span
from shapeflow.check.problem import Level, Problem, Report
from shapeflow.trace.source import short_path


@dataclass(frozen=True, slots=True)
class Outcome:
    """Reports in a stable order; `failed` says which targets that were asked for by name could not be run.

    `notes` say how single targets were made.
    """

    reports: tuple[Report, ...]
    ignored: int = 0
    failed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def status(self, *, strict: bool) -> int:
        """0 no error, 1 errors (with `strict` warnings too), 2 something could not be run."""
        if self.failed:
            return 2
        levels = {problem.level for report in self.reports for problem in report.problems}
        return int("error" in levels or (strict and "warning" in levels))


@dataclass(frozen=True, slots=True)
class _Entry:
    """A report, and the lines that were checked to their end for it."""

    report: Report
    spans: tuple[Span, ...] = ()

    def holds(self, problem: Problem) -> bool:
        return any(span.file == problem.file and span.first <= problem.line <= span.last for span in self.spans)


def settle(done: Sequence[Done], config: Config, rules: Callable[[], Collection[str]]) -> Outcome:
    """The outcome of finished jobs; `rules` gives the ids of all rules, and is asked only for comments."""
    entries: list[_Entry] = []
    ignored = 0
    for each in done:
        for entry in _entries(each):
            told = entry.report.problems
            kept = tuple(problem for problem in told if not _is_ignored(problem, each.job, config))
            ignored += len(told) - len(kept)
            entries.append(replace(entry, report=replace(entry.report, problems=kept)))
    reports = [entry.report for entry in entries]
    files = {span.file for entry in entries for span in entry.spans}
    files |= {problem.file for report in reports for problem in report.problems if problem.file}
    comments = [comment for file in sorted(files) for comment in comments_in(_source(file), file)]
    silenced = silence(reports, comments, rules() if comments else ())
    reports = list(silenced.reports)
    for problem in silenced.stale:
        holders = [index for index, entry in enumerate(entries) if entry.holds(problem)]
        if holders and not config.ignores("SF404", problem.file):
            at = holders[0]
            reports[at] = replace(reports[at], problems=(*reports[at].problems, problem))
    failed = tuple(each.failed for each in done if each.failed and each.job.is_named)
    notes = tuple(note for each in done if not each.job.is_file for checked in each.checked for note in checked.notes)
    return Outcome(tuple(reports), ignored + silenced.ignored, failed, notes)


def _entries(done: Done) -> list[_Entry]:
    """The reports of a job. All of a file was seen when each of its targets was checked to its end."""
    entries = [_Entry(each.report, each.spans if _is_complete(each) else ()) for each in done.checked]
    if done.failed:
        return [*entries, _Entry(_not_run(done))]
    if done.job.is_file and entries and all(map(_is_complete, done.checked)):
        last = entries[-1]
        entries[-1] = replace(last, spans=(*last.spans, Span(_file_of(done.job), 1, 10**9)))
    return entries


def _is_complete(checked: Checked) -> bool:
    return checked.report.finished and checked.report.runs > 0


def _not_run(done: Done) -> Report:
    """The report on a file that does not import, or a target that cannot be built."""
    first, *more = done.failed.splitlines()
    level: Level = "error" if done.job.is_named else "warning"
    problem = Problem("SF401", level, first, file=_file_of(done.job), details=tuple(more))
    return Report(done.job.target, (problem,), seconds=done.seconds)


def _is_ignored(problem: Problem, job: Job, config: Config) -> bool:
    return problem.rule in job.ignore or config.ignores(problem.rule, problem.file)


def _file_of(job: Job) -> str:
    """The file of a job as problems name it; `""` for a target in a package."""
    file = job.target if job.is_file else job.target.rpartition(":")[0]
    return short_path(str(Path(file).resolve())) if file.endswith(".py") else ""


def _source(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):  # what is installed is named from its package on
        return ""
