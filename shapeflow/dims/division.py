"""Floor division and remainder of `Expr`s, brought to one form.

    (d*q + r)//d = q + r//d         (x//a)//b = x//(a*b)             (x*k)//(y*k) = x//y
    (d*q + r) % d = r % d           (x % (a*k)) % k = x % k          (x*k) % (y*k) = k*(x % y)
    -(-x//k) = (x + k - 1)//k       x//y = 0 where 0 <= x < y        -x % k = k*((x - 1)//k + 1) - x

Sums of divisions are not brought to one form, for it would cost every addition: `H//2 + (H + 1)//2` stays, and
`bounds` tells that it equals H. Each rule is used only where it holds for all sizes of at least 1.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

from shapeflow.dims import interval
from shapeflow.dims.atoms import FloorDiv, Mod
from shapeflow.dims.bounds import is_natural
from shapeflow.dims.polynomial import (
    common_divisor,
    common_monomial,
    divide,
    divide_monomials,
    divide_out,
    first_monomial,
    leading_monomial,
)

if TYPE_CHECKING:
    from shapeflow.dims.expr import Expr
    from shapeflow.dims.polynomial import Terms


def floor_divide(numerator: Expr, denominator: Expr) -> Expr:
    if denominator.constant == 1:
        return numerator
    if numerator.constant is not None and denominator.constant is not None:
        return numerator.const(numerator.constant // denominator.constant)
    if _leads_negative(denominator):
        return floor_divide(-numerator, -denominator)
    return (_divide_by_term if denominator.n_terms == 1 else _divide_by_sum)(numerator, denominator)


def _divide_by_term(numerator: Expr, denominator: Expr) -> Expr:
    """Of a ceil division and its negative one form remains: a numerator that starts negative is turned.

    Its first term that d does not divide tells, once common factors are gone: `n//d` is `-1 - (-n - 1)//d`.
    """
    left = _not_divided(numerator.coefficients, denominator.coefficients)
    if any(coefficient < 0 for coefficient in left.values()) and _is_positive(denominator):
        if (shared := _common_factor(numerator, denominator)) is not None:
            return floor_divide(_without(numerator, shared), _without(denominator, shared))
        if left[first_monomial(left)] < 0:
            return -1 - floor_divide(-numerator - 1, denominator)
    quotient, rest = _split(numerator, denominator)
    return quotient + _divide_rest(rest, denominator)


def _divide_by_sum(numerator: Expr, denominator: Expr) -> Expr:
    if (shared := _common_factor(numerator, denominator)) is not None:
        return floor_divide(_without(numerator, shared), _without(denominator, shared))
    quotient, rest = _split(numerator, denominator)
    if _is_positive(denominator) and rest.coefficients and rest.coefficients[first_monomial(rest.coefficients)] < 0:
        return quotient - 1 - floor_divide(-rest - 1, denominator)
    return quotient + _divide_rest(rest, denominator)


def modulo(numerator: Expr, denominator: Expr) -> Expr:
    if numerator.constant is not None and denominator.constant is not None:
        return numerator.const(numerator.constant % denominator.constant)
    if _leads_negative(denominator):
        return -modulo(-numerator, -denominator)
    _, rest = _split(numerator, denominator)
    mods = {atom for term in rest.coefficients for atom, _ in term if isinstance(atom, Mod)}
    if inner := {atom: atom.numerator for atom in mods if not modulo(atom.denominator, denominator).coefficients}:
        return modulo(rest.map_atoms(lambda atom: inner.get(atom) if isinstance(atom, Mod) else None), denominator)
    return _modulo_of_rest(rest, denominator) if rest.coefficients else rest


def _leads_negative(denominator: Expr) -> bool:
    if not denominator.coefficients:
        raise ZeroDivisionError("a size divided by zero")
    return denominator.coefficients[leading_monomial(denominator.coefficients)] < 0


def _not_divided(terms: Terms, divisor: Terms) -> Terms:
    """The terms that the divisor, one term, does not divide; numbers only where it is none, else they are rounded."""
    ((factor, number),) = divisor.items()
    return {
        monomial: coefficient
        for monomial, coefficient in terms.items()
        if (monomial or factor) and (coefficient % number or divide_monomials(monomial, factor) is None)
    }


def _split(numerator: Expr, denominator: Expr) -> tuple[Expr, Expr]:
    """`quotient, rest` with numerator = quotient * denominator + rest.

    A sum divides only where that makes the numerator shorter: `(a + b + c)//(a + b)` is `1 + c//(a + b)`, but
    `a//(a + b)` stays.
    """
    quotient, rest = divide(numerator.coefficients, denominator.coefficients)
    if not quotient or (denominator.n_terms > 1 and len(rest) >= numerator.n_terms):
        return numerator.const(0), numerator
    return numerator.from_terms(quotient), numerator.from_terms(rest)


def _divide_rest(rest: Expr, denominator: Expr) -> Expr:
    """`rest // denominator` where no more of the denominator can be taken out of rest."""
    if not rest.coefficients:
        return rest
    if (shared := _common_factor(rest, denominator)) is not None:
        rest, denominator = _without(rest, shared), _without(denominator, shared)
        return rest if denominator.constant == 1 else _divide_rest(rest, denominator)
    if (known := _constant_quotient(rest, denominator)) is not None:
        return rest.const(known)
    if _is_positive(denominator):
        if (shared := _ceil_factor(rest, denominator)) is not None:
            return floor_divide(_without(rest + 1, shared) - 1, _without(denominator, shared))
        if (nested := _nested_division(rest, denominator)) is not None:
            return nested
    return rest.from_atom(FloorDiv(rest, denominator))


def _modulo_of_rest(rest: Expr, denominator: Expr) -> Expr:
    """`(-x) % k` is the division that it stands for: padding to a multiple, `x + (-x) % k`, is `k*((x - 1)//k + 1)`.

    So is `x % 2`, which equals `(-x) % 2`.
    """
    if (shared := _common_factor(rest, denominator)) is not None:
        smaller = _without(rest, shared)
        return shared * modulo(smaller, _without(denominator, shared)) + (rest - shared * smaller)
    if (known := _constant_quotient(rest, denominator)) is not None:
        return rest - known * denominator
    if _is_positive(denominator) and (padded := _as_padding(rest, denominator)) is not None:
        return padded - denominator * floor_divide(padded, denominator)
    return rest.from_atom(Mod(rest, denominator))


def _common_factor(rest: Expr, denominator: Expr) -> Expr | None:
    """What divides both. A positive denominator's part need not divide the constant of rest, which is then rounded."""
    top, bottom = rest.coefficients, denominator.coefficients
    divisor = common_divisor(top, common_divisor(bottom, bottom.get((), 0)))
    if divisor > 1 and top.get((), 0) % divisor and not _is_positive(denominator):
        divisor = gcd(divisor, top[()])
    shared = () if denominator.constant is not None else common_monomial([*bottom, *top])
    return None if divisor == 1 and not shared else rest.from_terms({shared: divisor})


def _ceil_factor(rest: Expr, denominator: Expr) -> Expr | None:
    """k in the ceil division `(x*k - 1)//(y*k)`, which is `(x - 1)//y`."""
    if denominator.constant is not None or rest.coefficients.get(()) != -1 or rest.n_terms == 1:
        return None
    shared = common_monomial([*denominator.coefficients, *filter(None, rest.coefficients)])
    is_positive = shared and all((atom.range[0] or 0) > 0 for atom, _ in shared)
    return rest.from_terms({shared: 1}) if is_positive else None


def _without(expr: Expr, factor: Expr) -> Expr:
    ((monomial, divisor),) = factor.coefficients.items()
    return expr.from_terms(divide_out(expr.coefficients, monomial, divisor))


def _is_positive(expr: Expr) -> bool:
    return (expr.range[0] or 0) > 0


def _constant_quotient(numerator: Expr, denominator: Expr) -> int | None:
    if denominator.constant is not None and None in numerator.range:
        return None
    low, high = interval.floor_divide(numerator.range, denominator.range)
    if low == high and low is not None:
        return low
    if denominator.constant is not None or not _is_positive(denominator) or not interval.is_natural(numerator.range):
        return None
    return 0 if is_natural(denominator - numerator - 1) else None


def _as_padding(rest: Expr, denominator: Expr) -> Expr | None:
    """The `-x` for which `rest % d` is `-x % d`, where that is the shorter way to say it."""
    divisor, terms = denominator.constant, rest.coefficients
    first = terms[first_monomial(terms)]
    if divisor is None:
        return rest if first < 0 else None
    if 2 * first < divisor:
        return None
    return rest.from_terms({monomial: c - divisor if monomial else c for monomial, c in terms.items()})


def _nested_division(rest: Expr, denominator: Expr) -> Expr | None:
    """`(q + x//a)//b` as `(a*q + x)//(a*b)` and `(q - x//a)//b` alike, b being positive.

    None where there is no such x//a, or more than one to choose from.
    """
    turn = -1 if denominator.constant is None else denominator.constant - 1
    found = [
        (atom, coefficient)
        for monomial, coefficient in rest.coefficients.items()
        if len(monomial) == 1 and coefficient in (1, turn)
        for atom, power in monomial
        if power == 1 and isinstance(atom, FloorDiv)
    ]
    if len(found) != 1:
        return None
    atom, coefficient = found[0]
    others: Terms = {key: c for key, c in rest.coefficients.items() if key != ((atom, 1),)}
    inner, whole = atom.denominator, rest.from_terms(others) * atom.denominator
    if coefficient == 1:
        return floor_divide(whole + atom.numerator, inner * denominator)
    if not _is_positive(inner):
        return None
    outside = rest.from_atom(atom) if coefficient > 0 else rest.const(0)
    return outside + floor_divide(whole - atom.numerator + inner - 1, inner * denominator)
