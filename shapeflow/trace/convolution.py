"""The shape of a convolution, for any number of spatial axes, transposed or not.

torch's own meta rule also picks a backend, and asks for that whether the batch is below 16: no property of the
model. The formulas are those in the documentation of `torch.nn.Conv2d` and `torch.nn.ConvTranspose2d`.

    >>> convolution(mode, x, weight, None, [2, 2], [3, 3], [1, 1], False, [0, 0], 1).shape
    torch.Size([B, 64, (H - 1)//2 + 1, (W - 1)//2 + 1])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from shapeflow.torch_private import demand
from shapeflow.trace.products import check_dtypes


def convolution(
    mode: Any,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[Any],
    padding: Sequence[Any],
    dilation: Sequence[Any],
    transposed: bool,
    output_padding: Sequence[Any],
    groups: int,
) -> torch.Tensor:
    """An empty output for `aten.convolution`. Raises RuntimeError for wrong channels and kernels that do not fit."""
    spatial = weight.dim() - 2
    stride, padding, dilation, output_padding = (_each(v, spatial) for v in (stride, padding, dilation, output_padding))
    check_dtypes(x, weight)
    _check_ranks(x, weight)
    _check_channels(x, weight, transposed, groups)
    reach = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
    if transposed:
        features = weight.shape[1] * groups
        sizes = [
            (size - 1) * s - 2 * p + r + extra + 1
            for size, s, p, r, extra in zip(x.shape[2:], stride, padding, reach, output_padding, strict=True)
        ]
    else:
        features = weight.shape[0]
        padded = [size + 2 * p for size, p in zip(x.shape[2:], padding, strict=True)]
        _check_kernel(padded, reach)
        sizes = [(size - r - 1) // s + 1 for size, s, r in zip(padded, stride, reach, strict=True)]
    return _like(x, (x.shape[0], features, *sizes))


def _each(values: Sequence[Any], count: int) -> Sequence[Any]:
    return list(values) * count if len(values) == 1 else values


def _check_ranks(x: torch.Tensor, weight: torch.Tensor) -> None:
    if x.dim() != weight.dim():
        raise RuntimeError(
            f"Expected {weight.dim()}D (batched) input to conv{weight.dim() - 2}d, but got input of size "
            f"{list(x.shape)}"
        )


def _check_channels(x: torch.Tensor, weight: torch.Tensor, transposed: bool, groups: int) -> None:
    expected = weight.shape[0] if transposed else weight.shape[1] * groups
    if x.shape[1] != expected:
        raise RuntimeError(
            f"Given groups={groups}, weight of size {list(weight.shape)}, expected input{list(x.shape)} to have "
            f"{expected} channels, but got {x.shape[1]} channels instead"
        )


def _check_kernel(padded: list[Any], reach: list[Any]) -> None:
    for size, r in zip(padded, reach, strict=True):
        demand(
            size >= r + 1,
            lambda: (
                f"Calculated padded input size per channel: ({' x '.join(map(str, padded))}). Kernel size: "
                f"({' x '.join(str(r + 1) for r in reach)}). Kernel size can't be greater than actual input size"
            ),
        )


def _like(x: torch.Tensor, shape: tuple[Any, ...]) -> torch.Tensor:
    """Channels-last where the input is, as torch's kernels do."""
    for size in shape:
        if isinstance(size, torch.SymInt):
            node: Any = size.node
            node.env.generic(node.size)
    output = x.new_empty(shape)
    for memory_format, rank in ((torch.channels_last, 4), (torch.channels_last_3d, 5)):
        if len(shape) == rank and not x.is_contiguous() and x.is_contiguous(memory_format=memory_format):
            return output.to(memory_format=memory_format)
    return output
