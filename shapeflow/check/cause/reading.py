"""Reads arguments: tensors, fake or real, become operands; what the tracer noted of them comes along.

>>> Reader(model).value((x, 3))
[Operand(dims=(B, T, 16), ...), 3]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from shapeflow.check.cause.call import Maker, Operand
from shapeflow.check.cause.parameters import ALIASES
from shapeflow.dims.expr import Expr
from shapeflow.torch_private import base_of
from shapeflow.trace.source import location
from shapeflow.trace.traced import Record, source_of, traced

MOST_INDICES = 4096
"""Tensors of whole numbers with more elements are not searched for their least and greatest."""


Named = Mapping[int, Operand]
"""What is known beforehand of real tensors, by `id`: names of their axes, what made them."""


class Turned:
    """A tensor whose first two axes were swapped since the code handed it over."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


class Reader:
    """Turns tensors into operands, each once."""

    def __init__(self, root: nn.Module | None, named: Named | None = None) -> None:
        self.named = named or {}
        self.names: dict[int, tuple[str, str]] = {}
        self.makers: dict[int, Maker] = {}
        if root is not None:
            self.names |= {id(each): (path, "buffer") for path, each in root.named_buffers()}
            self.names |= {id(each): (path, "parameter") for path, each in root.named_parameters()}

    def value(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.operand(value)
        if isinstance(value, Turned):
            return _turned_back(self.operand(value.tensor))
        if isinstance(value, torch.SymInt):
            return _expr(value)
        if isinstance(value, tuple | list):
            return [self.value(item) for item in value]
        if isinstance(value, slice):
            return slice(self.value(value.start), self.value(value.stop), self.value(value.step))
        return value

    def operand(self, tensor: torch.Tensor) -> Operand:
        known = traced(tensor)
        sizes = tuple(_hint(size) for size in tensor.shape)
        if known is not None:
            record, _, _ = source_of(known)
            dims, dtype = known.signature.shape.dims, known.signature.shape.dtype
            return Operand(dims, sizes, dtype, _kind(record), record.path, self.maker(record))
        if (told := self.named.get(id(tensor))) is not None:
            low, high = _bounds(tensor)
            return replace(told, low=low, high=high)
        dims = tuple(map(_expr, tensor.shape))
        path, kind = self.names.get(id(tensor), ("", "result"))
        dtype = str(tensor.dtype).removeprefix("torch.")
        low, high = _bounds(tensor)
        return Operand(dims, sizes, dtype, kind, path, self._view(tensor), high, low)

    def _view(self, tensor: torch.Tensor) -> Maker | None:
        """What a real tensor looks into: the one thing that is known of how it came about."""
        base = base_of(tensor) if type(tensor) in (torch.Tensor, nn.Parameter) else None
        if base is None:
            return None
        operator = "view" if base.numel() == tensor.numel() else "getitem"
        inputs = (self.operand(base),)  # made now: a call keeps no tensor alive
        return Maker(operator, "", "", None, ((), {}), lambda: inputs)

    def maker(self, record: Record) -> Maker | None:
        if record.kind != "operator":
            return None
        if id(record) not in self.makers:
            scope = record.scopes[-1] if record.scopes else None
            path, kind = (scope.path, scope.kind) if scope is not None else ("", "")
            args = (record.node.args, record.node.kwargs) if record.node is not None else ((), {})
            self.makers[id(record)] = Maker(
                ALIASES.get(record.operator, record.operator),
                path,
                kind,
                location(record.place),
                args,
                lambda: tuple(self._source(each) for each in record.sources),
            )
        return self.makers[id(record)]

    def _source(self, source: Any) -> Operand:
        record, _, signature = source
        dims = signature.shape.dims
        sizes = tuple(-1 if dim.value is None else dim.value for dim in dims)
        return Operand(dims, sizes, signature.shape.dtype, _kind(record), record.path, self.maker(record))


def _turned_back(operand: Operand) -> Operand:
    """The tensor as the code gave it: the input of the transpose, where that was recorded."""
    if operand.rank != 3:
        return operand
    maker = operand.maker
    if maker is not None and maker.operator == "transpose" and maker.inputs:
        return maker.inputs[0]
    (a, b, *dims), (m, n, *sizes) = operand.dims, operand.sizes
    return replace(operand, dims=(b, a, *dims), sizes=(n, m, *sizes))


def _kind(record: Record) -> str:
    return "result" if record.kind == "operator" else record.kind


def _expr(size: Any) -> Expr:
    return Expr.const(size) if isinstance(size, int) else size.node.size


def _hint(size: Any) -> int:
    return size if isinstance(size, int) else size.node.hint


def _bounds(tensor: torch.Tensor) -> tuple[int | None, int | None]:
    """The least and the greatest index of a small real tensor of whole numbers."""
    whole = not tensor.is_floating_point() and not tensor.is_complex() and tensor.dtype != torch.bool
    if not whole or tensor.is_meta or type(tensor) is not torch.Tensor or not 0 < tensor.numel() <= MOST_INDICES:
        return None, None
    return int(tensor.min()), int(tensor.max())
