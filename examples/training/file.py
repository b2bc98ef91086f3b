"""A file that is replaced in one step: a kill in the middle of a write leaves the one before, whole."""

import os
from pathlib import Path

from .settings import RunError


def replace(path: Path, data: bytes | memoryview) -> None:
    """Write beside it, and rename when that is on the disk. Raises RunError where it cannot be written."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # or the new name could reach the disk before what it names
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise RunError(f"{path} cannot be written: {error.strerror}") from error
