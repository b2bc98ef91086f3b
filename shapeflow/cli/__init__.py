"""The command line: one file a command, `shapeflow trace | draw | view | check | params | diff | cost | rules`.

Exit status: 0 fine, 1 problems found, 2 could not run. torch, and all that needs it, is imported by the
commands, not at the top of these files: `shapeflow --help` has to answer at once.
"""

from __future__ import annotations

import sys
from importlib import import_module

from shapeflow.cli.command import COULD_NOT_RUN, app

__all__ = ["app", "main"]

for command in ("trace", "draw", "view", "check", "params", "diff", "cost", "rules"):  # in the order of the help
    import_module(f"shapeflow.cli.{command}")


def main() -> None:
    """The `shapeflow` command."""
    try:
        app(prog_name="shapeflow")
    except Exception:  # a fault of our own: the traceback is for the report; status 1 would say "problems found"
        import traceback

        traceback.print_exc()
        print("\nThis is a fault in shapeflow: please report it with the lines above.", file=sys.stderr)
        sys.exit(COULD_NOT_RUN)
