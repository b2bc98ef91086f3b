"""Terms of a polynomial over atoms: `{monomial: coefficient}`, a monomial being `(atom, power)` pairs in order.

`3*B*T + 1` is `{((B, 1), (T, 1)): 3, (): 1}`. No coefficient is 0. Nothing here changes its arguments.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shapeflow.dims.atoms import Atom, Order

    Monomial = tuple[tuple[Atom, int], ...]
    Terms = dict[Monomial, int]


def multiply_monomials(a: Monomial, b: Monomial) -> Monomial:
    if not a or not b:
        return a or b
    if len(a) == len(b) == 1:
        (left, power), (right, other) = a[0], b[0]
        if left is right:
            return ((left, power + other),)
        return a + b if left.order < right.order else b + a
    powers = dict(a)
    for atom, power in b:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=_atom_order))


def _atom_order(factor: tuple[Atom, int]) -> Order:
    return factor[0].order


def divide_monomials(a: Monomial, b: Monomial) -> Monomial | None:
    """The monomial `a / b`, or None where b does not divide a."""
    if not b:
        return a
    powers = dict(a)
    for atom, power in b:
        left = powers.get(atom, 0) - power
        if left < 0:
            return None
        powers[atom] = left
    return tuple((atom, power) for atom, power in powers.items() if power)


def add_multiple(terms: Terms, other: Terms, monomial: Monomial, times: int) -> Terms:
    """`terms + times * monomial * other`."""
    result = terms.copy()
    for factor, coefficient in other.items():
        key = multiply_monomials(factor, monomial)
        if total := result.get(key, 0) + times * coefficient:
            result[key] = total
        else:
            result.pop(key, None)
    return result


def multiply(a: Terms, b: Terms) -> Terms:
    if len(a) == len(b) == 1:
        ((left, x),), ((right, y),) = a.items(), b.items()
        return {multiply_monomials(left, right): x * y}
    product: Terms = {}
    for monomial, coefficient in b.items():
        product = add_multiple(product, a, monomial, coefficient)
    return product


def divide(numerator: Terms, denominator: Terms) -> tuple[Terms, Terms]:
    """`quotient, remainder` with numerator = quotient * denominator + remainder.

    The denominator's leading coefficient is positive. Numerators that differ by a multiple of the denominator have
    the same remainder.
    """
    if len(denominator) == 1:
        return _divide_by_term(numerator, *next(iter(denominator.items())))
    lead = leading_monomial(denominator)
    quotient: Terms = {}
    remainder: Terms = {}
    while numerator:
        monomial = leading_monomial(numerator)
        factor = divide_monomials(monomial, lead)
        if factor is not None and (times := numerator[monomial] // denominator[lead]):
            quotient[factor] = times
            numerator = add_multiple(numerator, denominator, factor, -times)
        if monomial in numerator:
            remainder[monomial] = numerator[monomial]
            numerator = {key: coefficient for key, coefficient in numerator.items() if key != monomial}
    return quotient, remainder


def _divide_by_term(numerator: Terms, monomial: Monomial, divisor: int) -> tuple[Terms, Terms]:
    quotient: Terms = {}
    remainder: Terms = {}
    for term, coefficient in numerator.items():
        factor = divide_monomials(term, monomial)
        times, left = (0, coefficient) if factor is None else divmod(coefficient, divisor)
        if factor is not None and times:
            quotient[factor] = times
        if left:
            remainder[term] = left
    return quotient, remainder


def divide_out(terms: Terms, monomial: Monomial, divisor: int) -> Terms:
    """`terms / (divisor * monomial)`, which goes into every term; only the constant is rounded down."""
    if not monomial:
        return {term: left for term, coefficient in terms.items() if (left := coefficient // divisor)}
    return {
        factor: coefficient // divisor
        for term, coefficient in terms.items()
        if (factor := divide_monomials(term, monomial)) is not None
    }


def common_monomial(monomials: Iterable[Monomial]) -> Monomial:
    """The greatest monomial that divides all of them; of none it is 1."""
    first, *others = [*monomials] or [()]
    for monomial in others:
        if not first:
            break
        powers = dict(monomial)
        first = tuple((atom, min(power, powers[atom])) for atom, power in first if atom in powers)
    return first


def common_divisor(terms: Terms, start: int = 0) -> int:
    """The greatest common divisor of `start` and the coefficients, leaving out the constant's."""
    divisor = start
    for monomial, coefficient in terms.items():
        if divisor == 1:
            break
        if monomial:
            divisor = gcd(divisor, coefficient)
    return divisor


def leading_monomial(terms: Terms) -> Monomial:
    """The greatest by degree, then lexicographically: an order that multiplication keeps, as division needs."""
    return next(iter(terms)) if len(terms) == 1 else max(terms, key=_grade)


def _grade(monomial: Monomial) -> tuple[int, tuple[tuple[Order, int], ...]]:
    return degree(monomial), tuple((atom.order, power) for atom, power in reversed(monomial))


def degree(monomial: Monomial) -> int:
    return sum([power for _, power in monomial])


def reading_order(monomial: Monomial) -> tuple[int, int, tuple[tuple[Order, int], ...]]:
    """Sort key of terms as a person writes them: higher degree first, then higher powers, then alphabetical."""
    highest = max([power for _, power in monomial], default=0)
    return -degree(monomial), -highest, tuple([(atom.order, -power) for atom, power in monomial])


def first_monomial(terms: Terms) -> Monomial:
    """The one that is written first."""
    return next(iter(terms)) if len(terms) == 1 else min(terms, key=reading_order)


def sole_atom(terms: Terms) -> Atom | None:
    """The atom where the sum is nothing else."""
    if len(terms) != 1:
        return None
    ((monomial, coefficient),) = terms.items()
    return monomial[0][0] if coefficient == 1 and len(monomial) == 1 and monomial[0][1] == 1 else None
