"""`shapeflow draw`: the graph as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shapeflow.cli.checked import checked, tell
from shapeflow.cli.command import app
from shapeflow.cli.options import AtTexts, Depth, DrawnText, HintTexts, InputTexts, Marked, WithTexts
from shapeflow.cli.target import drawn_target
from shapeflow.progress import progress


@app.command()
def draw(
    target: DrawnText,
    inputs: InputTexts = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Its suffix tells the format: svg, png, pdf, dot, mmd, html, json, graphml; NAME.svg.",
        ),
    ] = None,
    at: AtTexts = None,
    depth: Depth = None,
    unfold: Annotated[
        bool, typer.Option("--unfold", help="Draw every block; without --depth, every operator.")
    ] = False,
    parameters: Annotated[bool, typer.Option("--parameters", help="Draw weights and buffers.")] = False,
    dark: Annotated[bool, typer.Option("--dark", help="On dark ground.")] = False,
    flops: Annotated[bool, typer.Option("--flops", help="Tell what each module costs.")] = False,
    check: Marked = False,
    with_: WithTexts = None,
    hint: HintTexts = None,
) -> None:
    """Draw the graph with a shape on every edge: on one page, unless a depth or --unfold asks for more.

    A trace that was saved as .json is drawn as it was. With --check the exit status is 1 when there are errors; the
    picture is written all the same.
    """
    traced, sizes = drawn_target(target, inputs, with_, hint, at)
    report = checked(target, inputs, with_, hint) if check else None
    path = output or Path(f"{traced.name}.svg")
    options = {"unfold": unfold, "parameters": parameters, "theme": "dark" if dark else "light"}
    with progress(f"drawing {path}"):
        traced.save(path, depth=depth, sizes=sizes, report=report, flops=flops, **options)
    print(path)
    tell(report)
