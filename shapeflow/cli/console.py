"""Where the command line prints: results to stdout, notes and errors to stderr."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from shapeflow.errors import OutputError

if TYPE_CHECKING:
    from rich.console import Console


def stdout() -> Console:
    from rich.console import Console

    return Console(highlight=False)


def stderr() -> Console:
    from rich.console import Console

    return Console(stderr=True)


def print_notes(notes: Iterable[str]) -> None:
    for note in notes:
        stderr().print(f"note: {note}", style="yellow", markup=False, highlight=False, soft_wrap=True)


def write_text(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror}") from error
