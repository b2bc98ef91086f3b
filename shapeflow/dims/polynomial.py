"""Terms of a polynomial over atoms: `{monomial: coefficient}`, a monomial being sorted `(atom, power)` pairs.

`3*B*T + 1` is `{((B, 1), (T, 1)): 3, (): 1}`. No coefficient is 0. Nothing here changes its arguments.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shapeflow.dims.atoms import Atom, Order

    Monomial = tuple[tuple[Atom, int], ...]
    Terms = dict[Monomial, int]


def _atom_order(factor: tuple[Atom, int]) -> Order:
    return factor[0].order


def multiply_monomials(a: Monomial, b: Monomial) -> Monomial:
    if not a or not b:
        return a or b
    powers = dict(a)
    for atom, power in b:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=_atom_order))


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


def multiply(a: Terms, b: Terms) -> Terms:
    product: Terms = {}
    for left, x in a.items():
        for right, y in b.items():
            monomial = multiply_monomials(left, right)
            product[monomial] = product.get(monomial, 0) + x * y
    return {monomial: c for monomial, c in product.items() if c}


def divide(numerator: Terms, denominator: Terms) -> tuple[Terms, Terms]:
    """`numerator = quotient * denominator + remainder`, the remainder being the same for equal numerators
    modulo the denominator. The leading coefficient of the denominator is positive."""
    if len(denominator) == 1:
        return _divide_by_term(numerator, *next(iter(denominator.items())))
    lead = leading_monomial(denominator)
    rest, quotient, remainder = dict(numerator), {}, {}
    while rest:
        monomial = leading_monomial(rest)
        coefficient = rest[monomial]
        factor = divide_monomials(monomial, lead)
        times = 0 if factor is None else coefficient // denominator[lead]
        if factor is not None and times:
            quotient[factor] = times
            rest = subtract_multiple(rest, denominator, factor, times)
        if monomial in rest:
            remainder[monomial] = rest.pop(monomial)
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


def subtract_multiple(terms: Terms, other: Terms, monomial: Monomial, times: int) -> Terms:
    """`terms - times * monomial * other`."""
    result = dict(terms)
    for factor, coefficient in other.items():
        key = multiply_monomials(factor, monomial)
        left = result.get(key, 0) - times * coefficient
        if left:
            result[key] = left
        else:
            result.pop(key, None)
    return result


def leading_monomial(terms: Terms) -> Monomial:
    """The greatest by degree, then lexicographically: an order that multiplication keeps, as division needs."""
    return max(terms, key=_grade)


def _grade(monomial: Monomial) -> tuple[int, tuple[tuple[Order, int], ...]]:
    return degree(monomial), tuple((atom.order, power) for atom, power in reversed(monomial))


def degree(monomial: Monomial) -> int:
    return sum(power for _, power in monomial)


def reading_order(monomial: Monomial) -> tuple[int, tuple[tuple[Order, int], ...]]:
    """Sort key of terms as a person writes them: higher degree first, then alphabetical."""
    return -degree(monomial), tuple((atom.order, -power) for atom, power in monomial)


def common_monomial(monomials: list[Monomial]) -> Monomial:
    """The greatest monomial that divides all of them."""
    powers = dict(monomials[0])
    for monomial in monomials[1:]:
        if not powers:
            break
        other = dict(monomial)
        powers = {atom: min(power, other[atom]) for atom, power in powers.items() if atom in other}
    return tuple(powers.items())


def divide_exactly(terms: Terms, monomial: Monomial, divisor: int) -> Terms:
    """`terms / (divisor * monomial)`; the constant is rounded down, everything else divides."""
    return {
        key: left
        for term, coefficient in terms.items()
        if (left := coefficient // divisor) and (key := divide_monomials(term, monomial)) is not None
    }


def common_divisor(terms: Terms, start: int = 0) -> int:
    """The greatest common divisor of `start` and the coefficients, the constant's apart."""
    divisor = start
    for monomial, coefficient in terms.items():
        if monomial:
            divisor = gcd(divisor, coefficient)
            if divisor == 1:
                break
    return divisor
