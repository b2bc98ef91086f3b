"""Sizes as trees that the page's script evaluates for the numbers that a reader types.

>>> tree((B * T + 7) // 8)
['//', ['+', ['*', 'B', 'T'], 7], 8]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shapeflow.dims.atoms import Atom, FloorDiv, Mod, Symbol
from shapeflow.dims.expr import Expr
from shapeflow.dims.polynomial import reading_order

if TYPE_CHECKING:
    from shapeflow.dims.polynomial import Monomial

Tree = int | str | list[Any]

EXACT = 2**53  # a number in JSON is a double in JavaScript: whole only below this


def tree(expr: Expr) -> Tree:
    """A number, a name, or `[operator, part, ...]`; operators are `+ * ^ // % max min`, and `#` for a long number."""
    terms = sorted(expr.coefficients, key=reading_order)
    return _joined("+", [_term(monomial, expr.coefficients[monomial]) for monomial in terms], 0)


def _term(monomial: Monomial, coefficient: int) -> Tree:
    factors = [_factor(atom, power) for atom, power in monomial]
    return _joined("*", [_number(coefficient), *factors] if coefficient != 1 else factors, 1)


def _factor(atom: Atom, power: int) -> Tree:
    return _atom(atom) if power == 1 else ["^", _atom(atom), power]


def _atom(atom: Atom) -> Tree:
    if isinstance(atom, Symbol):
        return atom.name
    if isinstance(atom, FloorDiv | Mod):
        return ["//" if isinstance(atom, FloorDiv) else "%", tree(atom.numerator), tree(atom.denominator)]
    return [type(atom).__name__.lower(), *map(tree, atom.args)]


def _joined(operator: str, parts: list[Tree], empty: int) -> Tree:
    return [operator, *parts] if len(parts) > 1 else parts[0] if parts else empty


def _number(n: int) -> Tree:
    return n if abs(n) < EXACT else ["#", str(n)]
