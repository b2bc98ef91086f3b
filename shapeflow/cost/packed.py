"""Weights that are no parameters: quantised layers of torch keep theirs packed, and `parameters()` does not see them.

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

HOMES = ("torch.ao.nn.quantized.", "torch.ao.nn.intrinsic.quantized.", "torch.ao.nn.sparse.quantized.")


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
        yield from [*_unpacked(module)]


def _unpacked(module: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if callable(getattr(module, "get_weight", None)):  # recurrent layers: one dict for all of them
        yield from {**module.get_weight(), **module.get_bias()}.items()
        return
    for name in ("weight", "bias"):
        getter = getattr(module, name, None)
        tensor = getter() if callable(getter) else getter
        if isinstance(tensor, torch.Tensor) and name not in module._parameters and name not in module._buffers:
            yield name, tensor


def _getters(kind: Any) -> Any:
    inherited = (vars(base).get("weight") or vars(base).get("get_weight") for base in kind.__mro__)
    return next(filter(callable, inherited), None)
