"""A table of results as plain data: columns to choose from, rows that nest, totals below them.

>>> sheet = Sheet("GPT", (Column("module"), Column("parameters")), (Line(0, ("(all)", 9)), Line(1, ("head", 9))))
>>> print(text(select(sheet, columns=["parameters"], sort="parameters")))

Reports make sheets (`params(model).sheet()`), `select` chooses from one, `shapeflow.cost.formats` writes it, and
`shapeflow.cost.comparison` puts two of them side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, Literal, NamedTuple, TypeAlias

from shapeflow.dims.expr import Expr
from shapeflow.errors import InputError
from shapeflow.importer import closest

Cell: TypeAlias = Any
"""An int, a float, a formula (`Expr`, or anything with its `at`), a text, or None for nothing."""
Unit = Literal["", "bytes", "%"]


@dataclass(frozen=True, slots=True)
class Column:
    """`name` is what the user chooses the column by and the key in JSON; `title` heads it where that differs.

    `unit` says how numbers read (bytes as `1.5 kB` in text, never in CSV or JSON); a column that is `hidden` is shown
    only when it is asked for.
    """

    name: str
    title: str = ""
    unit: Unit = ""
    hidden: bool = False

    @property
    def head(self) -> str:
        return self.title or self.name


class Line(NamedTuple):
    """One row: how deep it stands below the whole, and a cell for each column."""

    depth: int
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Sheet:
    """The whole table. `totals` are for machines and `summary` says the same, and what else is to be told, in words.

    The first column names a line; in text it is indented by the line's depth while `nested`.
    """

    title: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    totals: Mapping[str, Cell] = field(default_factory=dict)
    summary: tuple[str, ...] = ()
    nested: bool = True

    def number(self, name: str) -> int:
        """Which column bears this name. Raises InputError for an unknown one."""
        names = [column.name for column in self.columns]
        if name not in names:
            raise InputError(f"no column is called {name}{closest(name, names)}; there are: {', '.join(names)}")
        return names.index(name)


def select(
    sheet: Sheet,
    *,
    columns: Sequence[str] | None = None,
    sort: str | None = None,
    depth: int | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Sheet:
    """The sheet with these columns (the naming one always first), sorted, and down to a depth.

    `sort` is a column: numbers come largest first, texts alphabetically; a `-` before it turns it round. Formulas are
    sorted by their numbers at `sizes`, and without those by the degree of their leading terms. Raises InputError for
    columns that are unknown.
    """
    if depth is not None:
        sheet = replace(sheet, lines=tuple(line for line in sheet.lines if line.depth <= depth))
    if sort is not None:
        sheet = _sorted(sheet, sort, sizes or {})
    return _with_columns(sheet, columns)


def _sorted(sheet: Sheet, sort: str, sizes: Mapping[str, int]) -> Sheet:
    where = sheet.number(sort.removeprefix("-"))
    key = _key(sizes)
    present = [line for line in sheet.lines if line.cells[where] is not None]
    absent = [line for line in sheet.lines if line.cells[where] is None]
    is_text = any(isinstance(line.cells[where], str) for line in present)
    lines = sorted(present, key=lambda line: key(line.cells[where]), reverse=is_text == sort.startswith("-"))
    return replace(sheet, lines=(*lines, *absent), nested=False)


def _key(sizes: Mapping[str, int]) -> Callable[[Cell], Any]:
    def key(cell: Cell) -> Any:
        if isinstance(cell, str | int | float):
            return cell if isinstance(cell, str) else (0, float(cell))
        expr = getattr(cell, "expr", cell)
        if isinstance(expr, Expr) and all(symbol.name in sizes or symbol.value for symbol in expr.symbols):
            return 0, float(cell.at(**sizes))
        return _leading(expr)

    return key


def _leading(expr: Expr) -> tuple[float, float]:
    """Degree and coefficient of the term that wins when all sizes grow; numbers have degree 0."""
    weights = [(float(sum(power for _, power in monomial)), float(times)) for monomial, times in expr.terms]
    return max(weights, default=(0.0, 0.0))


def _with_columns(sheet: Sheet, names: Sequence[str] | None) -> Sheet:
    if names is None:
        kept = [
            number for number, column in enumerate(sheet.columns) if not column.hidden and _is_filled(sheet, number)
        ]
    else:
        kept = [0, *(number for number in map(sheet.number, names) if number)]
    chosen = itemgetter(*kept) if len(kept) > 1 else lambda cells: (cells[kept[0]],)
    lines = tuple(Line(depth, chosen(cells)) for depth, cells in sheet.lines)
    return replace(sheet, columns=tuple(sheet.columns[number] for number in kept), lines=lines)


def _is_filled(sheet: Sheet, number: int) -> bool:
    """Whether anything stands in this column: one of notes is left out where there are none."""
    return not sheet.lines or any(line.cells[number] not in (None, "") for line in sheet.lines)


def is_number(column: int, lines: Iterable[Line]) -> bool:
    """Whether a column holds numbers or formulas: those stand to the right."""
    kinds = {type(line.cells[column]) for line in lines} - {type(None)}
    return bool(kinds) and str not in kinds


def shown(cell: Cell, unit: Unit = "") -> str:
    """A cell as people read it: `1,234`, `1.2 kB`, `12.3 %`, a formula, or nothing."""
    kind = type(cell)
    if kind is str:
        return cell
    if kind is int or kind is float:
        return _number(cell, unit)
    return "" if cell is None else str(cell)


def _number(value: float, unit: Unit) -> str:
    if unit:
        return f"{value:.1f} %" if unit == "%" else in_bytes(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3g}"


def in_bytes(value: float) -> str:
    """`512 B`, `1.50 kB`, `2.68 TB`: steps of 1000, three digits."""
    size, units = abs(value), ["B", "kB", "MB", "GB", "TB", "PB"]
    while size >= 999.5 and len(units) > 1:
        size, units = size / 1000, units[1:]
    digits = 0 if units[0] == "B" else max(0, 2 - (size >= 9.995) - (size >= 99.95))
    return f"{'-' if value < 0 else ''}{size:.{digits}f} {units[0]}"
