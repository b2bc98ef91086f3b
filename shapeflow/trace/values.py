"""Values that a fake tensor does not have: branches, `.item()`, `nonzero`, boolean masks, `unique`, box counts.

A branch on a value is taken the way that does not raise; a number or a size that only values decide becomes a
fresh dim (`u0`, `u1`, ...). Both are noted as assumptions, and asserted or read off when the graph replays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from shapeflow.dims.env import DimEnv
from shapeflow.trace.branches import likely
from shapeflow.trace.convolution import convolution
from shapeflow.trace.source import Place, place
from shapeflow.trace.traced import traced

if TYPE_CHECKING:
    from shapeflow.trace.recorder import Recorder

aten = torch.ops.aten
FRESH_HINTS = (2, 3, 5, 7)
"""Small, so that a loop over a fresh dim is short; different, so that two fresh dims rarely pass for one."""

MOST_VISITS = 2000
"""A branch on a value that is asked more often is taken the other way."""


@dataclass(frozen=True, slots=True)
class Assumption:
    """What the trace took a value to be: `isfinite(...).all() is True`."""

    text: str
    answer: Any
    place: Place | None


class ValueReader:
    """Answers Python's questions about a tensor's value, and gives value-dependent operators their sizes.

    `flips` are the branches (by code and line) that an earlier attempt found to raise when taken the likely way.
    """

    recorder: Recorder

    def __init__(self, env: DimEnv, flips: dict[Place, bool]) -> None:
        self.env, self.flips = env, flips
        self.assumptions: list[Assumption] = []
        self.taken: list[tuple[Place, bool]] = []
        self._visits: Counter[Place] = Counter()
        self.readers: dict[str, Callable[..., Any]] = {
            "item": self._item,
            "__bool__": self._bool,
            "is_nonzero": self._bool,
            "__int__": self._int,
            "__index__": self._index,
            "__format__": self._format,
            "__float__": self._float,
            "tolist": self._tolist,
            "equal": self._comparison,
            "allclose": self._comparison,
            "numpy": self._numpy,
            "__array__": self._numpy,
            "__len__": self._len,
        }
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

    # Questions from Python

    def _known(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The real tensor behind a constant, a parameter or a buffer that was not written to."""
        constant = getattr(tensor, "constant", None)
        note = traced(tensor)
        real = constant if constant is not None else note.real if note is not None else None
        if real is None or real.device.type == "meta" or (note is not None and note.root.writer is not None):
            return None
        return real

    def _real(self, func: Any, args: Any, kwargs: Any, answer: Callable[[], Any]) -> Any:
        (tensor,) = self.recorder.admit(args[:1])
        real = self._known(tensor)
        if real is not None:
            from shapeflow.torch_private import without_modes

            with without_modes():
                return func(real, *args[1:], **kwargs)
        return answer()

    def _bool(self, func: Any, args: Any, kwargs: Any) -> bool:
        return self._real(func, args, kwargs, lambda: self._branch(func, args, kwargs))

    def _comparison(self, func: Any, args: Any, kwargs: Any) -> bool:
        return self._branch(func, args, kwargs)

    def _branch(self, func: Any, args: Any, kwargs: Any) -> bool:
        """The side of a branch to take: the one found by an earlier attempt, else the one that is likely not to raise."""
        where = place(4)
        args = self.recorder.admit(args)
        answer = self.flips.get(where) if where is not None else None
        if answer is None:
            answer = likely(where, self._subject(func, args))
        if where is not None:
            self.taken.append((where, answer))
            self._visits[where] += 1
            if self._visits[where] > MOST_VISITS:  # a loop that this answer never ends
                answer = not answer
        self._assume(func, args, kwargs, answer, where)
        return answer

    def _subject(self, func: Any, args: Any) -> str:
        note = traced(args[0]) if isinstance(args[0], torch.Tensor) else None
        return note.record.operator if note is not None and func.__name__ in ("__bool__", "is_nonzero") else func.__name__

    def _assume(self, func: Any, args: Any, kwargs: Any, answer: Any, where: Place | None) -> None:
        text = f"{self._subject(func, args)}(...) is {answer}"
        writer = self.recorder.writer
        node = writer.call(bool, args, {}) if func.__name__ == "__bool__" else writer.call(func, args, kwargs)
        writer.expect(node, answer, text)
        self.assumptions.append(Assumption(text, answer, where))

    def _item(self, func: Any, args: Any, kwargs: Any) -> Any:
        return self._real(func, args, kwargs, lambda: self._fresh_number(args[0], place(5)))

    def _fresh_number(self, tensor: torch.Tensor, where: Place | None) -> Any:
        """The number in a tensor: a fresh dim for integers, an unknown float otherwise."""
        recorder = self.recorder
        (tensor,) = recorder.admit((tensor,))
        note = traced(tensor)
        if note is not None and note.value is not None:
            return note.value
        if tensor.dtype is torch.bool:
            return self._branch(torch.Tensor.__bool__, (tensor,), {})
        node = recorder.writer.graph.call_method("item", (recorder.writer.tensor(tensor),))
        if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
            return torch.SymFloat(recorder.writer.unknown(node))
        return torch.SymInt(self.env.node(self._fresh("item", reader=lambda: node, low=-(2**62))))

    def _int(self, func: Any, args: Any, kwargs: Any) -> int:
        return self._real(func, args, kwargs, lambda: int(self._fresh_number(args[0], place(5))))

    def _index(self, func: Any, args: Any, kwargs: Any) -> int:
        """`layers[i]` with an unknown i: a low one, which most sequences have."""
        return self._real(func, args, kwargs, lambda: self._certain(args[0], 1))

    def _format(self, func: Any, args: Any, kwargs: Any) -> str:
        """`f"expert_{i}"` with an unknown i: the first."""
        tensor = args[0]
        if tensor.dim() or tensor.dtype.is_floating_point:
            return func(*args, **kwargs)
        return self._real(func, args, kwargs, lambda: format(self._certain(tensor, 0), *args[1:]))

    def _certain(self, tensor: torch.Tensor, number: int) -> int:
        """The number in a tensor, taken as `number` where it is not made of sizes: Python wants it here and now."""
        (tensor,) = self.recorder.admit((tensor,))
        note = traced(tensor)
        if note is not None and note.value is not None:
            return int(note.value)
        where = place(6)
        self._assume(torch.Tensor.item, (tensor,), {}, number, where)
        return number

    def _float(self, func: Any, args: Any, kwargs: Any) -> float:
        return self._real(func, args, kwargs, lambda: float(_hint(self._fresh_number(args[0], place(5)))))

    def _tolist(self, func: Any, args: Any, kwargs: Any) -> Any:
        def answer() -> Any:
            tensor = args[0]
            with self.recorder:
                if tensor.dim() == 0:
                    return tensor.item()
                return [item.tolist() for item in tensor.unbind(0)]

        return self._real(func, args, kwargs, answer)

    def _numpy(self, func: Any, args: Any, kwargs: Any) -> Any:
        def answer() -> Any:
            raise RuntimeError("the forward turns a tensor into a numpy array, and a traced tensor has no values")

        return self._real(func, args, kwargs, answer)

    def _len(self, func: Any, args: Any, kwargs: Any) -> int:
        return int(args[0].shape[0])

    # Operators whose output size is a matter of values

    def _fresh(self, origin: str, *, numel: Any = None, reader: Any = None, low: int = 0) -> Any:
        hint = FRESH_HINTS[len(self.env.fresh) % len(FRESH_HINTS)]
        if numel is not None:
            hint = max(min(hint, _hint(numel)), 1)
        expr = self.env.fresh_symbol("u", hint=hint, origin=origin, low=low)
        if reader is not None:
            (symbol,) = expr.symbols
            self.recorder.writer.source(symbol, reader)
        return expr

    def _rows(self, mask: torch.Tensor, origin: str) -> torch.SymInt:
        """The number of true elements: the same dim each time the same mask is used."""
        note = traced(mask)
        if note is not None and note.rows is not None:
            return note.rows
        rows = torch.SymInt(self.env.node(self._fresh(origin, numel=mask.numel())))
        if note is not None:
            note.rows = rows
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

    def _count(self, origin: str, numel: Any) -> torch.SymInt:
        return torch.SymInt(self.env.node(self._fresh(origin, numel=numel)))

    def _unique(
        self, mode: Any, tensor: torch.Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
    ) -> tuple[torch.Tensor, ...]:
        return self._unique_of(tensor, self._count("unique", tensor.numel()), return_inverse, return_counts)

    def _unique_dim(
        self,
        mode: Any,
        tensor: torch.Tensor,
        dim: int,
        sorted: bool = True,
        return_inverse: bool = False,
        return_counts: bool = False,
    ) -> tuple[torch.Tensor, ...]:
        count = self._count("unique", tensor.shape[dim])
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
        return self._unique_of(tensor, self._count("unique", tensor.numel()), return_inverse, return_counts)

    def _repeat_interleave(self, mode: Any, repeats: torch.Tensor, output_size: Any = None) -> torch.Tensor:
        return repeats.new_empty((self._count("repeat_interleave", None) if output_size is None else output_size,))

    def _bincount(self, mode: Any, tensor: torch.Tensor, weights: Any = None, minlength: int = 0) -> torch.Tensor:
        dtype = torch.int64 if weights is None else torch.float64
        return tensor.new_empty((self._count("bincount", None),), dtype=dtype)

    def _nms(self, mode: Any, boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> torch.Tensor:
        return boxes.new_empty((self._count("nms", boxes.shape[0]),), dtype=torch.int64)

    def _pack(self, mode: Any, padded: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> Any:
        steps = padded.shape[1 if batch_first else 0]
        total = self._count("pack_padded_sequence", padded.shape[0] * padded.shape[1])
        return padded.new_empty((total, *padded.shape[2:])), lengths.new_empty((steps,), dtype=torch.int64, device="cpu")

    def _scalar(self, mode: Any, tensor: torch.Tensor) -> Any:
        """A number that torch itself reads inside an operator: `one_hot` without a class count, a size in a tensor."""
        note = traced(tensor)
        if note is not None and note.value is not None:
            return note.value
        if tensor.dtype.is_floating_point:
            return 1.0
        if tensor.dtype is torch.bool:
            return True
        return torch.SymInt(self.env.node(self._fresh("item")))


def grouped_mm(
    mode: Any, a: torch.Tensor, b: torch.Tensor, offs: Any = None, bias: Any = None, out_dtype: Any = None
) -> torch.Tensor:
    """Matrix products of groups of rows (or columns), as in a mixture of experts: torch's meta rule asks for bfloat16."""
    if a.shape[-1] != b.shape[-2]:
        raise RuntimeError(f"contraction dimension of mat_a and mat_b must match, got {list(a.shape)} and {list(b.shape)}")
    groups = [offs.shape[0]] if a.dim() == b.dim() == 2 and offs is not None else [a.shape[0]] if a.dim() == b.dim() == 3 else []
    return a.new_empty((*groups, a.shape[-2], b.shape[-1]), dtype=out_dtype)


def _hint(number: Any) -> Any:
    return number.node.hint if isinstance(number, torch.SymInt | torch.SymFloat) else number
