"""What a killed run goes on from: one file, replaced in one step (`file.py`), and never trusted.

Reading runs no code of the file (`weights_only`), and sums tell a byte that has changed since.
"""

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from .file import replace
from .settings import FREE, RunError

FORMAT = "shapeflow training example, 1"


def save(path: Path, state: Mapping[str, Any]) -> None:
    """Write a checkpoint in the place of the one before."""
    whole = io.BytesIO()  # of a file that cannot be written torch would say that, and not why
    torch.save({"format": FORMAT, **state}, whole)
    replace(path, whole.getbuffer())


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint. Raises RunError where there is none, or none that is whole."""
    try:
        with path.open("rb"):
            state = _read(path)
    except FileNotFoundError:
        raise RunError(f"there is no checkpoint {path}: start without --resume") from None
    except OSError as error:
        raise RunError(f"the checkpoint {path} cannot be read: {error.strerror}") from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise RunError(f"{path} was not written by this program: --resume takes a checkpoint.pt of it")
    return state


def _read(path: Path) -> Any:
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()  # torch does not look at the sums that it writes
        if damaged is not None:
            raise RunError(f"the checkpoint {path} is damaged: {damaged} is not what was written")
        return torch.load(path, map_location="cpu", weights_only=True)
    except (RunError, OSError):
        raise
    except Exception as error:  # zipfile, pickle and torch each raise what they like at bytes that make no sense
        reason = str(error).partition("\n")[0]
        raise RunError(f"the checkpoint {path} is damaged, or none: {type(error).__name__}: {reason}") from error


def check_same(path: Path, kept: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raises RunError where a checkpoint belongs to another program, to other data, or to other settings."""
    for name in ("program", "data"):
        if kept[name] != wanted[name]:
            raise RunError(f"the checkpoint {path} is of another {name}: {kept[name]}, and this run is {wanted[name]}")
    old, new = kept["settings"], wanted["settings"]
    names = [name for name in sorted({*old, *new} - {*FREE}) if old.get(name) != new.get(name)]
    if names:
        told = ", ".join(f"{name} is {old.get(name)} there and {new.get(name)} here" for name in names)
        options = " ".join(f"--{name.replace('_', '-')} {old.get(name)}" for name in names)
        raise RunError(f"the checkpoint {path} is of another configuration: {told}; to go on, give {options}")
