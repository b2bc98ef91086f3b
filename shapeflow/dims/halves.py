"""One form for sums with halves: `x//2` and `(x + 1)//2` add up to x, so that `H - H//2` is `(H + 1)//2`.

For any other k a floor division and its ceil division are told apart by their coefficients; for 2 they are not.
Of the three forms that the relation leaves, the one is kept that needs least of x itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shapeflow.dims.atoms import FloorDiv
from shapeflow.dims.polynomial import add_multiple, divide_monomials, first_monomial, multiply_monomials

if TYPE_CHECKING:
    from shapeflow.dims.atoms import Atom
    from shapeflow.dims.polynomial import Monomial, Terms


def may_join(terms: Terms) -> bool:
    """Whether a half stands together with its partner or with what it is the half of; a quick look, for it is rare."""
    halves = [
        (monomial, atom)
        for monomial in terms
        for atom, power in monomial
        if power == 1 and isinstance(atom, FloorDiv) and _is_half(atom)
    ]
    if not halves or len(terms) == 1:
        return False
    atoms = {atom for _, atom in halves}
    return any(_beside_whole(monomial, atom) in terms for monomial, atom in halves) or any(
        one is not other and (one.numerator - other.numerator).constant is not None for one in atoms for other in atoms
    )


def join_halves(terms: Terms) -> Terms:
    """The same sum with at most one of `x//2` and `(x + 1)//2` beside each factor."""
    halves = {atom for monomial in terms for atom, _ in monomial if isinstance(atom, FloorDiv) and _is_half(atom)}
    families = sorted({_lower(atom) for atom in halves}, key=lambda atom: atom.order)
    for lower in families:
        upper = _upper(lower)
        for monomial in [monomial for monomial in terms if _is_once(upper, lower, monomial)]:
            terms = _exchanged(terms, monomial, upper, lower)
    for lower in families:
        upper = _upper(lower)
        for monomial in [monomial for monomial in terms if _is_once(lower, upper, monomial)]:
            whole = terms.get(_beside_whole(monomial, lower), 0)
            if abs(terms[monomial] + whole) < abs(whole):
                terms = _exchanged(terms, monomial, lower, upper)
    return terms


def _is_half(atom: FloorDiv) -> bool:
    return atom.denominator.constant == 2


def _beside_whole(monomial: Monomial, atom: FloorDiv) -> Monomial:
    """The monomial with the first term of x in the place of `x//2`."""
    beside = divide_monomials(monomial, ((atom, 1),)) or ()
    return multiply_monomials(beside, first_monomial(atom.numerator.coefficients))


def _lower(atom: FloorDiv) -> FloorDiv:
    return FloorDiv(atom.numerator - 1, atom.denominator) if () in atom.numerator.coefficients else atom


def _upper(lower: FloorDiv) -> FloorDiv:
    return FloorDiv(lower.numerator + 1, lower.denominator)


def _is_once(atom: Atom, partner: Atom, monomial: Monomial) -> bool:
    """Whether the atom is a plain factor; beside its own partner or squared it stays as it is."""
    return (atom, 1) in monomial and all(other is not partner for other, _ in monomial)


def _exchanged(terms: Terms, monomial: Monomial, atom: FloorDiv, partner: FloorDiv) -> Terms:
    """`atom` in this term written as `x - partner`."""
    coefficient = terms[monomial]
    beside = divide_monomials(monomial, ((atom, 1),)) or ()
    whole = {term: c for term, c in atom.numerator.coefficients.items() if term}
    terms = add_multiple(terms, {((atom, 1),): -1, ((partner, 1),): -1}, beside, coefficient)
    return add_multiple(terms, whole, beside, coefficient)
