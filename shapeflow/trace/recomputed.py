"""Parts of a forward under `torch.utils.checkpoint`: nothing in them is kept, and the backward runs them again.

>>> trace._attempt.recomputed.parts
[Part(first=3, last=11, reentrant=False, arguments=(...,))]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from shapeflow.torch_private import checkpoints_seen, tree_leaves
from shapeflow.trace.traced import Record


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The records from number `first` on, `last` excluded, and the tensors that are kept for them, the arguments. A
    reentrant one runs without autograd.
    """

    first: int
    last: int
    reentrant: bool
    arguments: tuple[torch.Tensor, ...]

    def holds(self, record: Record) -> bool:
        return record.kind == "operator" and self.first <= record.number < self.last


@dataclass(slots=True)
class Recomputed:
    """The outermost parts, in the order of running; `records` are all of the trace, as they come."""

    records: list[Record]
    parts: list[Part] = field(default_factory=list)
    open: list[tuple[int, bool, tuple[torch.Tensor, ...]]] = field(default_factory=list)
    grad_enabled: bool = field(default_factory=torch.is_grad_enabled)

    @contextmanager
    def seen(self) -> Iterator[None]:
        """Note the parts that run inside; models that ask whether there are gradients hear what their caller has."""
        with checkpoints_seen(self._enter, self._leave), _gradients_told(self.grad_enabled):
            yield

    def _enter(self, reentrant: bool, arguments: Any) -> None:
        tensors = tuple(each for each in tree_leaves(arguments) if isinstance(each, torch.Tensor))
        self.open.append((len(self.records), reentrant, tensors))

    def _leave(self) -> None:
        first, reentrant, tensors = self.open.pop()
        if not self.open:
            self.parts.append(Part(first, len(self.records), reentrant, tensors))


@contextmanager
def _gradients_told(answer: bool) -> Iterator[None]:
    """A trace runs without gradients, and layers of transformers recompute only where there are some. torch's own code
    is told the truth.
    """
    real = torch.is_grad_enabled

    def is_grad_enabled() -> bool:
        asking = sys._getframe(1).f_globals.get("__name__", "")
        return real() if asking.partition(".")[0] == "torch" else answer

    torch.is_grad_enabled = is_grad_enabled
    try:
        yield
    finally:
        torch.is_grad_enabled = real
