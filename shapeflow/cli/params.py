"""`shapeflow params`: parameters and buffers, as numbers or as formulas of the constructor's arguments."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shapeflow.arguments import parse_inputs, parse_keywords, parse_sizes
from shapeflow.cli.command import app
from shapeflow.cli.console import print_notes
from shapeflow.cli.options import AtTexts, Depth, InputTexts, TargetText, WithTexts
from shapeflow.cli.sheet import (
    ColumnsText,
    CompareWithTexts,
    FormatText,
    OutputPath,
    SortText,
    beside,
    columns_of,
    print_sheet,
    words,
)
from shapeflow.cli.target import load_target
from shapeflow.errors import InputError
from shapeflow.progress import progress

if TYPE_CHECKING:
    from shapeflow.cost.params import ParamReport

SymbolicText = Annotated[
    str | None,
    typer.Option("--symbolic", metavar="NAME,...", help="Count by formulas: these arguments are names, no numbers."),
]
OnlyText = Annotated[
    str | None, typer.Option("--only", metavar="KIND,...", help="Of weights, biases, norms, embeddings.")
]
ExcludeTexts = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="PATTERN", help='Parameters, modules or kinds: "*.bias", head, Conv2d.'),
]
ByText = Annotated[str, typer.Option("--by", help="A line for each: module, kind, role or parameter.")]
Active = Annotated[bool, typer.Option("--active", help="What one token can touch, where a router picks experts.")]
CompareText = Annotated[
    str | None, typer.Option("--compare", metavar="TARGET", help="Another model, side by side with the first.")
]


@app.command()
def params(
    target: TargetText,
    inputs: InputTexts = None,
    depth: Depth = None,
    with_: WithTexts = None,
    symbolic: SymbolicText = None,
    at: AtTexts = None,
    only: OnlyText = None,
    exclude: ExcludeTexts = None,
    by: ByText = "module",
    columns: ColumnsText = None,
    sort: SortText = None,
    active: Active = False,
    compare: CompareText = None,
    compare_with: CompareWithTexts = None,
    form: FormatText = "text",
    output: OutputPath = None,
) -> None:
    """Count parameters and buffers, each tensor once; with inputs, tell what the forward never reaches."""
    names, kinds = words(symbolic), words(only)
    sizes = parse_sizes(at or [])
    report = _report(target, inputs, with_, names, kinds, exclude or [], active=active)
    sheet = report.sheet(by, sizes or None)
    if compare is not None:
        other = _report(compare, inputs, compare_with, names, kinds, exclude or [], active=active)
        sheet = beside(sheet, other.sheet(by, sizes or None), columns, usual="parameters")
    wanted = columns_of(sheet, columns if compare is None else None, form)
    print_sheet(sheet, wanted, sort, depth, sizes, form, output)


def _report(
    target: str,
    inputs: list[str] | None,
    with_: list[str] | None,
    symbolic: list[str],
    only: list[str],
    exclude: list[str],
    *,
    active: bool,
) -> ParamReport:
    with progress("importing torch") as step:
        from shapeflow.cost.params import params as count

        if symbolic:
            return _formulas(target, inputs, with_, symbolic, only, exclude)
        found = load_target(target, with_, step, has_inputs=False)
        step("counting")
        positional, named = parse_inputs(inputs or [], found.signature)
        tensors: dict[str, Any] = named
        counted = count(found.model, *positional, only=only, exclude=exclude, **tensors)
        if active:
            step("tracing for the active parameters")
            _ = counted.activity  # from now on its summary tells them
    print_notes(found.notes)
    return counted


def _formulas(
    target: str,
    inputs: list[str] | None,
    with_: list[str] | None,
    symbolic: list[str],
    only: list[str],
    exclude: list[str],
) -> ParamReport:
    from shapeflow.cost.params import params as count
    from shapeflow.target import maker_of

    if inputs:
        raise InputError(f"--symbolic builds {target} without inputs: leave {inputs[0]!r} out")
    arguments: dict[str, Any] = parse_keywords(with_ or [])
    counted = count(maker_of(target), symbolic=symbolic, only=only, exclude=exclude, **arguments)
    return replace(counted, name=target.rpartition(":")[2])
