"""Two sheets side by side, line by line: what one has and the other has not, and by how much they differ.

>>> print(text(beside(params(small).sheet(), params(large).sheet(), "parameters")))
module  small  large  difference
"""

from __future__ import annotations

from collections.abc import Iterable

from shapeflow.cost.sheet import Cell, Column, Line, Sheet


def beside(left: Sheet, right: Sheet, column: str) -> Sheet:
    """One column of two sheets, lines matched by their names, in the order of both.

    The columns are the naming one, one for each sheet under its title, and `difference` (right minus left; a line that
    is missing on one side counts as 0 there). Raises InputError for a column that one of them does not have.
    """
    at_left, at_right = _cells(left, column), _cells(right, column)
    depths = {line.cells[0]: line.depth for sheet in (right, left) for line in sheet.lines}
    names = merged(at_left, at_right)
    lines = tuple(_line(name, depths[name], at_left.get(name), at_right.get(name)) for name in names)
    unit = left.columns[left.number(column)].unit
    first, second = _titles(left.title, right.title)
    columns = (left.columns[0], Column(first, unit=unit), Column(second, unit=unit), Column("difference", unit=unit))
    totals = {first: dict(left.totals), second: dict(right.totals)}
    return Sheet(f"{first} and {second}", columns, lines, totals, _summary(left, right, first, second))


def merged(left: Iterable[str], right: Iterable[str]) -> list[str]:
    """The names of both in one order: what only the right one has stands behind what it follows there."""
    known = list(left)
    both = set(known)
    own: dict[str, list[str]] = {}  # a name of both, "" for the top -> what only the right one has behind it
    behind = ""
    for name in right:
        if name in both:
            behind = name
        else:
            own.setdefault(behind, []).append(name)
    return [*own.get("", []), *(each for name in known for each in (name, *own.get(name, [])))]


def _cells(sheet: Sheet, column: str) -> dict[str, Cell]:
    place = sheet.number(column)
    return {line.cells[0]: line.cells[place] for line in sheet.lines}


def _line(name: str, depth: int, left: Cell, right: Cell) -> Line:
    if isinstance(left, str) or isinstance(right, str):
        return Line(depth, (name, left, right, None))
    difference: Cell = (0 if right is None else right) - (0 if left is None else left)
    return Line(depth, (name, left, right, difference))


def _titles(left: str, right: str) -> tuple[str, str]:
    return (left, right) if left != right else (f"{left} (1)", f"{right} (2)")


def _summary(left: Sheet, right: Sheet, first: str, second: str) -> tuple[str, ...]:
    return tuple(
        f"{title}: {line}" for title, sheet in ((first, left), (second, right)) for line in sheet.summary if line
    )
