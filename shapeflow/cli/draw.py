"""`shapeflow draw`: the graph as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shapeflow.arguments import parse_inputs, parse_sizes
from shapeflow.cli.command import app
from shapeflow.cli.console import print_notes
from shapeflow.cli.options import AtTexts, Depth, HintTexts, InputTexts, TargetText, WithTexts
from shapeflow.cli.target import load_target, trace_target
from shapeflow.progress import progress

if TYPE_CHECKING:
    from shapeflow.check.problem import Report

PROBLEMS_FOUND = 1


@app.command()
def draw(
    target: TargetText,
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
    check: Annotated[bool, typer.Option("--check", help="Mark what `shapeflow check` finds in red.")] = False,
    with_: WithTexts = None,
    hint: HintTexts = None,
) -> None:
    """Draw the graph with a shape on every edge: on one page, unless a depth or --unfold asks for more.

    With --check the exit status is 1 when there are errors; the picture is written all the same.
    """
    traced, sizes = trace_target(target, inputs, with_, hint, at)
    report = _checked(target, inputs, with_, hint) if check else None
    path = output or Path(f"{traced.name}.svg")
    options = {"unfold": unfold, "parameters": parameters, "theme": "dark" if dark else "light"}
    with progress(f"drawing {path}"):
        traced.save(path, depth=depth, sizes=sizes, report=report, flops=flops, **options)
    print(path)
    if report is not None:
        print_notes([f"{problem.rule}: {problem.message}" for problem in report.problems])
        raise typer.Exit(0 if report.ok else PROBLEMS_FOUND)


def _checked(target: str, inputs: list[str] | None, with_: list[str] | None, hint: list[str] | None) -> Report:
    with progress("checking") as step:
        found = load_target(target, with_, step, has_inputs=bool(inputs))
        from shapeflow.check.check import check

        positional, named = parse_inputs(inputs or [], found.signature)
        options: dict[str, Any] = {"progress": step, "hints": parse_sizes(hint or []), **named}
        return check(found.value, *positional, **options)
