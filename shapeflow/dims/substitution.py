"""Numbers or other expressions in the place of atoms."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from shapeflow.dims.atoms import Atom, FloorDiv, Max, Min, Mod, Symbol, children
from shapeflow.dims.extremes import maximum, minimum
from shapeflow.errors import InputError

if TYPE_CHECKING:
    from shapeflow.dims.expr import Expr
    from shapeflow.dims.polynomial import Monomial


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


def map_atoms(expr: Expr, fn: Callable[[Atom], Expr | None], done: dict[Atom, Expr | None]) -> Expr:
    """The expression rebuilt; `done` remembers what replaces the atoms that are shared, None for those that stay."""
    for monomial in expr.coefficients:
        for atom, _ in monomial:
            if atom not in done:
                replacement = fn(atom)
                done[atom] = _rebuilt(atom, fn, done) if replacement is None else replacement
    kept = {term: c for term, c in expr.coefficients.items() if all(done[atom] is None for atom, _ in term)}
    if len(kept) == expr.n_terms:
        return expr
    total = expr.from_terms(kept)
    for monomial, coefficient in expr.coefficients.items():
        if monomial not in kept:
            total = total + _product(expr, monomial, coefficient, done)
    return total


def _product(expr: Expr, monomial: Monomial, coefficient: int, done: dict[Atom, Expr | None]) -> Expr:
    product = expr.from_terms({tuple(factor for factor in monomial if done[factor[0]] is None): coefficient})
    for atom, power in monomial:
        if (replacement := done[atom]) is not None:
            product = product * replacement**power
    return product


def _rebuilt(atom: Atom, fn: Callable[[Atom], Expr | None], done: dict[Atom, Expr | None]) -> Expr | None:
    old = children(atom)
    parts = [map_atoms(part, fn, done) for part in old]
    if all(part is before for part, before in zip(parts, old, strict=True)):
        return None
    match atom:
        case Symbol():
            return None
        case FloorDiv():
            return parts[0] // parts[1]
        case Mod():
            return parts[0] % parts[1]
        case Max():
            return maximum(*parts)
        case Min():
            return minimum(*parts)
