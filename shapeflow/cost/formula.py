"""A count as a formula that reads as people write it: names in the order in which they were asked for.

>>> str(Formula(4 * d_model**2 + 2 * d_ff * d_model + d_ff, ("d_model", "d_ff")))
'4*d_model^2 + 2*d_model*d_ff + d_ff'

`Expr` sorts names by the alphabet, which puts `d_ff` before `d_model`. `at(d_model=512, d_ff=2048)` is a number.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

from shapeflow.dims.atoms import Symbol, symbols_in
from shapeflow.dims.expr import Expr

MARK = "zz{number:03d}zz"


@dataclass(frozen=True, slots=True, eq=False)
class Formula:
    """`expr` divided by `divisor` (which goes into it for all sizes), and the order of its names.

    A name that only says how often, `counting`, is written before what it counts: `n_layers*(12*d^2 + 9*d) + 100*d`.
    """

    expr: Expr
    names: tuple[str, ...] = ()
    divisor: int = 1
    counting: str = ""

    def at(self, **sizes: int) -> int:
        """The number at these sizes. Raises InputError where one is missing."""
        return self.expr.at(**sizes) // self.divisor

    @property
    def symbols(self) -> frozenset[Symbol]:
        return self.expr.symbols

    def __str__(self) -> str:
        text = self._counted() or _ordered(self.expr, self.names)
        if self.divisor == 1:
            return text
        return f"({text})/{self.divisor}" if len(self.expr.terms) > 1 else f"{text}/{self.divisor}"

    __repr__ = __str__

    def _counted(self) -> str:
        """`n_layers*(...) + ...`, where several terms are counted."""
        (symbol,) = Expr.symbol(self.counting).symbols if self.counting else (None,)
        counted = {monomial: times for monomial, times in self.expr.terms if (symbol, 1) in monomial}
        rising = {monomial for monomial, _ in self.expr.terms if symbol in symbols_in(atom for atom, _ in monomial)}
        if len(counted) < 2 or rising != counted.keys() or self.divisor != 1:
            return ""
        once = {tuple(each for each in monomial if each[0] is not symbol): times for monomial, times in counted.items()}
        rest = Expr.from_terms({monomial: times for monomial, times in self.expr.terms if monomial not in counted})
        text = f"{self.counting}*({_ordered(Expr.from_terms(once), self.names)})"
        return text if rest.constant == 0 else f"{text} + {_ordered(rest, self.names)}".replace("+ -", "- ")

    def __add__(self, other: Formula | Expr | int) -> Formula:
        return self._with(other, lambda left, right: left + right)

    __radd__ = __add__

    def __sub__(self, other: Formula | Expr | int) -> Formula:
        return self._with(other, lambda left, right: left - right)

    def __rsub__(self, other: Formula | Expr | int) -> Formula:
        return self._with(other, lambda left, right: right - left)

    def __neg__(self) -> Formula:
        return Formula(-self.expr, self.names, self.divisor, self.counting)

    def __mul__(self, times: int) -> Formula:
        if not isinstance(times, int):
            return NotImplemented
        return Formula(self.expr * times, self.names, self.divisor, self.counting)

    __rmul__ = __mul__

    def _with(self, other: Any, combine: Any) -> Formula:
        if not isinstance(other, Formula | Expr | int):
            return NotImplemented
        other = other if isinstance(other, Formula) else Formula(_expr(other))
        names = self.names + tuple(name for name in other.names if name not in self.names)
        expr = combine(self.expr * other.divisor, other.expr * self.divisor)
        return reduced(expr, self.divisor * other.divisor, names, self.counting or other.counting)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Formula):
            return self.expr * other.divisor is other.expr * self.divisor
        return isinstance(other, Expr | int) and self.expr is _expr(other) * self.divisor

    def __hash__(self) -> int:
        return hash(self.expr) if self.divisor == 1 else hash((self.expr, self.divisor))


def formula(value: Formula | Expr | int, names: tuple[str, ...]) -> Any:
    """A number where the expression is one, else its Formula."""
    if isinstance(value, int):
        return value
    if isinstance(value, Formula):
        return value if value.expr.constant is None else value.expr.constant // value.divisor
    return Formula(value, names) if value.constant is None else value.constant


def reduced(expr: Expr, divisor: int, names: tuple[str, ...], counting: str = "") -> Formula:
    """The same quotient with the least divisor."""
    common = gcd(divisor, *(times for _, times in expr.terms))
    return Formula(_expr_divided(expr, common), names, divisor // common, counting)


def _expr_divided(expr: Expr, divisor: int) -> Expr:
    return expr if divisor == 1 else Expr.from_terms({monomial: times // divisor for monomial, times in expr.terms})


def _expr(value: Expr | int) -> Expr:
    return value if isinstance(value, Expr) else Expr.const(value)


def _ordered(expr: Expr, names: tuple[str, ...]) -> str:
    """Printed with stand-ins that sort as `names` do; other names come behind them."""
    order = [*names, *sorted(symbol.name for symbol in expr.symbols if symbol.name not in names)]
    marks = {name: MARK.format(number=number) for number, name in enumerate(order)}
    swapped = {symbol: Expr.symbol(marks[symbol.name]) for symbol in expr.symbols}
    text = str(expr.replace(swapped))
    for name, mark in marks.items():
        text = text.replace(mark, name)
    return text
