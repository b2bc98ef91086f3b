"""`shapeflow params`: parameters and buffers."""

from __future__ import annotations

from shapeflow.cli.command import app
from shapeflow.cli.console import print_notes, stdout
from shapeflow.cli.options import Depth, InputTexts, TargetText, WithTexts
from shapeflow.cli.target import load_target
from shapeflow.progress import progress


@app.command()
def params(
    target: TargetText,
    inputs: InputTexts = None,  # counting needs none: taken, so that one command line serves all commands
    depth: Depth = None,
    with_: WithTexts = None,
) -> None:
    """Count parameters and buffers, each tensor once."""
    with progress("importing torch") as step:
        found = load_target(target, with_, step, has_inputs=bool(inputs))
        from shapeflow.cost import params as count
        from shapeflow.cost.table import table

        step("counting")
        counted = table(count(found.model), depth=depth)
    print_notes(found.notes)
    stdout().print(counted, soft_wrap=True)
