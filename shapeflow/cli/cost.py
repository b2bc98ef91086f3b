"""`shapeflow cost`: operations and bytes, as formulas and at sizes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shapeflow.arguments import parse_inputs, parse_keywords, parse_sizes
from shapeflow.cli.command import app
from shapeflow.cli.console import stdout
from shapeflow.cli.options import AtTexts, Depth, HintTexts, InputTexts, TargetText, WithTexts
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
from shapeflow.cli.target import trace_target
from shapeflow.errors import InputError
from shapeflow.progress import progress

if TYPE_CHECKING:
    from shapeflow.cost.cost import Cost
    from shapeflow.cost.sheet import Sheet
    from shapeflow.trace.result import Trace

Backward = Annotated[bool, typer.Option("--backward", help="Show what a backward takes, too.")]
ScalingFlag = Annotated[
    bool, typer.Option("--scaling", help="Tell which part takes the most at which size, and what overtakes what.")
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
PlotText = Annotated[
    str | None, typer.Option("--plot", metavar="NAME", help="Draw the operations against this size to --output.")
]


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
        second = sheet(count(other), sizes=sizes, optimizer=optimizer, precision=precision)
        found = beside(found, second, columns, usual="flops")
        columns = None
    elif scaling:
        found = replace(found, summary=(*found.summary, "", *_scaling(counted, sizes)))
    print_sheet(found, _columns(found, columns, form, backward=backward), sort, depth, sizes, form, output)


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
        recipe = replace(construct(maker_of(target), dict.fromkeys(words(symbolic)), **arguments), training=False)
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


def _columns(found: Sheet, columns: str | None, form: str, *, backward: bool) -> list[str] | None:
    """The usual columns, and those of a backward where it is asked for."""
    wanted = columns_of(found, columns, form)
    if wanted is not None or not backward:
        return wanted
    return [each.name for each in found.columns if not each.hidden or each.name in ("backward", "training")]
