"""`shapeflow trace`: every operator with the shapes that it makes."""

from __future__ import annotations

from shapeflow.cli.command import app
from shapeflow.cli.console import stdout
from shapeflow.cli.options import AtTexts, Depth, DrawnText, HintTexts, InputTexts, WithTexts
from shapeflow.cli.target import drawn_target


@app.command()
def trace(
    target: DrawnText,
    inputs: InputTexts = None,
    at: AtTexts = None,
    depth: Depth = None,
    with_: WithTexts = None,
    hint: HintTexts = None,
) -> None:
    """Print every operator with the shapes that it makes."""
    from shapeflow.draw.text import render_rich

    traced, sizes = drawn_target(target, inputs, with_, hint, at)
    stdout().print(render_rich(traced.to_networkx(), depth=depth, sizes=sizes), soft_wrap=True)
