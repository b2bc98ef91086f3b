"""What Python asks of a tensor's value: `if`, `.item()`, `int()`, `.tolist()`.

A branch on a value is taken the way that does not raise, noted as an assumption, and asserted when the graph
replays; a whole number becomes a fresh dim (`u0`, `u1`, ...), read off when the graph replays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from shapeflow.dims.env import DimEnv
from shapeflow.dims.floating import FLOAT_COMPARISONS, FloatNode, of_values
from shapeflow.torch_private import without_modes
from shapeflow.trace.branches import likely
from shapeflow.trace.picks import is_about_a_pick
from shapeflow.trace.rules import FreshSizes
from shapeflow.trace.scalars import WHOLE, Scalars
from shapeflow.trace.source import Place, place
from shapeflow.trace.traced import traced

if TYPE_CHECKING:
    from shapeflow.trace.recorder import Recorder


MOST_VISITS = 2000
"""A branch on a value that is asked more often is taken the other way."""


@dataclass(frozen=True, slots=True)
class Assumption:
    """What the trace took a value to be: `isfinite(...).all() is True`."""

    text: str
    answer: Any
    place: Place | None


class ValueReader:
    """Answers Python's questions about a tensor's value.

    `flips` are the branches (by code and line) that an earlier attempt found to raise when taken the likely way.
    """

    recorder: Recorder

    def __init__(self, env: DimEnv, sizes: FreshSizes, flips: dict[Place, bool]) -> None:
        self.env, self.sizes, self.flips = env, sizes, flips
        self.scalars = Scalars(sizes)
        sizes.scalar_value = self.scalars.value
        env.unknown = self._compare
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
            "equal": self._branch,
            "allclose": self._branch,
            "numpy": self._numpy,
            "__array__": self._numpy,
            "__len__": self._len,
        }

    # Questions from Python

    def known(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The real tensor behind a constant, a parameter or a buffer that was not written to."""
        constant = getattr(tensor, "constant", None)
        note = traced(tensor)
        real = constant if constant is not None else note.real if note is not None else None
        if real is None or real.device.type == "meta" or (note is not None and note.root.writer is not None):
            return None
        return real

    def _real(self, func: Any, args: Any, kwargs: Any, answer: Callable[[], Any]) -> Any:
        (tensor,) = self.recorder.ledger.admit(args[:1])
        real = self.known(tensor)
        if real is not None:
            with without_modes():
                return func(real, *args[1:], **kwargs)
        return answer()

    def _bool(self, func: Any, args: Any, kwargs: Any) -> bool:
        return self._real(func, args, kwargs, lambda: self._branch(func, args, kwargs))

    def _branch(self, func: Any, args: Any, kwargs: Any) -> bool:
        """The side of a branch to take."""
        where = place(4)
        args = self.recorder.ledger.admit(args)
        if func.__name__ == "__bool__" and (truth := self.scalars.truth(args[0])) is not None:
            return bool(truth)
        answer = self._side(where, self._subject(func, args), is_about_a_pick=is_about_a_pick(args[0]))
        self._assume(func, args, kwargs, answer, where)
        return answer

    def _compare(self, left: FloatNode, relation: str, right: FloatNode) -> bool:
        """A comparison of floats that only values decide, or of floats of sizes that are no ratios: a branch too."""
        where = place(2)
        answer = FLOAT_COMPARISONS[relation](left.hint, right.hint)
        if of_values(left.formula) or of_values(right.formula):
            answer = self._side(where, "item")
        if self.recorder.is_spread and self.recorder.operator:  # torch weighs what ways to spread a tensor would cost
            return answer
        writer = self.recorder.writer
        sides = writer.real(left.formula), writer.real(right.formula)
        node = writer.graph.call_function(FLOAT_COMPARISONS[relation], sides)
        text = f"{left.formula} {relation} {right.formula} is {answer}"
        writer.expect(node, answer, text)
        self.assumptions.append(Assumption(text, answer, where))
        return answer

    def _side(self, where: Place | None, subject: str, *, is_about_a_pick: bool = False) -> bool:
        """What an earlier attempt found, else what is likely not to raise."""
        answer = self.flips.get(where) if where is not None else None
        if answer is None:
            answer = likely(where, subject, is_about_a_pick=is_about_a_pick)
        if where is not None:
            self.taken.append((where, answer))
            self._visits[where] += 1
            if self._visits[where] > MOST_VISITS:  # a loop that this answer never ends
                answer = not answer
        return answer

    def _subject(self, func: Any, args: Any) -> str:
        note = traced(args[0]) if isinstance(args[0], torch.Tensor) else None
        return (
            note.record.operator if note is not None and func.__name__ in ("__bool__", "is_nonzero") else func.__name__
        )

    def _assume(self, func: Any, args: Any, kwargs: Any, answer: Any, where: Place | None) -> None:
        text = f"{self._subject(func, args)}(...) is {answer}"
        writer = self.recorder.writer
        node = writer.call(bool, args, {}) if func.__name__ == "__bool__" else writer.call(func, args, kwargs)
        writer.expect(node, answer, text)
        self.assumptions.append(Assumption(text, answer, where))

    def _item(self, func: Any, args: Any, kwargs: Any) -> Any:
        return self._real(func, args, kwargs, lambda: self._fresh_number(args[0]))

    def _fresh_number(self, tensor: torch.Tensor) -> Any:
        """The number in a tensor: a fresh dim for integers, an unknown float otherwise."""
        recorder = self.recorder
        (tensor,) = recorder.ledger.admit((tensor,))
        if (known := self.scalars.value(tensor)) is not None:
            return known
        if tensor.dtype is torch.bool:
            return self._branch(torch.Tensor.__bool__, (tensor,), {})
        node = recorder.writer.graph.call_method("item", (recorder.writer.tensor(tensor),))
        if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
            unknown: Any = recorder.writer.unknown(node)
            return torch.SymFloat(unknown)
        expr = self.sizes.place("item", tensor)
        for symbol in expr.symbols & self.env.fresh.keys():  # the last of several counts is made of the others
            recorder.writer.source(symbol, lambda: node)
        return self.env.symint(expr)

    def _int(self, func: Any, args: Any, kwargs: Any) -> int:
        return self._real(func, args, kwargs, lambda: int(self._fresh_number(args[0])))

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
        (tensor,) = self.recorder.ledger.admit((tensor,))
        if (known := self.scalars.value(tensor)) is not None:
            return int(known)
        where = place(6)
        self.sizes.note(tensor)
        self._assume(torch.Tensor.item, (tensor,), {}, number, where)
        return number

    def _float(self, func: Any, args: Any, kwargs: Any) -> float:
        return self._real(func, args, kwargs, lambda: float(torch.sym_float(self._fresh_number(args[0]))))

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
            if args[0].dtype not in WHOLE:
                raise RuntimeError("the forward turns a tensor into a numpy array, and a traced tensor has no values")
            return np.array(self._tolist(func, args, kwargs), dtype=object)

        return self._real(func, args, kwargs, answer)

    def _len(self, func: Any, args: Any, kwargs: Any) -> int:
        return int(args[0].shape[0])
