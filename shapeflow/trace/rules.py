"""Operators whose output shape a fake tensor cannot tell: sizes that only values decide become fresh dims.

>>> mode = ShapeMode(FreshSizes(env, source).rules)      # what fake dispatch asks instead of torch's own rule
>>> torch.nonzero(mask).shape
torch.Size([u0, 2])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from shapeflow.dims.env import DimEnv
from shapeflow.dims.expr import Expr, product
from shapeflow.dims.node import hint_of
from shapeflow.trace.convolution import convolution
from shapeflow.trace.picks import Shared, is_about_a_pick, places, shared_out
from shapeflow.trace.source import Place, place
from shapeflow.trace.traced import traced

aten = torch.ops.aten
FRESH_HINTS = (2, 3, 5, 7)
"""Small, so that a loop over a fresh dim is short; different, so that two fresh dims rarely pass for one."""


class FreshSizes:
    """Rules by `torch.ops` overload; each gives an empty output with fresh dims where values would decide.

    `asked` counts the questions about values: an operator that asked one is never remembered. `read` are the lines
    that read a number out of a tensor; True where it is which expert a router picked, or how often it did.
    """

    def __init__(self, env: DimEnv) -> None:
        self.env = env
        self.asked = 0
        self.read: dict[Place | None, bool] = {}
        self.shares: dict[int, dict[int, Expr]] = {}
        self.scalar_value: Callable[[torch.Tensor], Any] = lambda tensor: None
        self.rules: dict[Any, Callable[..., Any]] = {
            aten.nonzero.default: self._nonzero,
            aten.masked_select.default: self._masked_select,
            aten._unique2.default: self._unique,
            aten.unique_dim.default: self._unique_dim,
            aten.unique_consecutive.default: self._unique_consecutive,
            aten.repeat_interleave.Tensor: self._repeat_interleave,
            aten.bincount.default: self._bincount,
            aten._local_scalar_dense.default: self._scalar,
            aten.item.default: self._scalar,
            aten.equal.default: lambda mode, *_: True,
            aten._pack_padded_sequence.default: self._pack,
            aten.convolution.default: convolution,
            aten._grouped_mm.default: grouped_mm,
        }
        torchvision = getattr(torch.ops, "torchvision", None)
        if torchvision is not None and hasattr(torchvision, "nms"):
            self.rules[torchvision.nms.default] = self._nms

    def fresh(
        self, origin: str, *, numel: Any = None, low: int = 0, high: int | None = None, hint: int | None = None
    ) -> Expr:
        """A new dim, at most as large as `numel` in this run."""
        self.asked += 1
        hint = FRESH_HINTS[len(self.env.fresh) % len(FRESH_HINTS)] if hint is None else hint
        if numel is not None:
            hint = max(min(hint, hint_of(numel)), 1)
        return self.env.fresh_symbol("u", hint=hint, origin=origin, low=low, high=high)

    def place(self, origin: str, tensor: torch.Tensor, hint: int | None = None) -> Expr:
        """A whole number out of a tensor: any, or a place of the axis whose places are in it."""
        self.note(tensor)
        counts = shared_out(tensor)
        if counts is not None:
            return self._share(counts)
        of = places(tensor)
        if of is None:
            return self.fresh(origin, low=-(2**62), hint=hint)
        return self.fresh(origin, low=0, high=of - 1, hint=len(self.env.fresh) % of)

    def _share(self, counts: Shared) -> Expr:
        """How often one place was picked; of the last that is asked for, what the others leave of all picks."""
        known = self.shares.setdefault(counts.record, {})
        if counts.place not in known:
            total = product(Expr.const(size) if type(size) is int else size for size in counts.picks.sizes)
            is_last = len(known) == counts.of - 1
            known[counts.place] = (
                total - sum(known.values(), Expr.const(0))
                if is_last
                else self.fresh("count", hint=self.env.hint(total) // counts.of)
            )
        return known[counts.place]

    def note(self, tensor: torch.Tensor) -> None:
        """Python reads a number out of a tensor: remember where, and whether it tells who was picked."""
        self.read[place(2)] = self.read.get(place(2), False) or is_about_a_pick(tensor)

    def _rows(self, mask: torch.Tensor, origin: str) -> torch.SymInt:
        """The number of true elements: the same dim each time the same mask is used."""
        self.asked += 1
        note = traced(mask)
        if note is not None and note.rows is not None and note.rows[1] is note.root.writer:
            return note.rows[0]
        rows = self.env.symint(self.fresh(origin, numel=mask.numel()))
        if note is not None:
            note.rows = rows, note.root.writer
        return rows

    def _nonzero(self, mode: Any, tensor: torch.Tensor) -> torch.Tensor:
        rows = self._rows(tensor, "nonzero")
        return tensor.new_empty_strided((rows, tensor.dim()), (1, rows), dtype=torch.int64)

    def _masked_select(self, mode: Any, tensor: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return tensor.new_empty((self._rows(mask, "masked_select"),))

    def _unique_of(self, tensor: torch.Tensor, count: Any, inverse: bool, counts: bool) -> tuple[torch.Tensor, ...]:
        empty = tensor.new_empty((0,), dtype=torch.int64)
        return (
            tensor.new_empty((count,)),
            tensor.new_empty(tensor.shape, dtype=torch.int64) if inverse else empty,
            tensor.new_empty((count,), dtype=torch.int64) if counts else empty,
        )

    def count(self, origin: str, numel: Any) -> torch.SymInt:
        """A fresh dim as torch carries it."""
        return self.env.symint(self.fresh(origin, numel=numel))

    def _unique(
        self,
        mode: Any,
        tensor: torch.Tensor,
        sorted: bool = True,
        return_inverse: bool = False,
        return_counts: bool = False,
    ) -> tuple[torch.Tensor, ...]:
        return self._unique_of(tensor, self.count("unique", tensor.numel()), return_inverse, return_counts)

    def _unique_dim(
        self,
        mode: Any,
        tensor: torch.Tensor,
        dim: int,
        sorted: bool = True,
        return_inverse: bool = False,
        return_counts: bool = False,
    ) -> tuple[torch.Tensor, ...]:
        count = self.count("unique", tensor.shape[dim])
        sizes = [count if axis == dim % tensor.dim() else size for axis, size in enumerate(tensor.shape)]
        along = tensor.new_empty((tensor.shape[dim],), dtype=torch.int64)
        return tensor.new_empty(sizes), along, tensor.new_empty((count,), dtype=torch.int64)

    def _unique_consecutive(
        self,
        mode: Any,
        tensor: torch.Tensor,
        return_inverse: bool = False,
        return_counts: bool = False,
        dim: int | None = None,
    ) -> tuple[torch.Tensor, ...]:
        if dim is not None:
            return self._unique_dim(mode, tensor, dim)
        return self._unique_of(tensor, self.count("unique", tensor.numel()), return_inverse, return_counts)

    def _repeat_interleave(self, mode: Any, repeats: torch.Tensor, output_size: Any = None) -> torch.Tensor:
        return repeats.new_empty((self.count("repeat_interleave", None) if output_size is None else output_size,))

    def _bincount(self, mode: Any, tensor: torch.Tensor, weights: Any = None, minlength: int = 0) -> torch.Tensor:
        """As many as `minlength`, where it is given: who gives it means that there are so many kinds of values."""
        dtype = torch.int64 if weights is None else torch.float64
        size: Any = minlength
        if type(minlength) is int and minlength == 0:
            of = places(tensor)
            size = self.count("bincount", None) if of is None else self.env.symint(self.fresh("bincount", hint=of))
        return tensor.new_empty((size,), dtype=dtype)

    def _nms(self, mode: Any, boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> torch.Tensor:
        return boxes.new_empty((self.count("nms", boxes.shape[0]),), dtype=torch.int64)

    def _pack(self, mode: Any, padded: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> Any:
        steps = padded.shape[1 if batch_first else 0]
        total = self.count("pack_padded_sequence", padded.shape[0] * padded.shape[1])
        batch_sizes = lengths.new_empty((steps,), dtype=torch.int64, device="cpu")
        vars(batch_sizes)["_packed"] = padded.shape[0 if batch_first else 1], steps
        return padded.new_empty((total, *padded.shape[2:])), batch_sizes

    def _scalar(self, mode: Any, tensor: torch.Tensor) -> Any:
        """A number that torch itself reads inside an operator: `one_hot` without a class count, a size in a tensor."""
        self.asked += 1
        value = self.scalar_value(tensor)
        if value is not None:
            return value
        if tensor.dtype.is_floating_point:
            return 1.0
        if tensor.dtype is torch.bool:
            return True
        return self.env.symint(self.fresh("item"))


def grouped_mm(
    mode: Any, a: torch.Tensor, b: torch.Tensor, offs: Any = None, bias: Any = None, out_dtype: Any = None
) -> torch.Tensor:
    """Products of groups of rows (or columns), as in a mixture of experts; torch's own rule takes bfloat16 only."""
    if a.shape[-1] != b.shape[-2]:
        raise RuntimeError(f"contraction dimension of mat_a and mat_b must match: {list(a.shape)} and {list(b.shape)}")
    groups = []
    if a.dim() == b.dim():
        groups = [a.shape[0]] if a.dim() == 3 else [] if offs is None else [offs.shape[0]]
    return a.new_empty((*groups, a.shape[-2], b.shape[-1]), dtype=out_dtype)
