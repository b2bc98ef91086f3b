"""`shapeflow draw`: the graph as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shapeflow.cli.command import app
from shapeflow.cli.options import AtTexts, Depth, HintTexts, InputTexts, TargetText, WithTexts
from shapeflow.cli.target import trace_target
from shapeflow.progress import progress


@app.command()
def draw(
    target: TargetText,
    inputs: InputTexts = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="svg, png, pdf or dot, by suffix; else NAME.svg here.")
    ] = None,
    at: AtTexts = None,
    depth: Depth = None,
    with_: WithTexts = None,
    hint: HintTexts = None,
) -> None:
    """Draw the graph with a shape on every edge."""
    from shapeflow.draw.render import save

    traced, sizes = trace_target(target, inputs, with_, hint, at)
    path = output or Path(f"{traced.name}.svg")
    with progress(f"drawing {path}"):
        save(traced.to_networkx(), path, depth=depth, sizes=sizes)
    print(path)
