"""How a tensor is spread over the ranks of a mesh, and what the ranks send each other.

>>> trace = sf.trace(parallelize_module(model, mesh["tp"], plan), "B T:int64")
>>> shape = trace.edges[3].shape
>>> str(shape), shape.sharding.placements, str(shape.local)
('B T d_ff', ('S(2)',), 'B T d_ff//4')
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shapeflow.dims.expr import Expr

if TYPE_CHECKING:
    from shapeflow.trace.result import Scope, Shape


MANY = 2**20
"""Parts of it are whole numbers for any usual number of ranks."""


@dataclass(frozen=True, slots=True)
class Sharding:
    """`mesh` has a name and a size for each of its dims, `placements` one text each: `S(0)`, `R`, `P(sum)`.

    `splits` are the axes that are cut, each with the number of parts and whether these are equal (in the run that was
    traced: the trace's domain then says that the number divides the size).
    """

    mesh: tuple[tuple[str, int], ...]
    placements: tuple[str, ...]
    splits: tuple[tuple[int, int, bool], ...] = ()

    def __str__(self) -> str:
        return ", ".join(f"{text} on {name}" for text, (name, _) in zip(self.placements, self.mesh, strict=True))

    def local(self, dims: Sequence[Expr]) -> tuple[Expr, ...]:
        """What the first rank holds of a tensor with these dims: parts as `torch.chunk` cuts them."""
        held = list(dims)
        for axis, parts, is_even in self.splits:
            held[axis] = held[axis] // parts if is_even else (held[axis] + (parts - 1)) // parts
        return tuple(held)


@dataclass(frozen=True, slots=True)
class Collective:
    """One message among `ranks`: `sent` is what each rank puts in, `received` what it has then."""

    operator: str  # all_reduce, all_gather_into_tensor, reduce_scatter_tensor, all_to_all_single, ...
    scopes: tuple[Scope, ...]
    sent: Shape
    received: Shape
    ranks: int

    @property
    def module(self) -> str:
        """The module that runs then, `""` for the root."""
        return self.scopes[-1].path if self.scopes else ""

    @property
    def bytes(self) -> Expr:
        """Of the larger of what each rank sends and receives."""
        return max(self.sent.bytes, self.received.bytes, key=_at_equal_sizes)


def _at_equal_sizes(size: Expr) -> int:
    """A formula as a number, to compare two that differ by the number of ranks: every name stands for many tokens."""
    return size.evaluate(dict.fromkeys(size.symbols, MANY))
