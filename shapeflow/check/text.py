"""A report as text: each problem with its line of source, the sizes that show it and the fix; then the verdict.

>>> print(render_text(report))
error SF101: Linear 'head' takes 512, gets 64*H*W = 3136 at H = W = 7
  model.py:12, in head
   12 |         self.head = nn.Linear(512, 10)
      |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  witness: B = 3, H = 7, W = 7
  fix: nn.Linear(3136, 10)

Net: holds for all B >= 1; 1 error (3 runs, 0.1 s)
"""

from __future__ import annotations

import inspect
import linecache
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from shapeflow.check.problem import Problem, Report
from shapeflow.check.sizes import sizes_text
from shapeflow.check.unique import place_of, unique

if TYPE_CHECKING:
    from shapeflow.check.rules import Rule

STYLES = {"error": "bold red", "warning": "bold yellow", "note": "bold blue"}

Segment = tuple[str, str]  # text, rich style
Line = list[Segment]


def render_text(report: Report) -> str:
    """The report as plain text."""
    return _plain(_report(report, {}))


def render_rich(report: Report) -> Text:
    """The same lines with colours, for a terminal."""
    return _coloured(_report(report, {}))


def render_outcome(reports: Sequence[Report], *, ignored: int = 0) -> Text:
    """One report as it is; of many, what was told is not repeated with every target that holds it, and counts end it.

    `ignored` are the problems that comments and settings silenced.
    """
    if len(reports) == 1:
        lines = list(_report(reports[0], {}))
        return _coloured([*lines, [(f"{ignored} ignored", "dim")]] if ignored else lines)
    lines: list[Line] = []
    told: dict[tuple[str, str, int], str] = {}
    for report in reports:
        written = list(_report(report, told))
        if len(written) > 1 and lines and lines[-1]:
            lines.append([])
        lines += written
        if len(written) > 1:
            lines.append([])
        for problem in report.problems:
            place = place_of(problem)
            if place is not None:
                told.setdefault(place, report.name)
    if lines and lines[-1]:
        lines.append([])
    return _coloured([*lines, _summary(reports, ignored)])


def remarks(problem: Problem) -> list[str]:
    """What is told below the message: the sizes that show it, the fix, and the details, a line each."""
    return ["".join(text for text, _ in line) for line in _remarks(problem)]


def render_rules(rules: Iterable[Rule]) -> Text:
    """A line for each rule: id, level, title."""
    return _coloured(
        [(f"{rule.id}  ", "bold"), (f"{rule.level:<8} ", STYLES[rule.level]), (rule.title, "")] for rule in rules
    )


def render_rule(rule: Rule) -> Text:
    """All that is to be said of a rule: why, a wrong and a right example, and how to silence it."""
    title: Line = [(f"{rule.id}  ", "bold"), (f"{rule.level}  ", STYLES[rule.level]), (rule.title, "bold")]
    silencer: Line = [(f"To silence it on a line:  # shapeflow: ignore[{rule.id}]", "dim")]
    return _coloured([title, [], [(inspect.cleandoc(rule.doc), "")], [], silencer])


def _plain(lines: Iterable[Line]) -> str:
    return "\n".join("".join(text for text, _ in line) for line in lines)


def _coloured(lines: Iterable[Line]) -> Text:
    return Text("\n").join(Text.assemble(*line) for line in lines)


def _report(report: Report, told: dict[tuple[str, str, int], str]) -> Iterator[Line]:
    for problem in report.problems:
        place = place_of(problem)
        first = told.get(place) if place is not None else None
        if first is not None:
            yield [(f"{problem.level} {problem.rule}", STYLES[problem.level]), (f": as in {first}", "")]
            yield [(f"  {_where(problem)}", "dim")]
        else:
            yield from _problem(problem)
        yield []
    yield [(report.name, "bold"), (": ", ""), *_verdict(report)]
    for condition in report.conditions:
        where = condition.location
        yield [(f"  {condition.text}", ""), (f"  {where.file}:{where.line}" if where is not None else "", "dim")]


def _problem(problem: Problem) -> Iterator[Line]:
    yield [(f"{problem.level} {problem.rule}", STYLES[problem.level]), (f": {problem.message}", "")]
    if problem.file or problem.module:
        yield [(f"  {_where(problem)}", "dim")]
    if problem.file:
        yield from _excerpt(problem)
    for line in _remarks(problem):
        yield [("  ", ""), *line]


def _where(problem: Problem) -> str:
    place = f"{problem.file}:{problem.line}" if problem.line else problem.file
    return ", in ".join(part for part in (place, problem.module) if part)


def _remarks(problem: Problem) -> Iterator[Line]:
    if problem.witness:
        yield [("witness: ", "dim"), (sizes_text(problem.witness), "")]
    if problem.fix:
        yield [("fix: ", "dim"), (problem.fix, "green")]
    for line in problem.details:
        yield [(line, "dim")]


def _excerpt(problem: Problem) -> Iterator[Line]:
    """The line of source, with its own indentation where the file can be read, and carets below."""
    line = linecache.getline(problem.file, problem.line).rstrip().expandtabs(4)
    if problem.code and line.strip() != problem.code.strip():  # another file of that name, or one that changed
        line = problem.code.strip()
    code = line.strip()
    if not code:
        return
    start = len(line) - len(line.lstrip())
    yield [(f"{problem.line:>5} | ", "dim"), (line, "")]
    bare = code.partition("  #")[0].rstrip()
    yield [(f"{'':>5} | ", "dim"), (" " * start + "^" * cell_len(bare), "red")]


def _verdict(report: Report) -> Iterator[Segment]:
    if _unfit(report):
        yield ("not checked", "yellow")
        return
    counts = _counts(report.problems)
    if report.domain is None:
        yield ("no run got through", "bold red")
    elif str(report.domain):
        yield (f"holds for all {report.domain}", "green" if report.ok else "")
    else:
        yield ("holds: its sizes are fixed", "green" if report.ok else "")
    yield (f"; {counts or 'nothing found'} ({_counted(report.runs, 'run')}, {report.seconds:.1f} s)", "")
    if not report.finished:
        yield ("; stopped before every question was tried", "yellow")


def _unfit(report: Report) -> bool:
    """Whether not one run was made: what is told is about the target as a whole."""
    return report.domain is None and not report.runs


def _summary(reports: Sequence[Report], ignored: int) -> Line:
    """`8 targets: 7 hold, 1 does not; 1 error, 2 warnings; 1 ignored`."""
    unfit = sum(map(_unfit, reports))
    wrong = sum(not report.ok for report in reports if not _unfit(report))
    parts = []
    if len(reports) - unfit - wrong:
        fine = len(reports) - unfit - wrong
        parts.append(f"{fine} {'holds' if fine == 1 else 'hold'}")
    if wrong:
        parts.append(f"{wrong} {'has' if wrong == 1 else 'have'} errors")
    if unfit:
        parts.append(f"{unfit} not checked")
    found = _counts(problem for _, problem in unique(reports)) or "nothing found"
    text = f"{_counted(len(reports), 'target')}: {', '.join(parts)}; {found}" if reports else "nothing to check"
    style = "bold red" if wrong else "bold green"
    return [(text + (f"; {ignored} ignored" if ignored else ""), style)]


def _counts(problems: Iterable[Problem]) -> str:
    """`1 error, 2 warnings`."""
    counts = Counter(problem.level for problem in problems)
    return ", ".join(_counted(counts[level], level) for level in STYLES if counts[level])


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
