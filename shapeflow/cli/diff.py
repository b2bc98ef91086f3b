"""`shapeflow diff`: what is other in a second model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shapeflow.cli.command import app
from shapeflow.cli.console import stderr, stdout
from shapeflow.cli.options import HintTexts, InputTexts, WithTexts
from shapeflow.cli.target import drawn_target, is_saved
from shapeflow.errors import InputError
from shapeflow.progress import progress

if TYPE_CHECKING:
    import networkx as nx

DIFFERENT = 1


@app.command()
def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="A target, or a trace that was saved as .json.")],
    b: Annotated[str, typer.Argument(metavar="B", help="What to compare it with: another target or saved trace.")],
    inputs: InputTexts = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Draw both in one, to this svg, png, pdf or dot.")
    ] = None,
    with_: WithTexts = None,
    with_a: Annotated[
        list[str] | None, typer.Option("--with-a", metavar="NAME=VALUE,...", help="More arguments, for A alone.")
    ] = None,
    with_b: Annotated[
        list[str] | None, typer.Option("--with-b", metavar="NAME=VALUE,...", help="More arguments, for B alone.")
    ] = None,
    hint: HintTexts = None,
) -> None:
    """Tell which operators, shapes and parameters were added, removed or changed from A to B.

    Inputs are for both. Exit status: 0 the same, 1 different, 2 could not run.
    """
    saved = [is_saved(text) for text in (a, b)]
    _check(inputs, [*(with_ or []), *(hint or [])], with_a, with_b, saved)
    before = _graph(a, inputs, [*(with_ or []), *(with_a or [])], hint)
    after = _graph(b, inputs, [*(with_ or []), *(with_b or [])], hint)
    from shapeflow.draw.changes import render_rich
    from shapeflow.graph import diff as compare

    found = compare(before, after)
    stdout().print(render_rich(found), soft_wrap=True)
    if output is not None:
        with progress(f"drawing {output}"):
            found.save(output)
        stderr().print(f"drawn to {output}", style="dim", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(DIFFERENT if found else 0)


def _graph(text: str, inputs: list[str] | None, with_: list[str], hint: list[str] | None) -> nx.MultiDiGraph:
    told = (None, None, None) if is_saved(text) else (inputs, with_, hint)
    traced, _ = drawn_target(text, *told, None)
    return traced.to_networkx()


def _check(
    inputs: list[str] | None,
    options: Sequence[str],
    with_a: list[str] | None,
    with_b: list[str] | None,
    saved: list[bool],
) -> None:
    """What is said about a target, but there is only a saved trace, would be passed over in silence."""
    if all(saved) and (inputs or options):
        told = " ".join([*(inputs or []), *options])
        raise InputError(f"{told}: inputs, --with and --hint are for targets, and A and B are saved traces")
    for name, given, built in (("a", with_a, saved[0]), ("b", with_b, saved[1])):
        if given and built:
            raise InputError(f"--with-{name} {' '.join(given)}: {name.upper()} is a saved trace, built already")
