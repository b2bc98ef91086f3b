"""`Expr` as plain data, exact, for files: texts are for people, and a text does not tell a pinned name from a free one.

>>> to_tree((Expr.symbol("B") * Expr.symbol("d", 32) + 7) // 8)
['//', ['+', ['*', 'B', ['=', 'd', 32]], 7], 8]

A number and the name of a free size stand for themselves; `["=", "d", 32]` is a name with a known value; the others are
`+ * ^ // % max min` with their parts.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

from shapeflow.dims.atoms import Atom, FloorDiv, Max, Min, Mod, Symbol
from shapeflow.dims.expr import Expr
from shapeflow.dims.polynomial import reading_order

if TYPE_CHECKING:
    from shapeflow.dims.polynomial import Monomial

Tree: TypeAlias = int | str | list[Any]

_DIVISIONS = {"//": FloorDiv, "%": Mod}
_EXTREMES = {"max": Max, "min": Min}


def to_tree(expr: Expr) -> Tree:
    """The expression as it is, sums and products in the order in which they are printed."""
    terms = sorted(expr.coefficients, key=reading_order)
    return _joined("+", [_term(monomial, expr.coefficients[monomial]) for monomial in terms], 0)


def from_tree(tree: object) -> Expr:
    """The one expression that `to_tree` made this of, built without simplifying; ValueError where it is no tree."""
    if isinstance(tree, int) and not isinstance(tree, bool):
        return Expr.const(tree)
    if isinstance(tree, str) and tree:
        return Expr.symbol(tree)
    if not isinstance(tree, list) or not tree or not isinstance(tree[0], str):
        raise ValueError(f"{tree!r} is no size: it is a number, a name, or a list that starts with an operator")
    operator, *parts = tree
    if operator == "=":
        return _pinned(parts)
    if operator == "^":
        return _power(parts)
    return _applied(operator, [from_tree(part) for part in parts])


def _term(monomial: Monomial, coefficient: int) -> Tree:
    factors = [_factor(atom, power) for atom, power in monomial]
    return _joined("*", [coefficient, *factors] if coefficient != 1 else factors, 1)


def _factor(atom: Atom, power: int) -> Tree:
    return _atom(atom) if power == 1 else ["^", _atom(atom), power]


def _atom(atom: Atom) -> Tree:
    if isinstance(atom, Symbol):
        return atom.name if atom.value is None else ["=", atom.name, atom.value]
    if isinstance(atom, FloorDiv | Mod):
        return ["//" if isinstance(atom, FloorDiv) else "%", to_tree(atom.numerator), to_tree(atom.denominator)]
    return ["max" if isinstance(atom, Max) else "min", *map(to_tree, atom.args)]


def _joined(operator: str, parts: list[Tree], empty: int) -> Tree:
    return [operator, *parts] if len(parts) > 1 else parts[0] if parts else empty


def _pinned(parts: list[Any]) -> Expr:
    match parts:
        case [str(name), int(value)] if name and not isinstance(value, bool):
            return Expr.symbol(name, value)
    raise ValueError(f'{["=", *parts]!r} is no name with a value, such as ["=", "d_model", 32]')


def _power(parts: list[Any]) -> Expr:
    match parts:
        case [base, int(exponent)] if exponent > 0 and not isinstance(exponent, bool):
            return from_tree(base) ** exponent
    raise ValueError(f'{["^", *parts]!r} is no power, such as ["^", "T", 2]')


def _applied(operator: str, parts: list[Expr]) -> Expr:
    if operator == "+" and parts:
        return sum(parts, Expr.const(0))
    if operator == "*" and parts:
        return prod(parts, start=Expr.const(1))
    if operator in _DIVISIONS and len(parts) == 2 and parts[1].constant != 0:
        return Expr.from_atom(_DIVISIONS[operator](*parts))
    if operator in _EXTREMES and len(set(parts)) > 1:
        return Expr.from_atom(_EXTREMES[operator](frozenset(parts)))
    raise ValueError(f"{operator!r} with {len(parts)} parts is no size")
