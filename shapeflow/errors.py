"""Everything that shapeflow raises for a user's mistake.

ShapeflowError
├── SpecError      a shape spec or an annotation that does not parse
├── InputError     inputs that are missing, too many, misnamed, or of an unknown kind
├── TargetError    a target that does not import, does not exist or cannot be built
├── TraceError     the model's own code raised while it ran on fake tensors
├── ConfigError    settings in pyproject.toml that are unknown or of a wrong kind
├── EnforceError   a package or an annotation that cannot be enforced
├── OutputError    a report that cannot be written
├── FormatError    a file that is no saved graph, or one of a newer version
└── DrawError      a drawing that cannot be written
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shapeflow.trace.result import Trace


class ShapeflowError(Exception):
    """Base of the errors that a user can cause and mend."""


class SpecError(ShapeflowError):
    """A shape spec that does not parse; the message points at the fault.

    >>> print(SpecError("B,T", 1, "axes are separated by spaces, not commas", "B T"))
    axes are separated by spaces, not commas
        B,T
         ^
    write: B T
    """

    def __init__(self, text: str, position: int, reason: str, hint: str = "") -> None:
        self.text, self.position, self.reason, self.hint = text, position, reason, hint
        lines = [reason, f"    {text}", "    " + " " * position + "^"]
        super().__init__("\n".join([*lines, f"write: {hint}"] if hint else lines))


class InputError(ShapeflowError):
    """Inputs that do not fit the model's signature."""


class TargetError(ShapeflowError):
    """A target that does not import, does not exist or cannot be built."""


class TraceError(ShapeflowError):
    """The model's own code raised. `trace` is the path up to there, `__cause__` the original error."""

    def __init__(self, message: str, *, trace: Trace | None = None) -> None:
        super().__init__(message)
        self.trace = trace


class ConfigError(ShapeflowError):
    """Settings in pyproject.toml that are unknown or of a wrong kind."""


class EnforceError(ShapeflowError):
    """A package that cannot be enforced any more, or an annotation that cannot be read."""


class OutputError(ShapeflowError):
    """A report that cannot be written to its file."""


class FormatError(ShapeflowError):
    """A file that is no saved graph, is damaged, or comes from a newer version."""


class DrawError(ShapeflowError):
    """A drawing that cannot be made or written."""
