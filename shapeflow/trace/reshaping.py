"""Views: `view` and `reshape` of a contiguous tensor, axes of size 1 put in or expanded, axes in another order.

Of `view`, torch's own rule walks over the axes and asks of each how it splits, which fixes sizes that need not be
fixed (`T % (T//32) == 0`); that the counts of elements agree is all that matters.

    >>> view(env, x, (B, T // 32, 32))
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from shapeflow.dims.env import DimEnv
from shapeflow.dims.expr import Expr
from shapeflow.dims.relation import Relation
from shapeflow.torch_private import restrided
from shapeflow.trace.elementwise import is_one, same
from shapeflow.trace.traced import size_key

WHOLE = (slice(None), slice(0, None))


def view(env: DimEnv, x: torch.Tensor, sizes: Sequence[Any]) -> torch.Tensor:
    """A view of a contiguous tensor. Raises RuntimeError where the counts of elements differ."""
    total = math.prod(x.shape)
    unknown = [axis for axis, size in enumerate(sizes) if type(size) is int and size == -1]
    known = math.prod(size for axis, size in enumerate(sizes) if axis not in unknown)
    if unknown:
        _check(env, total, known, sizes, exact=False)
        rest = _quotient(env, total, known)
        sizes = [rest if axis in unknown else size for axis, size in enumerate(sizes)]
    else:
        _check(env, total, known, sizes, exact=True)
    return env.quietly(restrided, x, sizes, _row_major(sizes))


def _row_major(sizes: Sequence[Any]) -> list[Any]:
    strides: list[Any] = []
    step: Any = 1
    for size in reversed(sizes):
        strides.append(step)
        step = step * size
    return strides[::-1]


def only_adds_axes(x: torch.Tensor, index: Any) -> bool:
    """Whether an index is made of `None` and `:` alone, no more than there are axes: `mask[:, None, None, :]`."""
    parts = index if isinstance(index, tuple) else (index,)
    kept = [part for part in parts if part is not None]
    return len(kept) <= x.dim() and all(type(part) is slice and part in WHOLE for part in kept)


def with_axes(env: DimEnv, x: torch.Tensor, index: Any) -> torch.Tensor:
    """The tensor with an axis of size 1 for each `None`."""
    sizes: list[Any] = list(x.shape)
    strides: list[Any] = list(x.stride())
    for axis, part in enumerate(index if isinstance(index, tuple) else (index,)):
        if part is None:
            strides.insert(axis, sizes[axis] * strides[axis] if axis < len(sizes) else 1)
            sizes.insert(axis, 1)
    return env.quietly(restrided, x, sizes, strides)


def permuted(env: DimEnv, x: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """The tensor with its axes in another order."""
    sizes, strides = x.shape, x.stride()
    return env.quietly(restrided, x, [sizes[axis] for axis in order], [strides[axis] for axis in order])


def expanded(env: DimEnv, x: torch.Tensor, written: Sequence[Any]) -> torch.Tensor | None:
    """The tensor with axes of size 1 repeated; None where torch has to decide, or to refuse, in its own words."""
    new = len(written) - x.dim()
    sizes: list[Any] = [1] * new + list(x.shape)
    strides: list[Any] = [0] * new + list(x.stride())
    for axis, size in enumerate(written):
        if (type(size) is int and size == -1 and axis >= new) or same(size, sizes[axis]):
            continue
        if not is_one(sizes[axis]) or (type(size) is int and size < 0):
            return None
        sizes[axis], strides[axis] = size, 0
    return env.quietly(restrided, x, sizes, strides)


def unflattened(x: torch.Tensor, dim: int, sizes: Sequence[Any]) -> list[Any]:
    """The sizes that `x.unflatten(dim, sizes)` asks for, as `view` takes them."""
    dim %= x.dim()
    return [*x.shape[:dim], *sizes, *x.shape[dim + 1 :]]


def chunked(env: DimEnv, x: torch.Tensor, chunks: Any, dim: int) -> tuple[torch.Tensor, ...] | None:
    """Equal parts, where the axis is known to be a multiple: `d_head//2` twice. None where it is not."""
    if type(chunks) is not int or chunks < 1 or not -x.dim() <= dim < x.dim():
        return None
    size = x.shape[dim]
    whole = Expr.const(size) if type(size) is int else size_key(size)
    if type(size) is int or not env.decide(Relation("==", whole % chunks)):
        return None
    env.facts.divisible.add((whole, Expr.const(chunks)))  # so that the parts put together are the whole again
    return torch.split(x, [size // chunks] * chunks, dim)


def _quotient(env: DimEnv, total: Any, known: Any) -> Any:
    """What -1 stands for; where names with a value stand in the way of a plain quotient, their values are put in."""
    if type(total) is int and type(known) is int:
        return total // known
    whole, part = (Expr.const(n) if type(n) is int else size_key(n) for n in (total, known))
    if (multiple := env.exact(whole, part)) is not None:
        return env.number(multiple)
    named, plain = whole // part, whole.unpinned // part.unpinned
    exact = plain * part.unpinned is whole.unpinned and named * part is not whole
    return env.number(plain if exact else named)


def takes(x: torch.Tensor, sizes: Sequence[Any]) -> bool:
    """Whether `view` can do it: a contiguous tensor with elements, and sizes of which one at most is -1."""
    numbers = all(type(size) in (int, torch.SymInt) for size in sizes)
    plain = [size for size in sizes if type(size) is int]
    return numbers and plain.count(-1) <= 1 and all(size > 0 or size == -1 for size in plain) and x.is_contiguous()


def _check(env: DimEnv, total: Any, known: Any, sizes: Sequence[Any], *, exact: bool) -> None:
    """The elements must be as many, or a multiple of what is known."""
    difference = total - known if exact else total % known
    if type(difference) is int:
        holds = difference == 0
    else:
        node: Any = difference.node
        holds = env.ask(Relation("==", node.size), demanded=True)
    if not holds:
        raise RuntimeError(f"shape '{list(sizes)}' is invalid for input of size {total}")
