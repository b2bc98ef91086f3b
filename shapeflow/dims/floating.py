"""A float made of sizes: the node behind a `SymFloat`.

No shape depends on one directly, but `int(H * 0.5)` does, and a graph that replays at other sizes has to
compute `1 / math.sqrt(T)` anew: so a float keeps the formula that made it.

    >>> torch.SymInt(IntNode(env, H)) * 0.5
    0.5*H
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from shapeflow.dims.boolean import BoolNode
from shapeflow.dims.expr import Expr
from shapeflow.dims.relation import Relation
from shapeflow.dims.symnode import SymNodeBase

if TYPE_CHECKING:
    from shapeflow.dims.env import DimEnv
    from shapeflow.dims.node import IntNode

LARGEST_DENOMINATOR = 2**12
"""A float with a larger denominator is taken for a rounded number, not for a ratio of integers."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """`numerator / denominator`, both integers made of sizes, the denominator positive."""

    numerator: Expr
    denominator: Expr

    @staticmethod
    def of(numerator: Expr, denominator: Expr) -> Ratio:
        whole = numerator // denominator
        return Ratio(whole, ONE) if whole * denominator is numerator else Ratio(numerator, denominator)

    @staticmethod
    def number(number: float) -> Ratio | Call:
        """A plain number; one that is no short fraction stays a float."""
        if math.isfinite(number):
            fraction = Fraction(number)
            if fraction.denominator <= LARGEST_DENOMINATOR:
                return Ratio(Expr.const(fraction.numerator), Expr.const(fraction.denominator))
        return Call("number", (number,))

    def __str__(self) -> str:
        return str(self.numerator) if self.denominator is ONE else f"({self.numerator})/({self.denominator})"


@dataclass(frozen=True, slots=True)
class Call:
    """A float function of other floats: `sqrt`, `add`, ...; `number` holds a plain float."""

    function: str
    arguments: tuple[Any, ...]

    def __str__(self) -> str:
        if self.function == "number":
            return f"{self.arguments[0]:g}"
        return f"{self.function}({', '.join(map(str, self.arguments))})"


Formula = Ratio | Call
ONE = Expr.const(1)

FLOAT_OPERATIONS: dict[str, Callable[..., Any]] = {
    "number": float,
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "pow": operator.pow,
    "neg": operator.neg,
    "min": min,
    "max": max,
    "round": round,
    **{name: getattr(math, name) for name in ("sqrt", "log2", "log", "exp", "sin", "cos", "tanh", "ceil", "floor")},
}
"""The functions that a `Call` may name, in Python floats. The replayed graph calls the same."""


FLOAT_COMPARISONS: dict[str, Callable[[float, float], bool]] = {"==": operator.eq, "<": operator.lt, "<=": operator.le}


def of_values(formula: Any) -> bool:
    """Whether a number that only values decide is in the formula."""
    return isinstance(formula, Call) and (formula.function == "value" or any(map(of_values, formula.arguments)))


def _exact(function: str, a: Formula, b: Formula) -> Formula | None:
    """The ratio that `function` gives of two ratios, where it is one."""
    if not (isinstance(a, Ratio) and isinstance(b, Ratio)):
        return None
    if function == "mul":
        return Ratio.of(a.numerator * b.numerator, a.denominator * b.denominator)
    if function == "truediv" and b.numerator.constant != 0 and _positive(b.numerator):
        return Ratio.of(a.numerator * b.denominator, a.denominator * b.numerator)
    if function in ("add", "sub"):
        right = b.numerator * a.denominator
        left = a.numerator * b.denominator
        return Ratio.of(left + right if function == "add" else left - right, a.denominator * b.denominator)
    return None


def _positive(expr: Expr) -> bool:
    """Sure to be above zero: a sum of products of symbols with positive coefficients."""
    return bool(expr.terms) and all(c > 0 for _, c in expr.terms) and len(expr.terms) <= 3


class FloatNode(SymNodeBase):
    """A float, the formula that made it, and the run's number for it."""

    __slots__ = ("formula", "hint")
    pytype = float

    def __init__(self, env: DimEnv, formula: Formula, hint: float) -> None:
        self.env, self.formula, self.hint = env, formula, hint

    def is_float(self) -> bool:
        return True

    def str(self) -> str:
        return str(self.formula)

    def clone(self) -> FloatNode:
        return self

    def wrap_int(self, number: int) -> Any:
        return self.wrap_float(float(number))

    def call(self, function: str, *others: Any) -> FloatNode:
        """The float that a function of `FLOAT_OPERATIONS` gives."""
        nodes = [self, *(other if isinstance(other, FloatNode) else other.sym_float() for other in others)]
        hint = float(FLOAT_OPERATIONS[function](*(node.hint for node in nodes)))
        formulas = tuple(node.formula for node in nodes)
        exact = _exact(function, *formulas) if len(formulas) == 2 else None
        return FloatNode(self.env, exact or Call(function, formulas), hint)

    def add(self, other: Any) -> FloatNode:
        return self.call("add", other)

    def sub(self, other: Any) -> FloatNode:
        return self.call("sub", other)

    def mul(self, other: Any) -> FloatNode:
        return self.call("mul", other)

    def truediv(self, other: Any) -> FloatNode:
        return self.call("truediv", other)

    float_truediv = int_truediv = truediv

    def floordiv(self, other: Any) -> FloatNode:
        return self.call("floordiv", other)

    def mod(self, other: Any) -> FloatNode:
        return self.call("mod", other)

    def pow(self, other: Any) -> FloatNode:
        return self.call("pow", other)

    float_pow = pow

    def neg(self) -> FloatNode:
        return self.call("neg")

    def abs(self) -> FloatNode:
        return self if self.hint >= 0 else self.neg()

    def sym_min(self, other: Any) -> FloatNode:
        return self.call("min", other)

    def sym_max(self, other: Any) -> FloatNode:
        return self.call("max", other)

    def sym_sqrt(self) -> FloatNode:
        return self.call("sqrt")

    def sym_log2(self) -> FloatNode:
        return self.call("log2")

    def sym_exp(self) -> FloatNode:
        return self.call("exp")

    def sym_log(self) -> FloatNode:
        return self.call("log")

    def sym_sin(self) -> FloatNode:
        return self.call("sin")

    def sym_cos(self) -> FloatNode:
        return self.call("cos")

    def sym_tanh(self) -> FloatNode:
        return self.call("tanh")

    def sym_float(self) -> FloatNode:
        return self

    def round(self, ndigits: int | None = None) -> Any:
        return self.env.rounded(self, "round") if ndigits is None else self

    def floor(self) -> IntNode:
        if isinstance(self.formula, Ratio):
            return self.env.node(self.env.divide(self.formula.numerator, self.formula.denominator))
        return self.env.rounded(self, "floor")

    def ceil(self) -> IntNode:
        if isinstance(self.formula, Ratio):
            return self.env.node(-self.env.divide(-self.formula.numerator, self.formula.denominator))
        return self.env.rounded(self, "ceil")

    def trunc(self) -> IntNode:
        return self.floor() if self.hint >= 0 else self.ceil()

    sym_int = trunc

    def is_integer(self) -> BoolNode:
        return self.wrap_bool(self.hint.is_integer())

    def _compare(self, relation: str, other: Any) -> BoolNode:
        other = other if isinstance(other, FloatNode) else other.sym_float()
        a, b = self.formula, other.formula
        if isinstance(a, Ratio) and isinstance(b, Ratio):
            exact = Relation.between(a.numerator * b.denominator, relation, b.numerator * a.denominator)
            return BoolNode(self.env, exact)
        if self.env.unknown is not None:
            return self.wrap_bool(self.env.unknown(self, relation, other))
        return self.wrap_bool(FLOAT_COMPARISONS[relation](self.hint, other.hint))

    def eq(self, other: Any) -> BoolNode:
        return self._compare("==", other)

    def ne(self, other: Any) -> BoolNode:
        return self._compare("==", other).sym_not()

    def lt(self, other: Any) -> BoolNode:
        return self._compare("<", other)

    def le(self, other: Any) -> BoolNode:
        return self._compare("<=", other)

    def gt(self, other: Any) -> BoolNode:
        return self._compare("<=", other).sym_not()

    def ge(self, other: Any) -> BoolNode:
        return self._compare("<", other).sym_not()

    def guard_float(self, file: str, line: int) -> float:
        """The plain float: from here on the formula is lost, so the environment is told."""
        self.env.lose(self)
        return self.hint

    def bool_(self) -> bool:
        return self.hint != 0
