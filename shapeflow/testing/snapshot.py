"""Snapshots of shape traces: the trace of a model as a text file beside the test, compared at each run.

>>> def test_gpt(shape_trace):
...     shape_trace.assert_unchanged(gpt, "B T:int64")

`pytest --shapeflow-update` writes the files anew; they belong into version control.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

FOLDER = "__shapes__"
LONGEST = 120
"""Letters of a file's name."""


@dataclass(frozen=True)
class Taken:
    """A trace as text, to be compared with its snapshot."""

    shape_trace: ShapeTrace
    text: str

    def assert_unchanged(self, *, name: str | None = None) -> None:
        """It is what it was when the snapshot was written. `name` tells several snapshots of one test apart."""
        __tracebackhide__ = True
        file = self.shape_trace.file(name)
        before = file.read_text(encoding="utf-8") if file.is_file() else None
        if before == self.text:
            return
        if self.shape_trace.update:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self.text, encoding="utf-8")
            self.shape_trace.written.append(file)
        elif before is None:
            raise AssertionError(f"there is no snapshot {_short(file)}: write it with pytest --shapeflow-update")
        else:
            raise AssertionError(
                f"the shapes are not those of {_short(file)} (-), but (+):\n{_difference(before, self.text)}\n"
                "if they are right, write them with pytest --shapeflow-update"
            )

    def __str__(self) -> str:
        return self.text


class ShapeTrace:
    """The snapshots of one test, in `__shapes__/<file>/<test>.txt`; the second one of a test has `-2` in its name.

    As a callable it gives the trace of one model: `shape_trace(gpt, "B T:int64").assert_unchanged()`.
    """

    def __init__(self, folder: Path, test: str, *, update: bool = False) -> None:
        self.folder, self.test, self.update = folder, _file_name(test), update
        self.written: list[Path] = []
        self._count = 0

    def __call__(self, module: Any, *inputs: Any, depth: int | None = None, **named: Any) -> Taken:
        """Trace a model; inputs are those of `sf.trace`. `depth` leaves out what lies deeper in the module tree."""
        from shapeflow.draw.text import render_text
        from shapeflow.trace.tracer import trace

        traced = trace(module, *inputs, **named)
        return Taken(self, render_text(traced.to_networkx(), depth=depth).rstrip() + "\n")

    def assert_unchanged(
        self, module: Any, *inputs: Any, depth: int | None = None, name: str | None = None, **named: Any
    ) -> None:
        """The trace of a model is what it was when the snapshot was written."""
        __tracebackhide__ = True
        self(module, *inputs, depth=depth, **named).assert_unchanged(name=name)

    def file(self, name: str | None = None) -> Path:
        """The next snapshot of this test."""
        self._count += name is None
        ending = f"-{name}" if name else f"-{self._count}" if self._count > 1 else ""
        return self.folder / f"{self.test}{ending}.txt"


def _file_name(test: str) -> str:
    """A test's name without what a file's may not hold; parameters may be longer than file systems take."""
    name = re.sub(r"[^\w.=-]+", "-", test).strip("-")
    return name if len(name) <= LONGEST else f"{name[:LONGEST]}-{sha256(test.encode()).hexdigest()[:8]}"


def _difference(before: str, after: str) -> str:
    """The lines that differ, with two around them."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=2, lineterm="")
    return "\n".join(line for line in lines if not line.startswith(("---", "+++")))


def _short(file: Path) -> str:
    return str(file.relative_to(Path.cwd())) if file.is_relative_to(Path.cwd()) else str(file)
