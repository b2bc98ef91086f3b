"""`shapeflow trace`: every operator with the shapes that it makes."""

from __future__ import annotations

from shapeflow.cli.command import app
from shapeflow.cli.console import stdout
from shapeflow.cli.options import AtTexts, Depth, HintTexts, InputTexts, TargetText, WithTexts
from shapeflow.cli.target import trace_target


@app.command()
def trace(
    target: TargetText,
    inputs: InputTexts = None,
    at: AtTexts = None,
    depth: Depth = None,
    with_: WithTexts = None,
    hint: HintTexts = None,
) -> None:
    """Print every operator with the shapes that it makes."""
    from shapeflow.draw.text import render_rich

    traced, sizes = trace_target(target, inputs, with_, hint, at)
    stdout().print(render_rich(traced.to_networkx(), depth=depth, sizes=sizes), soft_wrap=True)
