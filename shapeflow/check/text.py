"""A report as text: each problem with its line of source, the sizes that show it and the fix; then the verdict.

>>> print(render_text(report))
error SF102: Linear 'head' takes 512, gets H*W*64 = 3136
  model.py:12
   12 |         self.head = nn.Linear(512, 10)
      |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  witness: B = 3, H = 7, W = 7
  fix: nn.Linear(3136, 10)
...
"""

from __future__ import annotations

import linecache
from collections import Counter
from collections.abc import Iterator

from rich.text import Text

from shapeflow.check.problem import Problem, Report

STYLES = {"error": "bold red", "warning": "bold yellow", "note": "bold blue"}

Segment = tuple[str, str]  # text, rich style


def render_text(report: Report) -> str:
    """The report as plain text."""
    return "\n".join("".join(text for text, _ in line) for line in _lines(report))


def render_rich(report: Report) -> Text:
    """The same lines with colours, for a terminal."""
    return Text("\n").join(Text.assemble(*line) for line in _lines(report))


def _lines(report: Report) -> Iterator[list[Segment]]:
    for problem in report.problems:
        yield from _problem(problem)
        yield []
    yield [(report.name, "bold"), (": ", ""), *_verdict(report)]
    for condition in report.conditions:
        where = f"{condition.location.file}:{condition.location.line}" if condition.location is not None else ""
        yield [(f"  {condition.text}", ""), (f"  {where}" if where else "", "dim")]


def _problem(problem: Problem) -> Iterator[list[Segment]]:
    yield [(f"{problem.level} {problem.rule}", STYLES[problem.level]), (f": {problem.message}", "")]
    if problem.file:
        inside = f", in {problem.module}" if problem.module else ""
        yield [(f"  {problem.file}:{problem.line}{inside}", "dim")]
        yield from _excerpt(problem)
    if problem.witness:
        sizes = ", ".join(f"{name} = {size}" for name, size in problem.witness.items())
        yield [("  witness: ", "dim"), (sizes, "")]
    if problem.fix:
        yield [("  fix: ", "dim"), (problem.fix, "green")]
    for line in problem.details:
        yield [(f"  {line}", "dim")]


def _excerpt(problem: Problem) -> Iterator[list[Segment]]:
    """The line of source, with its own indentation where the file can be read, and carets below."""
    line = linecache.getline(problem.file, problem.line).rstrip() or problem.code
    code = line.strip()
    if not code:
        return
    number = f"{problem.line:>5}"
    start = len(line) - len(line.lstrip())
    yield [(f"{number} | ", "dim"), (line, "")]
    bare = code.partition("  #")[0].rstrip()
    yield [(f"{'':>5} | ", "dim"), (" " * start + "^" * len(bare), "red")]


def _verdict(report: Report) -> Iterator[Segment]:
    if report.domain is None:
        yield ("no run got through", "bold red")
    elif str(report.domain):
        yield (f"holds for all {report.domain}", "green" if report.ok else "")
    else:
        yield ("holds: its sizes are fixed", "green" if report.ok else "")
    counts = Counter(problem.level for problem in report.problems)
    found = ", ".join(_counted(counts[level], level) for level in STYLES if counts[level])
    yield (f"; {found or 'nothing found'} ({_counted(report.runs, 'run')}, {report.seconds:.1f} s)", "")
    if not report.finished:
        yield ("; stopped before every question was tried", "yellow")


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
