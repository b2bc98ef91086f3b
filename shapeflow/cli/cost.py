"""`shapeflow cost`: operations and bytes, as formulas and at sizes."""

from __future__ import annotations

from typing import Annotated

import typer

from shapeflow.cli.command import app
from shapeflow.cli.console import stdout
from shapeflow.cli.options import AtTexts, Depth, HintTexts, InputTexts, TargetText, WithTexts
from shapeflow.cli.target import trace_target


@app.command()
def cost(
    target: TargetText,
    inputs: InputTexts = None,
    at: AtTexts = None,
    depth: Depth = None,
    with_: WithTexts = None,
    hint: HintTexts = None,
    backward: Annotated[bool, typer.Option("--backward", help="Show what a backward takes, too.")] = False,
) -> None:
    """Count operations and bytes: FLOPs, activations, KV cache, as formulas."""
    traced, sizes = trace_target(target, inputs, with_, hint, at)
    from shapeflow.cost.cost import cost as count
    from shapeflow.cost.formats import rich_table
    from shapeflow.cost.sheet import select

    sheet = select(count(traced).sheet(**sizes), depth=depth)
    stdout().print(rich_table(sheet), soft_wrap=True)
