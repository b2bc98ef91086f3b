"""A report as a table on the command line: the options that `params` and `cost` share, and how it is printed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shapeflow.cli.console import stdout, write_text
from shapeflow.errors import InputError

if TYPE_CHECKING:
    from shapeflow.cost.sheet import Sheet

FOR_MACHINES = ("csv", "json")

ColumnsText = Annotated[str | None, typer.Option("--columns", metavar="NAME,...", help="Which columns to show.")]
SortText = Annotated[
    str | None, typer.Option("--sort", metavar="COLUMN", help="Largest first; -COLUMN for smallest first.")
]
CompareWithTexts = Annotated[
    list[str] | None, typer.Option("--compare-with", metavar="NAME=VALUE,...", help="Arguments for that one.")
]
FormatText = Annotated[str, typer.Option("--format", "-f", help="text, csv, json, markdown, latex or html.")]
OutputPath = Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file.")]


def words(text: str | None) -> list[str]:
    """`a,b c` as its words; none for an option that is not given."""
    return [] if text is None else text.replace(",", " ").split()


def columns_of(sheet: Sheet, columns: str | None, form: str) -> list[str] | None:
    """Those that were asked for; for programs all there are; None for the usual ones."""
    if columns is not None:
        return words(columns)
    return [column.name for column in sheet.columns] if form in FOR_MACHINES else None


def beside(left: Sheet, right: Sheet, columns: str | None, *, usual: str) -> Sheet:
    """Two models side by side in the one column that was asked for, or the `usual` one."""
    from shapeflow.cost import comparison

    wanted = words(columns) or [usual]
    if len(wanted) > 1:
        raise InputError(f"two models are compared in one column, not in {', '.join(wanted)}")
    return comparison.beside(left, right, wanted[0])


def print_sheet(
    sheet: Sheet,
    columns: list[str] | None,
    sort: str | None,
    depth: int | None,
    sizes: dict[str, int],
    form: str,
    output: Path | None,
) -> None:
    """A table for people, or the text of a format, to stdout or to a file."""
    from shapeflow.cost.formats import rich_table, written
    from shapeflow.cost.sheet import select

    chosen = select(sheet, columns=columns, sort=sort, depth=depth, sizes=sizes)
    if form == "text" and output is None:
        stdout().print(rich_table(chosen), soft_wrap=True)
        return
    text = written(chosen, form) + "\n"
    if output is None:
        print(text, end="")
    else:
        write_text(output, text)
