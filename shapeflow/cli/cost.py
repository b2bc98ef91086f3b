"""`shapeflow cost`: operations and bytes, as formulas and at sizes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shapeflow.arguments import parse_inputs, parse_keywords, parse_sizes
from shapeflow.cli.command import app
from shapeflow.cli.console import stdout, write_text
from shapeflow.cli.options import AtTexts, Depth, HintTexts, InputTexts, TargetText, WithTexts
from shapeflow.cli.target import trace_target
from shapeflow.errors import InputError
from shapeflow.progress import progress

if TYPE_CHECKING:
    from shapeflow.cost.cost import Cost
    from shapeflow.cost.sheet import Sheet
    from shapeflow.trace.result import Trace

FOR_MACHINES = ("csv", "json")

Backward = Annotated[bool, typer.Option("--backward", help="Show what a backward takes, too.")]
ScalingFlag = Annotated[
    bool, typer.Option("--scaling", help="Tell which part takes the most at which size, and what overtakes what.")
]
ColumnsText = Annotated[str | None, typer.Option("--columns", metavar="NAME,...", help="Which columns to show.")]
SortText = Annotated[
    str | None, typer.Option("--sort", metavar="COLUMN", help="Largest first; -COLUMN for smallest first.")
]
SymbolicText = Annotated[
    str | None,
    typer.Option("--symbolic", metavar="NAME,...", help="These arguments of the constructor are names, no numbers."),
]
OptimizerText = Annotated[str, typer.Option("--optimizer", help="sgd, momentum, adam, adamw, adagrad, rmsprop, lion.")]
PrecisionText = Annotated[
    str | None, typer.Option("--precision", help="float32, mixed, bfloat16, float16, float64; the model's own.")
]
CompareText = Annotated[
    str | None, typer.Option("--compare", metavar="TARGET", help="Another model with the same inputs, side by side.")
]
CompareWithTexts = Annotated[
    list[str] | None, typer.Option("--compare-with", metavar="NAME=VALUE,...", help="Arguments for that one.")
]
PlotText = Annotated[
    str | None, typer.Option("--plot", metavar="NAME", help="Draw the operations against this size to --output.")
]
FormatText = Annotated[str, typer.Option("--format", "-f", help="text, csv, json, markdown, latex or html.")]
OutputPath = Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file.")]


@app.command()
def cost(
    target: TargetText,
    inputs: InputTexts = None,
    at: AtTexts = None,
    depth: Depth = None,
    with_: WithTexts = None,
    symbolic: SymbolicText = None,
    hint: HintTexts = None,
    backward: Backward = False,
    scaling: ScalingFlag = False,
    columns: ColumnsText = None,
    sort: SortText = None,
    optimizer: OptimizerText = "adam",
    precision: PrecisionText = None,
    compare: CompareText = None,
    compare_with: CompareWithTexts = None,
    plot: PlotText = None,
    form: FormatText = "text",
    output: OutputPath = None,
) -> None:
    """Count operations and bytes: FLOPs, activations, KV cache, as formulas."""
    from shapeflow.cost.cost import cost as count
    from shapeflow.cost.report import sheet

    traced, sizes = _traced(target, inputs, with_, symbolic, hint, at)
    counted = count(traced)
    if plot is not None:
        _plot(counted, plot, output, sizes)
        return
    found = sheet(counted, sizes=sizes, optimizer=optimizer, precision=precision)
    if compare is not None:
        other, _ = _traced(compare, inputs, compare_with, symbolic, hint, at)
        found = _beside(found, sheet(count(other), sizes=sizes, optimizer=optimizer, precision=precision), columns)
        columns = None
    elif scaling:
        found = replace(found, summary=(*found.summary, "", *_scaling(counted, sizes)))
    _print(found, _columns(found, columns, form, backward=backward), sort, depth, sizes, form, output)


def _traced(
    target: str,
    inputs: list[str] | None,
    with_: list[str] | None,
    symbolic: str | None,
    hint: list[str] | None,
    at: list[str] | None,
) -> tuple[Trace, dict[str, int]]:
    """The trace, of a module that is made of names where those are given, and the sizes to show."""
    if symbolic is None:
        return trace_target(target, inputs, with_, hint, at)
    with progress("importing torch") as step:
        from shapeflow.target import Target, maker_of
        from shapeflow.trace.construct import construct
        from shapeflow.trace.tracer import trace

        arguments = parse_keywords(with_ or [])
        recipe = replace(construct(maker_of(target), dict.fromkeys(_words(symbolic)), **arguments), training=False)
        positional, named = parse_inputs(inputs or [], Target(target, recipe).signature)
        hints = parse_sizes(hint or [])
        return trace(recipe, *positional, progress=step, hints=hints, **named), parse_sizes(at or [])


def _plot(counted: Cost, dim: str, output: Path | None, sizes: dict[str, int]) -> None:
    if output is None:
        raise InputError("--plot draws to a file: --output cost.svg")
    counted.plot(dim, output, **sizes)
    stdout().print(str(counted.scaling(dim, **sizes)), soft_wrap=True)


def _scaling(counted: Cost, sizes: dict[str, int]) -> list[str]:
    """Along every size that operations depend on in more than one way: a batch only multiplies all of them."""
    names = [name for name in counted.trace.free if name in {symbol.name for symbol in counted.flops.symbols}]
    told = [counted.scaling(name, **sizes) for name in names]
    lines = [str(each) for each in told if each.overtakings]
    return lines or [str(each) for each in told[:1]]


def _beside(left: Sheet, right: Sheet, columns: str | None) -> Sheet:
    from shapeflow.cost.comparison import beside

    wanted = _words(columns) or ["flops"]
    if len(wanted) > 1:
        raise InputError(f"two models are compared in one column, not in {', '.join(wanted)}")
    return beside(left, right, wanted[0])


def _columns(sheet: Sheet, columns: str | None, form: str, *, backward: bool) -> list[str] | None:
    """Those that were asked for; for programs all there are."""
    if columns is not None:
        return _words(columns)
    if form in FOR_MACHINES:
        return [column.name for column in sheet.columns]
    if not backward:
        return None
    return [each.name for each in sheet.columns if not each.hidden or each.name in ("backward", "training")]


def _words(text: str | None) -> list[str]:
    return [] if text is None else text.replace(",", " ").split()


def _print(
    sheet: Sheet,
    columns: list[str] | None,
    sort: str | None,
    depth: int | None,
    sizes: dict[str, int],
    form: str,
    output: Path | None,
) -> None:
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
