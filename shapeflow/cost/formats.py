"""How a `Sheet` is written: a table for terminals, plain text, CSV, JSON, Markdown, LaTeX, HTML.

>>> written(sheet, "csv")
'module,kind,parameters\\n...'

CSV and JSON carry plain numbers, formulas as text; the others are for people: `1,234`, `1.2 kB`, `4*d_model^2`.
"""

from __future__ import annotations

import csv
import html
import io
import json
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from shapeflow.cost.sheet import Cell, Column, Line, Sheet, is_number, shown
from shapeflow.errors import InputError
from shapeflow.importer import closest

if TYPE_CHECKING:
    from rich.console import RenderableType

WIDEST = 72
"""A text cell of a plain table that is longer moves the rest of its line, and no other line."""


def written(sheet: Sheet, form: str) -> str:
    """The sheet in one of `FORMATS`, without a newline at the end. Raises InputError for an unknown one."""
    if form not in FORMATS:
        raise InputError(f"no format is called {form}{closest(form, FORMATS)}; there are: {', '.join(FORMATS)}")
    return FORMATS[form](sheet).rstrip("\n")


def text(sheet: Sheet) -> str:
    """Aligned columns as plain text, as wide as they are; the summary below."""
    return "\n".join([*_aligned(sheet), *([""] if sheet.summary else []), *sheet.summary])


def rich_table(sheet: Sheet) -> RenderableType:
    """The same lines for a terminal, with colours: nothing is cut, whatever its width."""
    from rich.text import Text

    head, *lines = _aligned(sheet)
    notes = [line.cells[place] for place in _notes(sheet) for line in sheet.lines if line.cells[place]]
    body = [Text(line) for line in lines]
    for line in body:
        for note in notes:
            if line.plain.endswith(f"  {note}"):
                line.stylize("yellow", len(line.plain) - len(note))
    below = [Text(), *map(Text, sheet.summary)] if sheet.summary else []
    return Text("\n").join([Text(head, style="bold"), *body, *below])


def _aligned(sheet: Sheet) -> list[str]:
    padded = []
    for column, cells, is_right in zip(sheet.columns, _columns(sheet), _numeric(sheet), strict=True):
        cells = [column.head, *cells]
        width = max([len(cell) for cell in cells if len(cell) <= WIDEST])
        padded.append([cell.rjust(width) if is_right else cell.ljust(width) for cell in cells])
    return ["  ".join(cells).rstrip() for cells in zip(*padded, strict=True)]


def _notes(sheet: Sheet) -> list[int]:
    return [place for place, column in enumerate(sheet.columns) if column.name == "note"]


def to_csv(sheet: Sheet) -> str:
    """A line of names, then the cells as they are."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.name for column in sheet.columns])
    writer.writerows([["" if cell is None else _plain(cell) for cell in line.cells] for line in sheet.lines])
    return out.getvalue()


def to_json(sheet: Sheet) -> str:
    """`{"title": ..., "totals": {...}, "rows": [{"depth": 0, column: cell, ...}, ...], "notes": [...]}`."""
    names = [column.name for column in sheet.columns]
    rows = [
        {"depth": line.depth, **{name: _plain(cell) for name, cell in zip(names, line.cells, strict=True)}}
        for line in sheet.lines
    ]
    totals = {name: _plain(value) for name, value in sheet.totals.items()}
    return json.dumps({"title": sheet.title, "totals": totals, "rows": rows, "notes": list(sheet.summary)}, indent=2)


def to_markdown(sheet: Sheet) -> str:
    """A table as GitHub draws it."""
    heads = [column.head for column in sheet.columns]
    rules = ["---:" if is_right else "---" for is_right in _numeric(sheet)]
    rows = [[_in_markdown(cell) for cell in row] for row in _texts(sheet, "&nbsp;&nbsp;")]
    lines = [f"| {' | '.join(row)} |" for row in [heads, rules, *rows]]
    return "\n".join([*lines, *(f"\n{_in_markdown(line)}" for line in sheet.summary)])


def to_latex(sheet: Sheet) -> str:
    """A `tabular` in booktabs' style, formulas in math mode: `\\usepackage{booktabs}`."""
    layout = "".join("r" if is_right else "l" for is_right in _numeric(sheet))
    heads = " & ".join(_escaped(column.head) for column in sheet.columns)
    rows = [" & ".join(_in_latex(sheet, line, place) for place in range(len(sheet.columns))) for line in sheet.lines]
    body = [
        rf"\begin{{tabular}}{{{layout}}}",
        r"\toprule",
        rf"{heads} \\",
        r"\midrule",
        *(rf"{row} \\" for row in rows),
    ]
    return "\n".join([*(f"% {line}" for line in sheet.summary), *body, r"\bottomrule", r"\end{tabular}"])


def to_html(sheet: Sheet) -> str:
    """A `<table>` without styles of its own, as notebooks show it."""
    right = _numeric(sheet)
    heads = "".join(f"<th>{html.escape(column.head)}</th>" for column in sheet.columns)
    rows = "".join(f"<tr>{_cells_of_html(row, right)}</tr>\n" for row in _texts(sheet, "\u2003"))
    notes = "".join(f"<p>{html.escape(line)}</p>\n" for line in sheet.summary)
    return f"<table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n{notes}"


def formula_in_latex(formula: str) -> str:
    """`4*d_model^2 + T//2` in math mode, without the dollars: `4\\,d_{\\mathrm{model}}^{2} + ...`."""
    tokens = re.findall(r"[A-Za-z]\w*|\d+|\^\d+|//|.", formula)
    return "".join(_token_in_latex(token) for token in tokens)


FORMATS: dict[str, Callable[[Sheet], str]] = {
    "text": text,
    "csv": to_csv,
    "json": to_json,
    "markdown": to_markdown,
    "latex": to_latex,
    "html": to_html,
}


def _numeric(sheet: Sheet) -> list[bool]:
    return [is_number(place, sheet.lines) for place in range(len(sheet.columns))]


def _texts(sheet: Sheet, indent: str = "  ") -> list[tuple[str, ...]]:
    """Every line as text."""
    return [*zip(*_columns(sheet, indent), strict=True)]


def _columns(sheet: Sheet, indent: str = "  ") -> list[list[str]]:
    """Every column as text; the naming one indented."""
    columns = [
        [shown(line.cells[place], column.unit) for line in sheet.lines] for place, column in enumerate(sheet.columns)
    ]
    if sheet.nested and columns:
        columns[0] = [indent * line.depth + name for line, name in zip(sheet.lines, columns[0], strict=True)]
    return columns


def _shown(cell: Cell, column: Column) -> str:
    return shown(cell, column.unit)


def _plain(cell: Cell) -> Any:
    """What CSV and JSON can hold: a formula is its text."""
    return cell if cell is None or isinstance(cell, bool | int | float | str) else str(cell)


def _in_markdown(cell: str) -> str:
    return re.sub(r"([|*_`<\\])", r"\\\1", cell)


def _in_latex(sheet: Sheet, line: Line, place: int) -> str:
    cell, column = line.cells[place], sheet.columns[place]
    if cell is not None and not isinstance(cell, bool | int | float | str):
        return f"${formula_in_latex(str(cell))}$"
    indent = r"\quad " * line.depth if sheet.nested and not place else ""
    return indent + _escaped(_shown(cell, column))


def _escaped(words: str) -> str:
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return re.sub(r"[\\~^&%$#_{}]", lambda found: special.get(found[0], "\\" + found[0]), words)


def _token_in_latex(token: str) -> str:
    if token == "*":
        return r"\,"
    if token == "//":
        return r" \mathbin{/\!/} "
    if token == "%":
        return r" \bmod "
    if token.startswith("^"):
        return f"^{{{token[1:]}}}"
    if not token[0].isalpha():
        return token
    if token in ("max", "min"):
        return "\\" + token
    head, _, index = token.partition("_")
    name = head if len(head) == 1 else rf"\mathrm{{{head}}}"
    return name if not index else rf"{name}_{{\mathrm{{{_escaped(index)}}}}}"


def _cells_of_html(row: Sequence[str], right: list[bool]) -> str:
    style = ' style="text-align: right"'
    return "".join(
        f"<td{style if is_right else ''}>{html.escape(cell)}</td>" for cell, is_right in zip(row, right, strict=True)
    )
