"""The SymNode protocol over `Expr`: what `torch.SymInt(node)` asks of its node.

torch carries a `SymInt` through every size and stride; each question and each sum ends in a method here.

    >>> B, T = (torch.SymInt(IntNode(env, env.symbol(name, hint=hint))) for name, hint in [("B", 3), ("T", 7)])
    >>> torch.empty(B, T, device="meta").view(B * T).shape
    torch.Size([B*T])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from shapeflow.dims import layout
from shapeflow.dims.boolean import BoolNode
from shapeflow.dims.expr import Expr, maximum, minimum
from shapeflow.dims.floating import FloatNode, Ratio
from shapeflow.dims.relation import Relation
from shapeflow.dims.symnode import SymNodeBase

if TYPE_CHECKING:
    from shapeflow.dims.env import DimEnv


class IntNode(SymNodeBase):
    """An integer size: an expression, the run's number for it, and the environment that answers for it."""

    __slots__ = ("hint", "size")
    pytype = int

    def __init__(self, env: DimEnv, size: Expr, hint: int | None = None) -> None:
        self.env = env
        self.size = size
        self.hint: int = env.hint(size) if hint is None else hint

    def is_int(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return self.size.constant is not None

    def constant_int(self) -> int | None:
        return self.size.constant

    maybe_as_int = constant_int

    def str(self) -> str:
        return str(self.size)

    def _other(self, other: Any) -> IntNode:
        if type(other) is IntNode:
            return other
        return self.wrap_int(other if isinstance(other, int) else other.maybe_as_int())

    def _new(self, size: Expr, hint: int) -> IntNode:
        return IntNode(self.env, self.env.short(size), hint)

    def add(self, other: Any) -> IntNode:
        other = self._other(other)
        return self._new(self.env.whole(self.size + other.size), self.hint + other.hint)

    def sub(self, other: Any) -> IntNode:
        other = self._other(other)
        return self._new(self.size - other.size, self.hint - other.hint)

    def mul(self, other: Any) -> IntNode:
        other = self._other(other)
        return self._new(self.env.whole(self._factor() * other._factor()), self.hint * other.hint)

    def _factor(self) -> Expr:
        """A sum of more than three terms is named before it is multiplied, so that products stay short."""
        return self.size if self.size.n_terms <= 3 else self.env.name(self.size)

    def floordiv(self, other: Any) -> IntNode:
        other = self._other(other)
        return self._new(self.env.divide(self.size, other.size), self.hint // other.hint)

    int_floordiv = floordiv

    def mod(self, other: Any) -> IntNode:
        other = self._other(other)
        return self._new(self.env.remainder(self.size, other.size), self.hint % other.hint)

    def neg(self) -> IntNode:
        return self._new(-self.size, -self.hint)

    def abs(self) -> IntNode:
        return self if self.env.decide(Relation(">=", self.size)) else self.sym_max(self.neg())

    def pow(self, other: Any) -> IntNode:
        other = self._other(other)
        return self._new(self.size ** other.guard_int("", 0), self.hint**other.hint)

    pow_by_natural = pow

    def sym_min(self, other: Any) -> IntNode:
        other = self._other(other)
        known = self.env.decide(Relation(">=", self.size - other.size))
        if known is not None:
            return other if known else self
        return self._new(minimum(self.size, other.size), min(self.hint, other.hint))

    def sym_max(self, other: Any) -> IntNode:
        other = self._other(other)
        known = self.env.decide(Relation(">=", self.size - other.size))
        if known is not None:
            return self if known else other
        return self._new(maximum(self.size, other.size), max(self.hint, other.hint))

    def sym_sum(self, nodes: Sequence[Any]) -> IntNode:
        total = self.wrap_int(0)
        for node in nodes:
            total = total.add(node)
        return total

    def truediv(self, other: Any) -> FloatNode:
        other = self._other(other)
        return FloatNode(self.env, Ratio.of(self.size, other.size), self.hint / other.hint)

    int_truediv = float_truediv = truediv

    def float_pow(self, other: Any) -> FloatNode:
        return self.sym_float().float_pow(other)

    def sym_float(self) -> FloatNode:
        return FloatNode(self.env, Ratio.of(self.size, Expr.const(1)), float(self.hint))

    def clone(self) -> IntNode:
        return self

    sym_int = floor = ceil = trunc = clone

    def round(self, ndigits: int | None = None) -> IntNode:
        return self

    def is_integer(self) -> BoolNode:
        return self.wrap_bool(True)

    def _compare(self, operator: str, other: Any) -> BoolNode:
        return BoolNode(self.env, Relation.between(self.size, operator, self._other(other).size))

    def eq(self, other: Any) -> BoolNode:
        return self._compare("==", other)

    def ne(self, other: Any) -> BoolNode:
        return self._compare("!=", other)

    def lt(self, other: Any) -> BoolNode:
        return self._compare("<", other)

    def le(self, other: Any) -> BoolNode:
        return self._compare("<=", other)

    def gt(self, other: Any) -> BoolNode:
        return self._compare(">", other)

    def ge(self, other: Any) -> BoolNode:
        return self._compare(">=", other)

    def guard_int(self, file: str, line: int) -> int:
        """The number itself: whoever asks goes on with it, so the size has to equal it."""
        value = self.size.value
        if value is not None:
            return value
        self.env.assume(Relation("==", self.size.unpinned - self.hint))
        return self.hint

    def int_(self) -> int:
        return self.guard_int("", 0)

    def bool_(self) -> bool:
        return self.ne(0).guard_bool("", 0)

    # Layout is torch's own affair, no property of the model: answered from the hints, never recorded.

    def _layout(self, question: layout.Question, sizes: Sequence[Any], strides: Sequence[Any]) -> BoolNode:
        numbers = [[self._other(size).hint for size in sequence] for sequence in (sizes, strides)]
        return self.wrap_bool(question(*numbers))

    def is_contiguous(self, sizes: Sequence[Any], strides: Sequence[Any]) -> BoolNode:
        return self._layout(layout.is_contiguous, sizes, strides)

    def is_channels_last_contiguous_2d(self, sizes: Sequence[Any], strides: Sequence[Any]) -> BoolNode:
        return self._layout(layout.is_channels_last_contiguous, sizes, strides)

    is_channels_last_contiguous_3d = is_channels_last_contiguous_2d

    def is_channels_last_strides_2d(self, sizes: Sequence[Any], strides: Sequence[Any]) -> BoolNode:
        return self._layout(layout.is_channels_last_strides, sizes, strides)

    is_channels_last_strides_3d = is_channels_last_strides_2d

    def is_non_overlapping_and_dense(self, sizes: Sequence[Any], strides: Sequence[Any]) -> BoolNode:
        return self._layout(layout.is_non_overlapping_and_dense, sizes, strides)

    is_non_overlapping_and_dense_indicator = is_non_overlapping_and_dense


def hint_of(number: Any) -> Any:
    """What stands for a number of the run: itself where it is a plain one."""
    return number.node.hint if isinstance(number, torch.SymInt | torch.SymFloat) else number
