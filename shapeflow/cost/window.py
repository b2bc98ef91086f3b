"""How many positions an attention reads, where a window bounds them: the last w, the query's own among them.

A window is a slice of what is kept, `keys[:, :, -w:]`, or a part of the mask: positions whose distance is compared with
a number (`keys > queries - w`), a diagonal of `tril` and `triu`, a band in a buffer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from shapeflow.cost.attention import LARGEST, ORDERS, Attention, Lineage
from shapeflow.cost.calls import Call, expr_of, root_of
from shapeflow.dims.expr import Expr, minimum

STRICT = frozenset({"lt", "less", "ge", "greater_equal"})
"""With a distance on the left these part c - 1 from c; the others part c from c + 1."""


def sizes_in_window(call: Call, index: int) -> list[Expr]:
    """Sizes of what a call makes: `x[-w:]` has `min(T, w)` of T rows, also where the traced run had fewer."""
    sizes = [expr_of(size) for size in call.makes[index].shape]
    if call.record.operator != "getitem" or not call.reads:
        return sizes
    before = [expr_of(size) for size in call.reads[0].shape]
    parts = call.args[1] if isinstance(call.args[1], tuple) else (call.args[1],)
    if len(sizes) != len(before) or any(isinstance(part, torch.Tensor | int) or part is None for part in parts):
        return sizes
    missing = len(before) - sum(part is not Ellipsis for part in parts)
    axis = 0
    for part in parts:
        if part is Ellipsis:
            axis += missing
            continue
        if type(part.start) is int and part.start < 0 and part.stop is None and part.step in (None, 1):
            sizes[axis] = minimum(before[axis], -part.start)
        axis += 1
    return sizes


def window(lineage: Lineage, attention: Attention) -> int | None:
    """The most positions that a query reads by its mask; None where there is no such bound."""
    found: set[int] = set()
    for call in lineage.behind(attention.masked):
        found.update(_of_diagonal(call))
        found.update(_of_comparison(lineage, call))
        found.update(width for tensor in call.reads if (width := _of_band(tensor)) is not None)
    return min(found, default=None)


# Masks


def _of_diagonal(call: Call) -> Iterator[int]:
    """`triu(mask, -3)` keeps distances up to 3; `tril(mask, -4)` has those from 4 on, which a window leaves out."""
    if call.record.operator not in ("tril", "triu", "tril_", "triu_"):
        return
    diagonal = call.kwargs.get("diagonal", call.args[1] if len(call.args) > 1 else 0)
    if type(diagonal) is int and diagonal < 0:
        yield -diagonal if call.record.operator.startswith("tril") else 1 - diagonal


def _of_band(tensor: torch.Tensor) -> int | None:
    """The width of a band below the diagonal, in a buffer or a constant."""
    real: Any = root_of(tensor).real
    if real is None or real.dim() < 2 or real.device.type == "meta" or not 1 < real.numel() <= LARGEST:
        return None
    if real.dtype != torch.bool or real.shape[-1] != real.shape[-2]:
        return None
    flat = real.reshape(-1, *real.shape[-2:])[0]
    widest = int(flat.sum(-1).max())
    return widest if bool((flat.tril() == flat).all()) and 0 < widest < flat.shape[-1] else None


@dataclass(frozen=True, slots=True)
class Line:
    """So many times the query's position, so many times the key's, and a number."""

    query: int
    key: int
    number: int

    def plus(self, other: Line, times: int) -> Line:
        return Line(self.query + times * other.query, self.key + times * other.key, self.number + times * other.number)


def _of_comparison(lineage: Lineage, call: Call) -> Iterator[int]:
    """`query - key < w`, in whatever way it is written, allowed or left out."""
    if call.record.operator not in ORDERS or len(call.args) < 2:
        return
    left, right = (_line(lineage, call, argument) for argument in call.args[:2])
    if left is None or right is None:
        return
    line = left.plus(right, -1)
    if (line.query, line.key) not in ((1, -1), (-1, 1)):
        return
    distance = -line.number * line.query  # the distance that it is compared with
    is_strict = (call.record.operator in STRICT) == (line.query == 1)
    if distance > 0:
        yield distance if is_strict else distance + 1


def _line(lineage: Lineage, call: Call, argument: Any) -> Line | None:
    if type(argument) is int:
        return Line(0, 0, argument)
    maker = lineage.maker(call, argument) if isinstance(argument, torch.Tensor) else None
    if maker is None:
        return None
    name = maker.record.operator
    if name in ("add", "sub", "rsub", "radd") and len(maker.args) > 1:
        first, second = (_line(lineage, maker, each) for each in maker.args[:2])
        if first is None or second is None:
            return None
        return second.plus(first, -1) if name == "rsub" else first.plus(second, -1 if name == "sub" else 1)
    return _position(lineage, maker, argument)


def _position(lineage: Lineage, call: Call, tensor: torch.Tensor) -> Line | None:
    """Positions along the last axis are the keys'; those along another one the queries'."""
    number = 0
    while call.record.operator != "arange":
        above = [maker for maker in lineage.makers(call) if maker is not None]
        if len(above) != 1:
            return None
        if call.record.operator in ("add", "sub") and type(call.args[1]) is int:
            number += call.args[1] if call.record.operator == "add" else -call.args[1]
        call = above[0]
    is_key = tensor.shape[-1] != 1
    return Line(0, 1, number) if is_key else Line(1, 0, number)
