"""Lazy modules have no shapes before a first forward: a copy on the meta device gets them, the user's stays lazy.

>>> subject = materialised(subject, bound, hints)
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from shapeflow.dims.spec import TensorSpec
from shapeflow.errors import InputError
from shapeflow.trace.hints import Hints
from shapeflow.trace.inputs import Bound
from shapeflow.trace.structure import map_tensors

if TYPE_CHECKING:
    from shapeflow.trace.attempt import Subject


def materialised(subject: Subject, bound: Bound, hints: Hints) -> Subject:
    """The subject itself, or a copy whose lazy parameters have the shapes that these inputs give them."""
    root = subject.root
    if root is None or not any(nn.parameter.is_lazy(each) for each in [*root.parameters(), *root.buffers()]):
        return subject
    twin = _on_meta(copy.deepcopy(root))
    arguments = {name: _meta_input(name, value, hints) for name, value in bound.arguments.items()}
    try:
        with torch.no_grad():
            twin(*(arguments[name] for name in bound.positional), **{name: arguments[name] for name in bound.keyword})
    except Exception as error:  # any: it is the model's own code
        raise InputError(
            f"{subject.name} has lazy parameters, and a first forward to shape them raised {error}"
        ) from error
    return replace(subject, call=twin, root=twin)


def _on_meta(root: nn.Module) -> nn.Module:
    for module in root.modules():
        for name, parameter in module.named_parameters(recurse=False):
            grad = parameter.requires_grad
            if nn.parameter.is_lazy(parameter):
                uninitialized: Any = nn.UninitializedParameter  # torch's stubs forget `device`
                setattr(module, name, uninitialized(requires_grad=grad, device="meta"))
            else:
                setattr(module, name, nn.Parameter(parameter.to("meta"), requires_grad=grad))
        for name, buffer in module.named_buffers(recurse=False):
            unshaped: Any = nn.UninitializedBuffer
            lazy = nn.parameter.is_lazy(buffer)
            setattr(module, name, unshaped(device="meta") if lazy else buffer.to("meta"))
    return root


def _meta_input(name: str, value: Any, hints: Hints) -> Any:
    def make(spec: Any) -> torch.Tensor:
        if isinstance(spec, torch.Tensor):
            return spec.to("meta")
        sizes = [_size(hints, f"{name}_{axis}", axis, len(spec.dims), dim) for axis, dim in enumerate(spec.dims)]
        return torch.empty(sizes, dtype=getattr(torch, spec.dtype), device="meta")

    return map_tensors(value, make, at=(torch.Tensor, TensorSpec))


def _size(hints: Hints, default: str, axis: int, rank: int, dim: Any) -> int:
    def choose(symbol_name: str) -> int:
        return hints.choose(symbol_name, axis=axis, rank=rank, low=dim.low or 2, high=dim.high)

    if dim.expr is None:
        return choose(dim.name or default)
    return dim.expr.at(**{symbol.name: choose(symbol.name) for symbol in dim.expr.symbols if symbol.value is None})
