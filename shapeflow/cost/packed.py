"""Weights that are stored in other tensors: quantised layers of torch pack theirs where `parameters()` does not look.

>>> layer = torch.ao.nn.quantized.Linear(4, 3)
>>> [(name, tuple(tensor.shape)) for name, tensor in packed_weights(layer)]
[('weight', (3, 4)), ('bias', (3,))]
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch

from shapeflow.torch_private import is_dtensor

HOMES = ("torch.ao.nn.quantized.", "torch.ao.nn.intrinsic.quantized.", "torch.ao.nn.sparse.quantized.")
COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


class Unpacked(torch.Tensor):
    """A copy that was made to be counted: nobody has to keep it."""


@cache
def is_packed(kind: Any) -> bool:
    """Whether this is a class of quantised layers of torch that keep weights of their own."""
    if not kind.__module__.startswith("torch.ao.nn."):
        return False
    return kind.__module__.startswith(HOMES) and (callable(kind.__dict__.get("weight")) or _getters(kind) is not None)


def packed_weights(module: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The names that the layer had before it was quantised, and the tensors unpacked."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces another package to whoever touches a quantised tensor
        yield from [(name, tensor.detach().as_subclass(Unpacked)) for name, tensor in _unpacked(module)]


def _unpacked(module: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if callable(getattr(module, "get_weight", None)):  # recurrent layers: one dict for all of them
        yield from {**module.get_weight(), **module.get_bias()}.items()
        return
    for name in ("weight", "bias"):
        getter = getattr(module, name, None)
        tensor = getter() if callable(getter) else getter
        if isinstance(tensor, torch.Tensor) and name not in module._parameters and name not in module._buffers:
            yield name, tensor


def parts_of(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The tensors that another kind of tensor keeps its numbers in: of a sparse one, and of a quantised one of torchao.

    None for a plain tensor, nor for one that is spread over ranks: that counts as a whole.
    """
    if tensor.layout is torch.sparse_coo:
        whole = tensor.coalesce()
        return [whole.indices(), whole.values()]
    if tensor.layout in COMPRESSED:
        rows = tensor.layout in (torch.sparse_csr, torch.sparse_bsr)
        places = (tensor.crow_indices, tensor.col_indices) if rows else (tensor.ccol_indices, tensor.row_indices)
        return [*(each() for each in places), tensor.values()]
    if not hasattr(tensor, "__tensor_flatten__") or is_dtensor(tensor):
        return []
    names, _ = tensor.__tensor_flatten__()  # pyright: ignore[reportAttributeAccessIssue]  # torch's protocol
    return [getattr(tensor, name) for name in names]


def _getters(kind: Any) -> Any:
    inherited = (vars(base).get("weight") or vars(base).get("get_weight") for base in kind.__mro__)
    return next(filter(callable, inherited), None)
