"""Functions of torch whose own code would fix a size: their shapes are given here instead, and they stay one node.

>>> OwnRules(sizes).rules[torch.linspace](0, 1, T).shape
torch.Size([T])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from shapeflow.torch_private import pad_packed
from shapeflow.trace import elementwise, products, reshaping, rnn
from shapeflow.trace.rules import FreshSizes


class OwnRules:
    """Shape rules by function, as the model calls it."""

    def __init__(self, sizes: FreshSizes) -> None:
        self.sizes = sizes
        tensor = torch.Tensor
        self.rules: dict[Any, Callable[..., Any]] = {
            **{f: elementwise.compared(f) for f in (tensor.le, tensor.lt, tensor.ge, tensor.gt, tensor.eq, tensor.ne)},
            **{f: elementwise.combined(f) for f in (tensor.add, tensor.sub, tensor.mul, tensor.__and__, tensor.__or__)},
            **{f: elementwise.cumulated(f) for f in (tensor.cumsum, torch.cumsum)},
            tensor.__eq__: elementwise.compared(tensor.__eq__),
            **{f: elementwise.mapped(f) for f in elementwise.MAPS},
            **{f: self._reordered(f) for f in (tensor.permute, torch.permute)},
            **{f: self._swapped(f) for f in (tensor.transpose, torch.transpose)},
            **{f: self._unsqueezed(f) for f in (tensor.unsqueeze, torch.unsqueeze)},
            tensor.expand: self._expand,
            **{f: self._chunked(f) for f in (tensor.chunk, torch.chunk)},
            **rnn.RULES,
            torch.linspace: _spaced,
            torch.logspace: _spaced,
            functional.one_hot: self._one_hot,
            torch.autograd.grad: _gradients,
            functional.batch_norm: _by_name(products.batch_norm),
            functional.embedding: products.embedding,
            functional.layer_norm: products.layer_norm,
            functional.linear: products.linear,
            torch.addmm: products.addmm,
            **{
                f: products.multiplied(f) for f in (torch.matmul, tensor.matmul, tensor.__matmul__, torch.mm, tensor.mm)
            },
            torch.Tensor.view: self._view,
            torch.Tensor.__getitem__: self._getitem,
            torch.Tensor.reshape: self._reshape,
            torch.reshape: self._reshape,
            pad_packed(): self._pad_packed,
        }

    def _view(self, x: torch.Tensor, *sizes: Any, **options: Any) -> torch.Tensor:
        written = _written(sizes)
        if options or not written or not reshaping.takes(x, written):
            return x.view(*sizes, **options)
        return reshaping.view(self.sizes.env, x, written)

    def _expand(self, x: torch.Tensor, *sizes: Any, **options: Any) -> torch.Tensor:
        written = _written(sizes)
        fitting = not options and len(written) >= x.dim() and all(type(size) in (int, torch.SymInt) for size in written)
        view = reshaping.expanded(self.sizes.env, x, written) if fitting else None
        return x.expand(*sizes, **options) if view is None else view

    def _swapped(self, function: Any) -> Callable[..., torch.Tensor]:
        def run(x: torch.Tensor, *axes: Any, **options: Any) -> torch.Tensor:
            if options or len(axes) != 2 or not _are_axes(x, axes):
                return function(x, *axes, **options)
            order = list(range(x.dim()))
            order[axes[0]], order[axes[1]] = order[axes[1]], order[axes[0]]
            return reshaping.permuted(self.sizes.env, x, order)

        return run

    def _reordered(self, function: Any) -> Callable[..., torch.Tensor]:
        def run(x: torch.Tensor, *axes: Any, **options: Any) -> torch.Tensor:
            order = _written(axes)
            if options or not _are_axes(x, order) or len({axis % x.dim() for axis in order}) != x.dim():
                return function(x, *axes, **options)
            return reshaping.permuted(self.sizes.env, x, order)

        return run

    def _chunked(self, function: Any) -> Callable[..., Any]:
        def run(x: torch.Tensor, chunks: Any, dim: int = 0, **options: Any) -> Any:
            parts = None if options else reshaping.chunked(self.sizes.env, x, chunks, dim)
            return function(x, chunks, dim, **options) if parts is None else parts

        return run

    def _unsqueezed(self, function: Any) -> Callable[..., torch.Tensor]:
        def run(x: torch.Tensor, *axes: Any, **options: Any) -> torch.Tensor:
            if options or len(axes) != 1 or type(axes[0]) is not int or not -x.dim() <= axes[0] + 1 <= x.dim() + 1:
                return function(x, *axes, **options)
            index = (*[slice(None)] * (axes[0] % (x.dim() + 1)), None)
            return reshaping.with_axes(self.sizes.env, x, index)

        return run

    def _getitem(self, x: torch.Tensor, index: Any) -> torch.Tensor:
        if reshaping.only_adds_axes(x, index):
            return reshaping.with_axes(self.sizes.env, x, index)
        shape = elementwise.picked(x, index)
        return x[index] if shape is None else x.new_empty(shape)

    def _reshape(self, x: torch.Tensor, *sizes: Any, **options: Any) -> torch.Tensor:
        written = _written(sizes)
        if options or not written or not reshaping.takes(x, written):
            return x.reshape(*sizes, **options)
        return reshaping.view(self.sizes.env, x, written)

    def _one_hot(self, tensor: torch.Tensor, num_classes: Any = -1) -> torch.Tensor:
        """Without a class count it is a matter of values."""
        counted = not isinstance(num_classes, torch.SymInt) and num_classes < 0
        classes = self.sizes.count("one_hot", None) if counted else num_classes
        return tensor.new_empty((*tensor.shape, classes), dtype=torch.int64)

    def _pad_packed(self, data: torch.Tensor, batch_sizes: Any, first: bool, value: float, total: int) -> Any:
        packed = vars(batch_sizes).get("_packed")
        batch, steps = packed or (self.sizes.count("pad_packed_sequence", None), batch_sizes.shape[0])
        steps = steps if type(total) is int and total <= 0 else total
        sizes = (batch, steps) if first else (steps, batch)
        return data.new_empty((*sizes, *data.shape[1:])), batch_sizes.new_empty((batch,))


def _written(numbers: tuple[Any, ...]) -> Any:
    """The numbers of `view(b, t)` or `view((b, t))`."""
    return numbers[0] if len(numbers) == 1 and isinstance(numbers[0], tuple | list) else numbers


def _are_axes(x: torch.Tensor, numbers: Any) -> bool:
    return all(type(axis) is int and -x.dim() <= axis < x.dim() for axis in numbers)


def _gradients(outputs: Any, inputs: Any, *_: Any, **__: Any) -> tuple[torch.Tensor, ...]:
    """As the inputs: forces and scores are gradients that a forward takes. Traces run without autograd."""
    return tuple(torch.empty_like(each) for each in ([inputs] if isinstance(inputs, torch.Tensor) else inputs))


def _by_name(rule: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """`F.batch_norm` is called with `training=`, `momentum=`, `eps=`; only the first matters here."""

    def run(*args: Any, momentum: float = 0.1, eps: float = 1e-5, **named: Any) -> torch.Tensor:
        return rule(*args, **named)

    return run


def _spaced(start: Any, end: Any, steps: Any, base: float = 10.0, **options: Any) -> torch.Tensor:
    """`linspace` and `logspace` take the number of steps as a plain integer."""
    return torch.empty((steps,), dtype=options.get("dtype"), device=options.get("device"))
