"""The losses of a run, step by step: part of its checkpoint, and a table to plot.

Nothing is appended to a file: what steps between two checkpoints gave is lost with them, and comes again.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .file import replace


@dataclass(slots=True)
class Curve:
    """Losses in nats per token: of each step's own batch, and after some steps on sequences held out."""

    losses: list[float] = field(default_factory=list)
    held_out: dict[int, float] = field(default_factory=dict)  # by the number of steps done

    def state(self) -> dict[str, Any]:
        return {"losses": list(self.losses), "held_out": dict(self.held_out)}

    def table(self) -> str:
        """CSV: numbers that read back as the same floats, nothing where there was no evaluation."""
        rows = [f"{step},{loss!r},{self.held_out.get(step, '')}" for step, loss in enumerate(self.losses, start=1)]
        return "\n".join(["step,loss,held_out", *rows, ""])

    def write(self, path: Path) -> None:
        """Replace the table in one step, as a checkpoint is."""
        replace(path, self.table().encode())
