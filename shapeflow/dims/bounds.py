"""What values an expression can take, given what its symbols can: sound always, tight where that is cheap.

>>> B, T, H = (Expr.symbol(name) for name in "BTH")
>>> bounds(B * T - B, lambda symbol: (1, None))
(0, None)
>>> bounds(H - 2 * (H // 2), lambda symbol: (2, None))
(0, 1)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from shapeflow.dims import interval
from shapeflow.dims.atoms import Atom, FloorDiv, Max, Min, Mod, Symbol, symbols_in
from shapeflow.dims.interval import Interval
from shapeflow.dims.polynomial import (
    add_multiple,
    common_monomial,
    degree,
    divide,
    divide_monomials,
    divide_out,
    multiply,
)

if TYPE_CHECKING:
    from shapeflow.dims.expr import Expr
    from shapeflow.dims.polynomial import Monomial, Terms

    Ranges = Callable[[Atom], Interval]

_ROUNDS = 3  # how many of `//`, `%`, `max` and `min` are opened one after the other; the others count as unknowns
_FEW_TERMS = 6  # a longer sum is opened once only: what bounds it would take for ever to find
_MOST_DEGREE = 6  # of a product that is multiplied out: each factor doubles its terms


def bounds(
    expr: Expr, of: Callable[[Symbol], Interval], limits: Mapping[Atom, Interval] = MappingProxyType({})
) -> Interval:
    """`(low, high)`, None where unbounded; `of` gives each free symbol's own, `limits` what else is known of atoms."""
    known: dict[Atom, Interval] = {}

    def ranges(atom: Atom) -> Interval:
        found = known.get(atom)
        if found is None:
            found = _atom_range(atom, of, lambda part: _bounds(part.coefficients, ranges))
            if atom in limits:
                found = interval.intersection(found, limits[atom])
            known[atom] = found
        return found

    return _bounds(expr.coefficients, ranges)


def is_natural(expr: Expr) -> bool:
    """Whether it is provably at least 0 for all symbols >= 1."""
    if expr.constant is not None:
        return expr.constant >= 0
    if expr.range[0] is not None and expr.range[0] >= 0:
        return True
    low = _lower(expr.coefficients, lambda atom: atom.range, _ROUNDS)
    return low is not None and low >= 0


def _atom_range(atom: Atom, of: Callable[[Symbol], Interval], inner: Callable[[Expr], Interval]) -> Interval:
    match atom:
        case Symbol():
            return of(atom) if atom.value is None else (atom.value, atom.value)
        case FloorDiv():
            return interval.floor_divide(inner(atom.numerator), inner(atom.denominator))
        case Mod():
            return interval.modulo(inner(atom.numerator), inner(atom.denominator))
        case Max():
            return interval.largest([inner(arg) for arg in atom.args])
        case Min():
            return interval.smallest([inner(arg) for arg in atom.args])


def _bounds(terms: Terms, ranges: Ranges) -> Interval:
    low, high = _plain(terms, ranges)
    if not _has_both_signs(terms):
        return low, high
    negated = {monomial: -coefficient for monomial, coefficient in terms.items()}
    rounds = _ROUNDS if len(terms) <= _FEW_TERMS else 1
    least, greatest = _lower(terms, ranges, rounds), _lower(negated, ranges, rounds)
    return interval.intersection((low, high), (least, None if greatest is None else -greatest))


def _has_both_signs(terms: Terms) -> bool:
    """Whether terms can cancel; otherwise bounds term by term are as good as any."""
    signs = {coefficient > 0 for monomial, coefficient in terms.items() if monomial}
    return len(signs) == 2


def _plain(terms: Terms, ranges: Ranges) -> Interval:
    """Term by term, as if each were free of the others."""
    total: Interval = (0, 0)
    for monomial, coefficient in terms.items():
        total = interval.plus(total, interval.scaled(_monomial_range(monomial, ranges), coefficient))
    return total


def _monomial_range(monomial: Monomial, ranges: Ranges) -> Interval:
    product: Interval = (1, 1)
    for atom, power in monomial:
        factor = ranges(atom) if power == 1 else interval.power(ranges(atom), power)
        product = interval.times(product, factor)
    return product


def _lower(terms: Terms, ranges: Ranges, rounds: int) -> int | None:
    """The greatest lower bound that any of the ways below finds."""
    plain = _plain(terms, ranges)[0]
    if not _has_both_signs(terms):
        return plain
    shared = common_monomial(terms)
    if shared and interval.is_natural(factor := _monomial_range(shared, ranges)):
        inner = _lower(divide_out(terms, shared, 1), ranges, rounds)
        return _greatest(plain, interval.times(factor, (inner, None))[0])
    best = _greatest(plain, _shifted_lower(terms, ranges))
    if rounds and (atom := _atom_to_open(terms)) is not None:
        best = _greatest(best, _opened_lower(terms, atom, ranges, rounds - 1))
    return best


def _greatest(*bounds: int | None) -> int | None:
    return max((bound for bound in bounds if bound is not None), default=None)


def _shifted_lower(terms: Terms, ranges: Ranges) -> int | None:
    """With `B = 1 + b` and `T = 1 + t`, `B*T - B` is `t + b*t`, of which only what is negative can matter."""
    shifted: Terms = {}
    for monomial, coefficient in terms.items():
        if degree(monomial) > _MOST_DEGREE:
            return None
        part: Terms = {(): coefficient}
        for atom, power in monomial:
            from_end = _counted_from_end(atom, ranges)
            if from_end is None:
                return None
            for _ in range(power):
                part = multiply(part, from_end)
        shifted = add_multiple(shifted, part, (), 1)
    negative = {monomial: c for monomial, c in shifted.items() if c < 0 or not monomial}
    return _plain(negative, lambda atom: _span(ranges(atom)))[0]


def _counted_from_end(atom: Atom, ranges: Ranges) -> Terms | None:
    """The atom as its finite end plus or minus a number of at least 0, for which the atom itself stands."""
    low, high = ranges(atom)
    if low is None and high is None:
        return None
    end, sign = (high, -1) if low is None else (low, 1)
    return {((atom, 1),): sign, (): end} if end else {((atom, 1),): sign}


def _span(reach: Interval) -> Interval:
    low, high = reach
    return 0, None if low is None or high is None else high - low


def _atom_to_open(terms: Terms) -> Atom | None:
    """A compound atom, the outermost first, that shares a symbol with another term, so that they may cancel."""
    compound = {atom for monomial in terms for atom, _ in monomial if not isinstance(atom, Symbol)}
    for atom in sorted(compound, key=lambda atom: atom.order, reverse=True):
        others = [other for monomial in terms for other, _ in monomial if other is not atom]
        if not symbols_in([atom]).isdisjoint(symbols_in(others)):
            return atom
    return None


def _opened_lower(terms: Terms, atom: Atom, ranges: Ranges, rounds: int) -> int | None:
    """A lower bound with the atom replaced by what bounds it."""
    split = _split_at(terms, atom)
    if split is None:
        return None
    factor, rest = split

    def with_atom_as(value: Expr) -> int | None:
        return _lower(add_multiple(rest, multiply(factor, value.coefficients), (), 1), ranges, rounds)

    match atom:
        case FloorDiv():
            return _opened_division(factor, rest, atom, ranges, rounds)
        case Mod(numerator=numerator, denominator=denominator):
            floor: Terms = {((FloorDiv(numerator, denominator), 1),): -1}
            remainder = add_multiple(numerator.coefficients, multiply(denominator.coefficients, floor), (), 1)
            return _lower(add_multiple(rest, multiply(factor, remainder), (), 1), ranges, rounds)
        case Max() | Min():
            lows = [with_atom_as(arg) for arg in atom.args]
            helps = _sign(factor, ranges) == (1 if isinstance(atom, Max) else -1)  # then every argument is a bound
            return _greatest(*lows) if helps else None if None in lows else min(low for low in lows if low is not None)
        case Symbol():
            return None


def _opened_division(factor: Terms, rest: Terms, atom: FloorDiv, ranges: Ranges, rounds: int) -> int | None:
    """By `n - d + 1 <= d * (n//d) <= n`."""
    sign, divisor = _sign(factor, ranges), atom.denominator.coefficients
    if not sign or (_plain(divisor, ranges)[0] or 0) <= 0:
        return None
    numerator = atom.numerator if sign < 0 else atom.numerator - atom.denominator + 1
    times, scale, (quotient, remainder) = factor, atom.denominator.constant, divide(factor, divisor)
    if not remainder:
        times, scale = quotient, 1
    if scale is None:
        return None
    scaled = {monomial: coefficient * scale for monomial, coefficient in rest.items()}
    low = _lower(add_multiple(scaled, multiply(times, numerator.coefficients), (), 1), ranges, rounds)
    return None if low is None else -(-low // scale)


def _split_at(terms: Terms, atom: Atom) -> tuple[Terms, Terms] | None:
    """`factor, rest` with terms = factor * atom + rest; None where the atom occurs squared."""
    factor: Terms = {}
    rest: Terms = {}
    for monomial, coefficient in terms.items():
        beside = divide_monomials(monomial, ((atom, 1),))
        if beside is None:
            rest[monomial] = coefficient
        elif any(other is atom for other, _ in beside):
            return None
        else:
            factor[beside] = coefficient
    return factor, rest


def _sign(terms: Terms, ranges: Ranges) -> int:
    """1 or -1 where it cannot be the other, 0 where nothing is known."""
    low, high = _plain(terms, ranges)
    return 1 if low is not None and low >= 0 else -1 if high is not None and high <= 0 else 0
