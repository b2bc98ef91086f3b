"""`shapeflow rules`: what the check can find."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from shapeflow.cli.command import app
from shapeflow.cli.console import stdout
from shapeflow.errors import InputError
from shapeflow.importer import closest
from shapeflow.progress import progress

if TYPE_CHECKING:
    from shapeflow.check.rules import Rule


@app.command()
def rules(
    rule: Annotated[str | None, typer.Argument(metavar="[RULE]", help="An id, such as SF301; else all.")] = None,
) -> None:
    """List what the check can find, or explain one rule with a wrong and a right example."""
    from shapeflow.check.text import render_rule, render_rules

    with progress("importing torch"):
        known = all_rules()
    name = (rule or "").upper()
    if rule is not None and name not in known:
        raise InputError(f"no rule is called {rule}{closest(name, known)}")
    stdout().print(render_rules(known.values()) if rule is None else render_rule(known[name]), soft_wrap=True)


def all_rules() -> dict[str, Rule]:
    from shapeflow.check.rules import RULES

    return RULES
