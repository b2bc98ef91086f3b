"""One form for sums of floor divisions by numbers that are related, so that `H - H//2` is `(H + 1)//2`.

    n//k + (-n - 1)//k = -1                    H//2 + (H + 1)//2 = H        H//3 + (2*H + 2)//3 = H
    n//k + (n + k/2)//k = n//(k/2)             H//4 + (H + 2)//4 = H//2

Up to four divisions are so related. All are written with the first of them, which gives one form but not a short one;
then each is put back where that makes the sum shortest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shapeflow.dims.atoms import FloorDiv, Order
from shapeflow.dims.polynomial import (
    add_multiple,
    common_divisor,
    divide,
    divide_monomials,
    divide_out,
    multiply_monomials,
    reading_order,
)

if TYPE_CHECKING:
    from shapeflow.dims.expr import Expr
    from shapeflow.dims.polynomial import Monomial, Terms


@dataclass(frozen=True, slots=True)
class _Form:
    """`first = sign * atom + whole`: how to write a family's first division with another of its divisions."""

    atom: FloorDiv
    sign: int
    whole: Terms


_Families = dict[FloorDiv, list[_Form]]


def may_shorten(terms: Terms) -> bool:
    """A quick look whether related divisions, or one and a whole of it, may stand together; they rarely do."""
    if len(terms) == 1:
        return False
    found = [(monomial, atom) for monomial in terms for atom in _divisions(monomial)]
    return any(_has_whole(terms, monomial, atom) for monomial, atom in found) or any(
        one is not other and not one.numerator.symbols.isdisjoint(other.numerator.symbols)
        for _, one in found
        for _, other in found
    )


def _has_whole(terms: Terms, monomial: Monomial, atom: FloorDiv) -> bool:
    """Whether a term of n stands in the place of `n//k`."""
    beside = divide_monomials(monomial, ((atom, 1),)) or ()
    return any(multiply_monomials(beside, part) in terms for part in atom.numerator.coefficients if part)


def shortest(terms: Terms, modulus: int = 0) -> Terms:
    """The same sum, or with a modulus one that is congruent, in the one form that all equal sums have."""
    families: _Families = {}
    terms = _reduced(_by_firsts(terms, families), modulus)
    done: set[FloorDiv] = set()
    while left := {_first(atom) for atom in _all_divisions(terms)} - done:
        first = max(left, key=_divisor_order)
        terms = _put_back(terms, first, _forms(first, families), modulus)
        done.add(first)
    return terms


def _by_firsts(terms: Terms, families: _Families) -> Terms:
    """The same sum with the first of each family alone: equal sums are equal then, if long."""
    done: set[FloorDiv] = set()
    while left := {_first(atom) for atom in _all_divisions(terms)} - done:
        first = max(left, key=_divisor_order)
        forms = _forms(first, families)
        for form in forms[1:]:
            for monomial in _where(terms, form.atom, forms):
                terms = _with_first(terms, monomial, first, form)
        done.add(first)
    return terms


def _with_first(terms: Terms, monomial: Monomial, first: FloorDiv, form: _Form) -> Terms:
    beside = divide_monomials(monomial, ((form.atom, 1),)) or ()
    coefficient = terms[monomial]
    swap: Terms = {((form.atom, 1),): -1, ((first, 1),): form.sign}
    return add_multiple(add_multiple(terms, swap, beside, coefficient), form.whole, beside, -form.sign * coefficient)


def _put_back(terms: Terms, first: FloorDiv, forms: list[_Form], modulus: int) -> Terms:
    for monomial in sorted(_where(terms, first, forms), key=reading_order):
        beside = divide_monomials(monomial, ((first, 1),)) or ()
        choices = [_reduced(_exchanged(terms, beside, terms[monomial], first, form), modulus) for form in forms]
        terms = min(choices, key=_length)
    return terms


def _exchanged(terms: Terms, beside: Monomial, coefficient: int, first: FloorDiv, form: _Form) -> Terms:
    if form.atom is first:
        return terms
    swap: Terms = {((first, 1),): -1, ((form.atom, 1),): form.sign}
    return add_multiple(add_multiple(terms, swap, beside, coefficient), form.whole, beside, coefficient)


def _length(terms: Terms) -> tuple[int, int, int]:
    with_division = sum(any(isinstance(atom, FloorDiv) for atom, _ in monomial) for monomial in terms)
    return with_division, len(terms), sum(abs(coefficient) for coefficient in terms.values())


def _reduced(terms: Terms, modulus: int) -> Terms:
    """Coefficients as near to 0 as the modulus allows."""
    if not modulus:
        return terms
    shift = (modulus - 1) // 2
    near = {monomial: (coefficient + shift) % modulus - shift for monomial, coefficient in terms.items()}
    return {monomial: coefficient for monomial, coefficient in near.items() if coefficient}


def _divisions(monomial: Monomial) -> Iterator[FloorDiv]:
    for atom, power in monomial:
        if power == 1 and isinstance(atom, FloorDiv) and atom.denominator.constant is not None and _is_plain(atom):
            yield atom


def _is_plain(atom: FloorDiv) -> bool:
    """Whether no rule of division but the relations here applies to the family: nothing nested, no constant result."""
    inner = (other for monomial in atom.numerator.coefficients for other, _ in monomial)
    return atom.numerator.range[1] is None and not any(isinstance(other, FloorDiv) for other in inner)


def _all_divisions(terms: Iterable[Monomial]) -> set[FloorDiv]:
    return {atom for monomial in terms for atom in _divisions(monomial)}


def _where(terms: Terms, atom: FloorDiv, forms: list[_Form]) -> list[Monomial]:
    """The monomials with this division as a plain factor; squared, or times one of its family, it is left alone."""
    others = {form.atom for form in forms} - {atom}
    return [term for term in terms if (atom, 1) in term and all(other not in others for other, _ in term)]


def _first(atom: FloorDiv) -> FloorDiv:
    """The one of the family with the smaller leading coefficient, then with the smaller constant."""
    divisor, numerator = _divisor(atom), atom.numerator
    leads = [numerator.coefficients[term] for term in sorted(filter(None, numerator.coefficients), key=reading_order)]
    untied = next((lead for lead in leads if 2 * lead != divisor), 0)
    if 2 * untied > divisor:
        numerator = _mirrored(numerator, divisor)
    constant = numerator.coefficients.get((), 0)
    if divisor % 2 == 0 and 2 * constant >= divisor:
        numerator = numerator - divisor // 2
    return FloorDiv(numerator, atom.denominator)


def _forms(first: FloorDiv, families: _Families) -> list[_Form]:
    """`first` itself, then the others of its family with what each leaves over, by firsts too."""
    if first not in families:
        divisor, numerator = _divisor(first), first.numerator
        whole: Terms = {monomial: 1 for monomial in numerator.coefficients if monomial}
        forms = [_Form(first, 1, {}), _Form(FloorDiv(_mirrored(numerator, divisor), first.denominator), -1, whole)]
        if divisor % 2 == 0 and divisor > 2:  # of 2 these are the same two
            half = _by_firsts(_divided(numerator, divisor // 2), families)
            other = FloorDiv(numerator + divisor // 2, first.denominator)
            mirrored = FloorDiv(_mirrored(other.numerator, divisor), first.denominator)
            forms += [_Form(other, -1, half), _Form(mirrored, 1, add_multiple(half, whole, (), -1))]
        families[first] = forms
    return families[first]


def _divided(numerator: Expr, divisor: int) -> Terms:
    """`numerator // divisor` for a polynomial of symbols, without a look at relations."""
    quotient, rest = divide(numerator.coefficients, {(): divisor})
    shared = common_divisor(rest, divisor)
    if shared == divisor:
        return quotient
    rest = numerator.from_terms(divide_out(rest, (), shared))
    return {**quotient, ((FloorDiv(rest, numerator.const(divisor // shared)), 1),): 1}


def _mirrored(numerator: Expr, divisor: int) -> Expr:
    """`-n - 1` modulo the divisor."""
    mirrored = {monomial: divisor - c for monomial, c in numerator.coefficients.items() if monomial}
    constant = divisor - 1 - numerator.coefficients.get((), 0)
    return numerator.from_terms({**mirrored, (): constant} if constant else mirrored)


def _divisor(atom: FloorDiv) -> int:
    divisor = atom.denominator.constant
    assert divisor is not None, "only divisions by numbers are related"
    return divisor


def _divisor_order(atom: FloorDiv) -> tuple[int, Order]:
    return _divisor(atom), atom.order
