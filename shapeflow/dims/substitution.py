"""Numbers or other expressions in the place of atoms."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from shapeflow.dims.atoms import Atom, FloorDiv, Max, Min, Mod, Symbol, children
from shapeflow.dims.extremes import maximum, minimum
from shapeflow.errors import InputError

if TYPE_CHECKING:
    from shapeflow.dims.expr import Expr


def evaluate(expr: Expr, known: dict[Atom, int]) -> int:
    """The number, given the symbols' in `known`, which also remembers the parts that are shared."""
    total = 0
    for monomial, product in expr.coefficients.items():
        for atom, power in monomial:
            number = known.get(atom)
            if number is None:
                known[atom] = number = _number(atom, known)
            product *= number**power
        total += product
    return total


def _number(atom: Atom, known: dict[Atom, int]) -> int:
    if isinstance(atom, Symbol):
        if atom.value is None:
            raise InputError(f"no size is given for {atom.name}")
        return atom.value
    parts = [evaluate(part, known) for part in children(atom)]
    match atom:
        case FloorDiv():
            return parts[0] // parts[1]
        case Mod():
            return parts[0] % parts[1]
        case Max():
            return max(parts)
        case Min():
            return min(parts)


def map_atoms(expr: Expr, fn: Callable[[Atom], Expr | None], done: dict[Atom, Expr]) -> Expr:
    """The expression rebuilt; `done` remembers the atoms that are shared."""
    total = expr.const(0)
    for monomial, coefficient in expr.coefficients.items():
        term = expr.const(coefficient)
        for atom, power in monomial:
            if atom not in done:
                replacement = fn(atom)
                done[atom] = _rebuilt(expr, atom, fn, done) if replacement is None else replacement
            term = term * done[atom] ** power
        total = total + term
    return total


def _rebuilt(expr: Expr, atom: Atom, fn: Callable[[Atom], Expr | None], done: dict[Atom, Expr]) -> Expr:
    parts = [map_atoms(part, fn, done) for part in children(atom)]
    match atom:
        case Symbol():
            return expr.from_atom(atom)
        case FloorDiv():
            return parts[0] // parts[1]
        case Mod():
            return parts[0] % parts[1]
        case Max():
            return maximum(*parts)
        case Min():
            return minimum(*parts)
