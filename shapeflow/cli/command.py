"""The `shapeflow` command that the others hang on, and how a user's mistake is told."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from shapeflow import __version__
from shapeflow.cli.console import stderr
from shapeflow.errors import ShapeflowError

COULD_NOT_RUN = 2


class _Group(TyperGroup):
    """A user's mistake is one message on stderr; any other exception is ours and keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ShapeflowError as error:
            stderr().print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
            raise typer.Exit(COULD_NOT_RUN) from error


app = typer.Typer(
    cls=_Group,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,  # rich's help would take longer to import than everything else
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"shapeflow {__version__}")
        raise typer.Exit


@app.callback()
def shapeflow(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Shapes of a PyTorch model on every edge, in the model's own names.

    Exit status: 0 fine, 1 problems found, 2 could not run.
    """
