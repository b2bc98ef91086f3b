"""A comparison of two sizes, kept as one difference against zero.

>>> Relation.between(Expr.symbol("T"), "<=", Expr.const(512))
T <= 512
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

from shapeflow.dims.atoms import FloorDiv, Mod, Symbol
from shapeflow.dims.expr import Expr
from shapeflow.dims.polynomial import common_monomial, divide_out

NEGATION = {"==": "!=", "!=": "==", "<=": ">", ">": "<=", ">=": "<", "<": ">="}
MIRROR = {"==": "==", "!=": "!=", ">=": "<="}


@dataclass(frozen=True, slots=True)
class Relation:
    """`difference operator 0`, with operator one of `==`, `!=`, `>=`; the others are turned into these."""

    operator: str
    difference: Expr

    @staticmethod
    def between(left: Expr, operator: str, right: Expr) -> Relation:
        """`left operator right` in the normal form."""
        if operator == "<":
            return Relation(">=", right - left - 1)
        if operator == "<=":
            return Relation(">=", right - left)
        if operator == ">":
            return Relation(">=", left - right - 1)
        return Relation(operator, left - right)

    @property
    def negated(self) -> Relation:
        """The relation that holds when this one does not."""
        if self.operator == ">=":
            return Relation(">=", -self.difference - 1)
        return Relation(NEGATION[self.operator], self.difference)

    @property
    def unpinned(self) -> Relation:
        """The same with every pinned symbol replaced by its value."""
        difference = self.difference.unpinned
        return self if difference is self.difference else Relation(self.operator, difference)

    @property
    def constant(self) -> bool | None:
        """The answer when no symbol is left."""
        number = self.difference.constant
        return None if number is None else self.holds(number)

    def holds(self, number: int) -> bool:
        """Whether the relation holds for a difference of `number`."""
        if self.operator == "==":
            return number == 0
        return number >= 0 if self.operator == ">=" else number != 0

    def within(self, low: int | None, high: int | None) -> bool | None:
        """What the bounds of the difference tell."""
        if self.operator == ">=":
            if low is not None and low >= 0:
                return True
            return False if high is not None and high < 0 else None
        away = (low is not None and low > 0) or (high is not None and high < 0)
        return (self.operator == "!=") if away else None

    def __str__(self) -> str:
        left, operator, right = self.sides()
        return f"{left} {operator} {right}"

    __repr__ = __str__

    def sides(self) -> tuple[Expr, str, Expr]:
        """The two sides as a person writes them: `T <= 512`, `H % 32 == 0`, `T == S`."""
        divided = self._as_remainder()
        if divided is not None:
            return divided, self.operator, Expr.const(0)
        left, right = _split(without_common_symbols(self.difference))
        operator = self.operator
        if left.constant is not None and right.constant is None:
            left, right, operator = right, left, MIRROR[operator]
        common = _common_factor(left, right)
        if common > 1 and operator in ("==", "!="):
            left, right = left // common, right // common
        if operator == ">=" and (shift := right.constant) is not None and left.terms:
            return _tight(left, shift)
        if operator == "<=" and (shift := right.constant) is not None:
            coefficient = _content(left)
            return left // coefficient, "<=", Expr.const(shift // coefficient)
        return left, operator, right

    def _as_remainder(self) -> Expr | None:
        """`n % k` when the difference says that `k * (n // k)` equals `n`."""
        if self.operator not in ("==", "!="):
            return None
        found = next(divisions(self.difference), None)
        return None if found is None else _plain_remainder(*found)


def divisions(difference: Expr) -> Iterator[tuple[Expr, Expr]]:
    """The `n`, `k` for which `difference == 0` says no more and no less than that `k` divides `n`."""
    difference = without_common_symbols(difference)
    difference = difference // _content(difference)  # 3*B*d_model == 3*B*n_heads*(d_model//n_heads)
    for monomial, _ in difference.terms:
        for atom, power in monomial:
            if isinstance(atom, Mod) and power == 1 and len(difference.terms) == len(monomial) == 1:
                yield atom.numerator, atom.denominator
            if isinstance(atom, FloorDiv) and power == 1:
                rest = atom.numerator - atom.denominator * Expr.from_atom(atom)
                for left in (rest - difference, rest + difference):  # rest is the remainder, from 0 to k - 1
                    if left.constant is not None and 0 <= left.constant < (atom.denominator.constant or 1):
                        yield atom.numerator - left, atom.denominator
    yield from _merged_divisions(difference)


def _merged_divisions(difference: Expr) -> Iterator[tuple[Expr, Expr]]:
    """The same where the dividend is a quotient and two divisions became one: `2*((H + 35)//64) - (H + 3)//32`."""
    for monomial, coefficient in difference.terms:
        if len(monomial) == 1 and abs(coefficient) > 1 and isinstance(monomial[0][0], FloorDiv) and monomial[0][1] == 1:
            times, quotient = abs(coefficient), Expr.from_atom(monomial[0][0])
            dividend = times * quotient - (difference if coefficient > 0 else -difference)
            if quotient in (dividend // times, (dividend + times - 1) // times):
                yield dividend, Expr.const(times)


def _plain_remainder(numerator: Expr, denominator: Expr) -> Expr:
    """`n % k` for the reader, also where arithmetic would write it as a division."""
    return Expr.from_atom(Mod(numerator, denominator))


def _split(difference: Expr) -> tuple[Expr, Expr]:
    """Terms with a positive coefficient, and the others with their sign turned."""
    positive = Expr.from_terms({monomial: c for monomial, c in difference.terms if c > 0})
    return positive, positive - difference


def without_common_symbols(difference: Expr) -> Expr:
    """`B*T - 64*B` as `T - 64`: every size is at least 1, so the relation to zero is the same."""
    shared = tuple(
        (atom, power) for atom, power in common_monomial(difference.coefficients) if isinstance(atom, Symbol)
    )
    return (
        Expr.from_terms(divide_out(difference.coefficients, shared, 1))
        if shared and difference.n_terms > 1
        else difference
    )


def _content(expr: Expr) -> int:
    """Greatest number that divides every coefficient."""
    return gcd(*(c for _, c in expr.terms)) or 1


def _common_factor(left: Expr, right: Expr) -> int:
    return gcd(_content(left) if left.terms else 0, _content(right) if right.terms else 0) or 1


def _tight(left: Expr, shift: int) -> tuple[Expr, str, Expr]:
    """`3*T >= 7` as `T >= 3`."""
    coefficient = _content(left)
    return left // coefficient, ">=", Expr.const(-(-shift // coefficient))
