"""Matrix products, tables and norms on their usual inputs: plain shapes, one dtype, no autocast.

The words of the errors are those of the real kernels, with the sizes in names:
`mat1 and mat2 shapes cannot be multiplied (B*Tx490 and 10x5)`. Anything unusual is left to torch's own rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from shapeflow.torch_private import demand, new_fake

DTYPES = {
    torch.int64: "Long",
    torch.int32: "Int",
    torch.bool: "Bool",
    torch.float16: "Half",
    torch.bfloat16: "BFloat16",
    torch.float32: "Float",
    torch.float64: "Double",
}
"""What torch's own errors call them."""


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """`(..., in)` times `(out, in)`."""
    check_dtypes(x, weight)
    if x.dim() < 2 or weight.dim() != 2 or not _plain(x, weight, bias):
        return functional.linear(x, weight, bias)
    rows = math.prod(x.shape[:-1])
    _check(x.shape[-1] == weight.shape[1], (rows, x.shape[-1]), (weight.shape[1], weight.shape[0]))
    return new_fake(x, (*x.shape[:-1], weight.shape[0]))


def multiplied(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """`function` itself, where both factors have one dtype: a fake product takes any two, no real one does."""

    def run(a: torch.Tensor, b: torch.Tensor, **options: Any) -> torch.Tensor:
        check_dtypes(a, b)
        return function(a, b, **options)

    return run


def check_dtypes(a: Any, b: Any) -> None:
    """Raise what a real kernel does about factors of two dtypes, unless autocast makes them one."""
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor) or a.dtype is b.dtype:
        return
    if not any(torch.is_autocast_enabled(each.device.type) for each in (a, b)):
        one, other = (DTYPES.get(each.dtype, str(each.dtype).removeprefix("torch.")) for each in (a, b))
        raise RuntimeError(f"mat1 and mat2 must have the same dtype, but got {one} and {other}")


def addmm(bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor, **options: Any) -> torch.Tensor:
    """`(n, k)` times `(k, m)` plus a vector of m."""
    if options or a.dim() != 2 or b.dim() != 2 or bias.dim() != 1 or not _plain(a, b, bias):
        return torch.addmm(bias, a, b, **options)
    if bias.shape[0] != b.shape[1]:
        return torch.addmm(bias, a, b)
    _check(a.shape[1] == b.shape[0], a.shape, b.shape)
    return new_fake(a, (a.shape[0], b.shape[1]))


def embedding(
    ids: torch.Tensor,
    weight: torch.Tensor,
    padding_idx: int | None = None,
    max_norm: Any = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> torch.Tensor:
    """Rows of a table `(rows, d)`: `(..., d)`."""
    usual = weight.dim() == 2 and ids.dtype is torch.int64 and ids.device == weight.device
    if not usual or padding_idx is not None or max_norm is not None:
        return functional.embedding(ids, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
    return new_fake(weight, (*ids.shape, weight.shape[1]))


def layer_norm(
    x: torch.Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> torch.Tensor:
    """As its input, where the last axes are those of the norm."""
    last = tuple(x.shape[x.dim() - len(normalized_shape) :])
    if not _plain(x, weight, bias) or not x.is_contiguous() or last != tuple(normalized_shape):
        return functional.layer_norm(x, normalized_shape, weight, bias, eps)
    return new_fake(x, x.shape)


def batch_norm(
    x: torch.Tensor, mean: Any, var: Any, weight: Any = None, bias: Any = None, training: bool = False, *rest: Any
) -> torch.Tensor:
    """As its input, in evaluation; training needs torch's check of the batch."""
    if training or x.shape[1] != mean.shape[0]:
        return functional.batch_norm(x, mean, var, weight, bias, training, *rest)
    return torch.empty_like(x)


def _plain(*tensors: torch.Tensor | None) -> bool:
    kinds = {(tensor.dtype, tensor.device.type) for tensor in tensors if tensor is not None}
    return len(kinds) == 1 and not any(torch.is_autocast_enabled(device) for _, device in kinds)


def _check(holds: Any, left: Any, right: Any) -> None:
    demand(
        holds,
        lambda: f"mat1 and mat2 shapes cannot be multiplied ({left[0]}x{left[1]} and {right[0]}x{right[1]})",
    )
