"""Elementwise operators on contiguous tensors: broadcasting and the usual dtypes, without torch's detour over strides.

>>> compared(torch.Tensor.le)(queries, keys).shape        # (B, 1, T, 1) with (1, 1, 1, S)
torch.Size([B, 1, T, S])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from shapeflow.torch_private import new_fake

Rule = Callable[..., torch.Tensor]

NAMES = ("tanh", "sigmoid", "exp", "sqrt", "rsqrt", "sin", "cos", "neg", "relu", "pow")
MAPS = (
    *(getattr(space, name) for space in (torch, torch.Tensor) for name in NAMES),
    functional.relu,
    functional.silu,
    functional.gelu,
)
"""Functions of each element alone, of which some take a number beside the tensor."""
USUAL = {"approximate": ("none", "tanh"), "inplace": (False,)}
"""Options of theirs that change no shape."""


def compared(function: Any) -> Rule:
    """A rule for a comparison: booleans of the broadcast shape."""
    return _rule(function, torch.bool)


def combined(function: Any) -> Rule:
    """A rule for a sum, product or logical operator: the dtype stays."""
    return _rule(function, None)


def _rule(function: Any, dtype: torch.dtype | None) -> Rule:
    def run(a: Any, b: Any, **options: Any) -> torch.Tensor:
        if not options and _takes_number(a, b):
            return new_fake(a, a.shape, dtype=dtype)
        if options or not _alike(a, b):
            return function(a, b, **options)
        shape = broadcast(a.shape, b.shape)
        return function(a, b) if shape is None else new_fake(a, shape, dtype=dtype)

    return run


def mapped(function: Any) -> Rule:
    """A rule for a function of each element: as its input."""

    def run(x: Any, *numbers: Any, **options: Any) -> torch.Tensor:
        fitting = all(_takes_number(x, number) for number in (1.0, *numbers))
        if not fitting or any(value not in USUAL.get(name, ()) for name, value in options.items()):
            return function(x, *numbers, **options)
        return new_fake(x, x.shape)

    return run


def cumulated(function: Any) -> Rule:
    """A rule for a running sum: as its input, whole numbers as int64."""

    def run(x: torch.Tensor, dim: int, **options: Any) -> torch.Tensor:
        if options or not x.is_contiguous() or not -x.dim() <= dim < x.dim():
            return function(x, dim, **options)
        return new_fake(x, x.shape, dtype=None if x.is_floating_point() or x.is_complex() else torch.int64)

    return run


def _takes_number(x: Any, number: Any) -> bool:
    """A tensor with axes and a plain number that does not change its dtype."""
    if not isinstance(x, torch.Tensor) or not x.dim() or not x.is_contiguous():
        return False
    kinds = (int, float) if x.is_floating_point() else (int,) if x.dtype is torch.int64 else ()
    return type(number) in kinds


def _alike(a: Any, b: Any) -> bool:
    """Two tensors that need no promotion, on one device, dense in row-major order; one of them with axes."""
    if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)) or not (a.dim() or b.dim()):
        return False
    return a.dtype == b.dtype and a.device == b.device and a.is_contiguous() and b.is_contiguous()


def broadcast(a: Any, b: Any) -> list[Any] | None:
    """The common shape of two; None where torch has to decide, or to refuse, in its own words."""
    rank = max(len(a), len(b))
    left, right = ([1] * (rank - len(shape)) + list(shape) for shape in (a, b))
    shape = []
    for x, y in zip(left, right, strict=True):
        if is_one(x) or is_one(y):
            shape.append(y if is_one(x) else x)
        elif same(x, y):
            shape.append(x)
        else:
            return None
    return shape


def picked(x: torch.Tensor, index: Any) -> list[Any] | None:
    """The shape of `x[i, j]` with a tensor of whole numbers for each axis; None for any other index."""
    if not isinstance(index, tuple) or len(index) != x.dim() or len(index) != 2:
        return None
    if not all(isinstance(part, torch.Tensor) and part.dtype is torch.int64 and part.dim() for part in index):
        return None
    return broadcast(index[0].shape, index[1].shape)


def is_one(size: Any) -> bool:
    """The plain number 1."""
    return type(size) is int and size == 1


def same(x: Any, y: Any) -> bool:
    """The same expression: two sizes that only happen to agree are torch's to compare."""
    if type(x) is int or type(y) is int:
        return type(x) is type(y) and x == y
    return x.node.size is y.node.size
