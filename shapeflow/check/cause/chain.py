"""Back from a tensor to the operators that made it, along the way that its sizes came.

>>> [str(step) for step in chain(operand)]
['relu', 'conv2d in stem']
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shapeflow.check.cause.call import Dims, Maker, Operand
from shapeflow.dims.expr import Expr

FARTHEST = 24
"""Operators; what lies farther back is not to blame with any certainty."""
SEVERAL = frozenset("add radd iadd sub rsub mul rmul imul truediv div where maximum minimum lerp".split())
MERGING = frozenset(("flatten", "view", "reshape"))


@dataclass(frozen=True, slots=True)
class Step:
    """An operator, with the dims of the tensor that went on and those that came out."""

    maker: Maker
    before: Dims
    after: Dims

    def __str__(self) -> str:
        return f"{self.maker.operator} in {self.maker.path}" if self.maker.path else self.maker.operator

    @property
    def resizes(self) -> bool:
        return self.before != self.after


def chain(operand: Operand) -> Iterator[Step]:
    """The steps behind a tensor, the last first; of an operator with several inputs the greatest goes on."""
    now: Operand | None = operand
    for _ in range(FARTHEST):
        if now is None or now.maker is None:
            return
        source = _main_input(now.maker)
        yield Step(now.maker, () if source is None else source.dims, now.dims)
        now = source


def axis_before(step: Step, axis: int) -> int | None:
    """Which axis of the step's input became `axis` (both from the end); None where axes were made or merged."""
    rank = len(step.after)
    if len(step.before) != rank or step.maker.operator in MERGING:
        return None
    order = _order(step.maker, rank)
    return axis if order is None else order[rank + axis] - rank


def _order(maker: Maker, rank: int) -> list[int] | None:
    """The axes that a transpose or permute puts in place of 0, 1, 2, ..."""
    args, named = maker.args
    given = [*args[1:], *named.values()]
    if maker.operator in ("transpose", "swapaxes") and len(given) == 2:
        order = list(range(rank))
        i, j = given
        order[i], order[j] = order[j], order[i]
        return order
    if maker.operator in ("mT", "t", "T"):
        return [*range(rank - 2), rank - 1, rank - 2]
    if maker.operator != "permute":
        return None
    dims = given[0] if len(given) == 1 else given
    return [dim % rank for dim in dims]


def source_of(operand: Operand) -> Operand:
    """The tensor at the far end of the chain: an input, a table, or whatever lies too far back."""
    for _ in range(FARTHEST):
        source = None if operand.maker is None else _main_input(operand.maker)
        if source is None:
            break
        operand = source
    return operand


def _main_input(maker: Maker) -> Operand | None:
    inputs = [each for each in maker.inputs if each.kind not in ("parameter", "buffer")]
    if maker.operator == "embedding" or not inputs:
        inputs = list(maker.inputs)
    if maker.operator in SEVERAL:
        return max(inputs, key=lambda each: each.rank, default=None)
    return inputs[0] if inputs else None


def merged_from(operand: Operand) -> Dims:
    """The axes that a flatten or view joined into the last one: `(10, 7, 7)` of `(B, 490)`; () if none did."""
    step = _decisive(operand)
    return _tail(step.before, step.after[-1]) if step is not None and step.maker.operator in MERGING else ()


def joined_from(operand: Operand) -> Dims:
    """The last axes of the tensors that a cat joined along it: `(16, 24)` of `(B, 40)`; () if none did."""
    step = _decisive(operand)
    if step is None or step.maker.operator != "cat":
        return ()
    parts = tuple(each.dims[-1] for each in step.maker.inputs)
    total = Expr.const(0)
    for part in parts:
        total = total + part
    return parts if total is operand.dims[-1] else ()


def _decisive(operand: Operand) -> Step | None:
    """The step that gave the last axis its size, as far as shapes tell."""
    for step in chain(operand):
        if not step.before or not step.after:
            return None
        if step.maker.operator in MERGING or step.maker.operator == "cat" or step.before[-1] is not step.after[-1]:
            return step
    return None


def _tail(before: Dims, last: Expr) -> Dims:
    """The trailing axes whose product is `last`."""
    total = Expr.const(1)
    for count in range(1, len(before) + 1):
        total = total * before[-count]
        if total is last:
            return before[-count:] if count > 1 else ()
    return ()
