"""The table of a parameter report, for a terminal (`table`) and as plain text (`plain`)."""

from __future__ import annotations

import io

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from shapeflow.cost.params import ParamReport, ParamRow


def table(report: ParamReport, *, depth: int | None = None) -> RenderableType:
    """Modules down to `depth` (all when None) and the totals below them."""
    rows = [row for row in report.rows if depth is None or row.depth <= depth]
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    grid.add_column("module", no_wrap=True)
    grid.add_column("kind", no_wrap=True)
    for column in ("parameters", "trainable", "buffers"):
        grid.add_column(column, justify="right", no_wrap=True)
    with_notes = any(_note(row) for row in rows)
    if with_notes:
        grid.add_column("note", no_wrap=True)
    for row in rows:
        note = [Text(_note(row), style="yellow")] if with_notes else []
        grid.add_row(_label(row), row.kind, *_counts(row), *note)
    return Group(grid, Text(), Text(summary(report)))


def plain(report: ParamReport, *, depth: int | None = None) -> str:
    """The same table as text."""
    console = Console(file=io.StringIO(), width=1000, color_system=None, highlight=False)
    with console.capture() as capture:
        console.print(table(report, depth=depth))
    return "\n".join(line.rstrip() for line in capture.get().rstrip().splitlines())


def summary(report: ParamReport) -> str:
    """The totals in one line, and a second one for lazy modules, which have no shape before their first input."""
    totals = (
        f"{report.total:,} parameters: {report.trainable:,} trainable, {report.frozen:,} frozen; "
        f"{report.buffers:,} numbers in buffers"
    )
    if not report.lazy:
        return totals
    return f"{totals}\nnot counted, as they have no shape before a first forward: {', '.join(report.lazy)}"


def _label(row: ParamRow) -> Text:
    return Text("  " * row.depth + (row.path or "(all)"))


def _counts(row: ParamRow) -> list[str]:
    return [f"{number:,}" for number in (row.parameters, row.trainable, row.buffers)]


def _note(row: ParamRow) -> str:
    lazy = [f"{name} has no shape yet" for name in row.lazy]
    return "; ".join([*row.shared, *lazy])
