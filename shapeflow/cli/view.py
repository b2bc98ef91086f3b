"""`shapeflow view`: the graph as a page to walk through, in the browser."""

from __future__ import annotations

import tempfile
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shapeflow.cli.checked import checked, tell
from shapeflow.cli.command import app
from shapeflow.cli.console import print_notes
from shapeflow.cli.options import AtTexts, Depth, DrawnText, HintTexts, InputTexts, Marked, WithTexts
from shapeflow.cli.target import drawn_target
from shapeflow.errors import InputError, ShapeflowError
from shapeflow.progress import progress

if TYPE_CHECKING:
    from shapeflow.graph.loaded import SavedTrace
    from shapeflow.graph.operations import Operations
    from shapeflow.trace.result import Trace


@app.command()
def view(
    target: DrawnText,
    inputs: InputTexts = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the page here, NAME.html; else to a temporary file.")
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Write the page, and leave the browser alone.")] = False,
    at: AtTexts = None,
    depth: Depth = None,
    check: Marked = False,
    with_: WithTexts = None,
    hint: HintTexts = None,
) -> None:
    """Walk through the model in the browser: a sheet for each module, sizes to type, search.

    The page is one file that needs no network: send it to others as it is. With --check the exit status is 1 when there
    are errors; the page is written and opened all the same.
    """
    if output is not None and output.suffix.lower() != ".html":
        raise InputError(f"--output {output}: the page is html; name it {output.with_suffix('.html')}")
    traced, sizes = drawn_target(target, inputs, with_, hint, at)
    report = checked(target, inputs, with_, hint) if check else None
    path = output or _temporary(traced.name)
    with progress("counting operations") as step:
        operations = _operations(traced)
        step(f"drawing {path}")
        from shapeflow.draw.render import save

        save(traced.to_networkx(), path, depth=depth, sizes=sizes, operations=operations, report=report)
    print(path)
    if not no_open and not webbrowser.open(path.resolve().as_uri()):
        print_notes([f"no browser could be opened here; open {path} in one"])
    tell(report)


def _operations(traced: Trace | SavedTrace) -> Operations | None:
    """The page is worth having without them, so that what cannot be counted is told and no more."""
    from shapeflow.draw.page import operations_of
    from shapeflow.graph.loaded import SavedTrace

    if isinstance(traced, SavedTrace):
        return traced.graph.get("operations")
    try:
        return operations_of(traced)
    except ShapeflowError as error:
        print_notes([f"operations are not counted: {error}"])
        return None


def _temporary(name: str) -> Path:
    """A file of its own that stays: the browser reads it after this command has ended."""
    word = "".join(letter if letter.isalnum() else "_" for letter in name)[:60] or "model"
    return Path(tempfile.mkdtemp(prefix="shapeflow-")) / f"{word}.html"
