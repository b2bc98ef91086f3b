"""A tensor as a line of text: shape, dtype, device and a few statistics; never its values.

>>> statistics(torch.tensor([0.5, float("nan")]))
'1 of 2 NaN, min 0.5, max 0.5, mean 0.5'
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeGuard

import torch

MOST_ELEMENTS = 1 << 20
"""Larger tensors are not summed up: an error is no place to wait."""


@dataclass(frozen=True, slots=True)
class Row:
    """What is told of one tensor. `shape` has names where annotations gave them, numbers otherwise."""

    text: str
    shape: str
    dtype: str
    device: str = ""
    statistics: str = ""


def is_tensor(value: object) -> TypeGuard[torch.Tensor]:
    """Whether it is a tensor, by its type alone: a proxy may do anything when `isinstance` asks it for its class."""
    return issubclass(type(value), torch.Tensor)


def row_of(text: str, tensor: torch.Tensor, shape: str, *, device: str = "") -> Row:
    """The row of a tensor; one that was only computed for its shape lives on `meta`, and `device` is the true one."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Row(text, shape, dtype, device or str(tensor.device), statistics(tensor))


def rows_text(rows: list[Row]) -> list[str]:
    """The rows as lines, in columns."""
    cells = [(row.text, row.shape, f"{row.dtype} {row.device}".rstrip(), row.statistics) for row in rows]
    widths = [max((len(row[at]) for row in cells), default=0) for at in range(3)]
    return [
        "  ".join((*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3])).rstrip()
        for row in cells
    ]


def statistics(tensor: torch.Tensor) -> str:
    """Least, greatest, mean and what is not finite; "" where that is not cheap or there are no values.

    A device other than the CPU may have failed itself: reading from it would raise, or wait for ever.
    """
    if tensor.device.type != "cpu" or tensor.layout != torch.strided or not 0 < tensor.numel() <= MOST_ELEMENTS:
        return ""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):  # a subclass may do anything when it is read
        return ""
    try:
        with torch.no_grad():
            return _summed_up(tensor.detach())
    except (RuntimeError, NotImplementedError):  # tensors of vmap and of functorch have no values to read
        return ""


def _summed_up(tensor: torch.Tensor) -> str:
    if tensor.dtype == torch.bool:
        return f"{int(tensor.sum())} of {tensor.numel()} True"
    if tensor.is_complex() or tensor.is_quantized:
        return ""
    if not tensor.is_floating_point():
        return f"min {int(tensor.min())}, max {int(tensor.max())}"
    values = tensor.double()
    finite = values[values.isfinite()]
    parts = [
        f"{count} of {values.numel()} {what}"
        for what, count in (("NaN", int(values.isnan().sum())), ("infinite", int(values.isinf().sum())))
        if count
    ]
    if finite.numel():
        parts.append(f"min {finite.min():.3g}, max {finite.max():.3g}, mean {finite.mean():.3g}")
    return ", ".join(parts)
