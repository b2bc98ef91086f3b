"""What the checker finds in the target of a drawing: what `draw --check` and `view --check` share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from shapeflow.arguments import parse_inputs, parse_sizes
from shapeflow.cli.console import print_notes
from shapeflow.cli.target import is_saved, load_target
from shapeflow.errors import InputError
from shapeflow.progress import progress

if TYPE_CHECKING:
    from shapeflow.check.problem import Report

PROBLEMS_FOUND = 1


def checked(target: str, inputs: list[str] | None, with_: list[str] | None, hint: list[str] | None) -> Report:
    """The report on the target that the same texts trace."""
    if is_saved(target):
        raise InputError(f"--check: the checker runs the model, and {target} is a trace of it; give the target instead")
    with progress("checking") as step:
        found = load_target(target, with_, step, has_inputs=bool(inputs))
        from shapeflow.check.check import check

        positional, named = parse_inputs(inputs or [], found.signature)
        options: dict[str, Any] = {"progress": step, "hints": parse_sizes(hint or []), **named}
        return check(found.value, *positional, **options)


def tell(report: Report | None) -> None:
    """Each finding in a line on stderr; ends with status 1 when there are errors."""
    if report is None:
        return
    print_notes([f"{problem.rule}: {problem.message}" for problem in report.problems])
    if not report.ok:
        raise typer.Exit(PROBLEMS_FOUND)
