"""Floor division and remainder of `Expr`s, brought to one form.

    (d*q + r)//d = q + r//d         (x//a)//b = x//(a*b)             (x*k)//(y*k) = x//y
    (d*q + r) % d = r % d           (x % (a*k)) % k = x % k          (x*k) % (y*k) = k*(x % y)
    -(-x//k) = (x + k - 1)//k       x//y = 0 where 0 <= x < y

Each is used only where it holds for all sizes of at least 1; `Expr` itself is met through its operands alone.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

from shapeflow.dims import interval
from shapeflow.dims.atoms import FloorDiv, Mod
from shapeflow.dims.bounds import is_natural
from shapeflow.dims.families import may_shorten, shortest
from shapeflow.dims.polynomial import (
    add_multiple,
    common_divisor,
    common_monomial,
    divide,
    divide_monomials,
    divide_out,
    leading_monomial,
    reading_order,
)

if TYPE_CHECKING:
    from shapeflow.dims.expr import Expr
    from shapeflow.dims.polynomial import Terms


_MOST_TURNS = 3  # of sign in one division: after one, more of a long denominator may come out and turn it again


def floor_divide(numerator: Expr, denominator: Expr, *, turns: int = _MOST_TURNS) -> Expr:
    if denominator.constant == 1:
        return numerator
    if numerator.constant is not None and denominator.constant is not None:
        return numerator.const(numerator.constant // denominator.constant)
    if _leads_negative(denominator):
        return floor_divide(-numerator, -denominator)
    quotient, rest = _split(numerator, denominator) or (numerator.const(0), numerator)
    return quotient + _divide_rest(rest, denominator, turns) if rest.coefficients else quotient


def modulo(numerator: Expr, denominator: Expr) -> Expr:
    if numerator.constant is not None and denominator.constant is not None:
        return numerator.const(numerator.constant % denominator.constant)
    if _leads_negative(denominator):
        return -modulo(-numerator, -denominator)
    rest = _rest(numerator, denominator)
    mods = {atom for term in rest.coefficients for atom, _ in term if isinstance(atom, Mod)}
    if inner := {atom: atom.numerator for atom in mods if not modulo(atom.denominator, denominator).coefficients}:
        return modulo(rest.map_atoms(lambda atom: inner.get(atom) if isinstance(atom, Mod) else None), denominator)
    return _modulo_of_rest(rest, denominator) if rest.coefficients else rest


def _leads_negative(denominator: Expr) -> bool:
    if not denominator.coefficients:
        raise ZeroDivisionError("a size divided by zero")
    return denominator.coefficients[leading_monomial(denominator.coefficients)] < 0


def _split(numerator: Expr, denominator: Expr) -> tuple[Expr, Expr] | None:
    """`quotient, rest` with numerator = quotient * denominator + rest, or None where nothing divides.

    A sum divides only where that makes the numerator shorter: `(a + b + c)//(a + b)` is `1 + c//(a + b)`, but
    `a//(a + b)` stays.
    """
    quotient, rest = divide(numerator.coefficients, denominator.coefficients)
    if denominator.constant is not None and may_shorten(numerator.coefficients):
        return _split_by_number(numerator, denominator.constant)
    if not quotient or (denominator.n_terms > 1 and len(rest) >= numerator.n_terms):
        return None
    return numerator.from_terms(quotient), numerator.from_terms(rest)


def _split_by_number(numerator: Expr, divisor: int) -> tuple[Expr, Expr]:
    """The same for a numerator with related divisions: its coefficients alone do not tell what it leaves."""
    _, rest = divide(shortest(numerator.coefficients, divisor), {(): divisor})
    whole = shortest(add_multiple(numerator.coefficients, rest, (), -1))
    return numerator.from_terms(divide_out(whole, (), divisor)), numerator.from_terms(rest)


def _rest(numerator: Expr, denominator: Expr) -> Expr:
    split = _split(numerator, denominator)
    return numerator if split is None else split[1]


def _divide_rest(rest: Expr, denominator: Expr, turns: int) -> Expr:
    """`rest // denominator` where no more of the denominator can be taken out of rest."""
    if (shared := _common_factor(rest, denominator)) is not None:
        rest, denominator = _without(rest, shared), _without(denominator, shared)
        return rest if denominator.constant == 1 else _divide_rest(rest, denominator, turns)
    if (known := _constant_quotient(rest, denominator)) is not None:
        return rest.const(known)
    if _is_positive(denominator):
        if denominator.constant is None and turns and _should_mirror(rest, denominator):
            return -1 - floor_divide(-rest - 1, denominator, turns=turns - 1)
        if (shared := _ceil_factor(rest, denominator)) is not None:
            return floor_divide(_without(rest + 1, shared) - 1, _without(denominator, shared))
        if (nested := _nested_division(rest, denominator)) is not None:
            return nested
    return rest.from_atom(FloorDiv(rest, denominator))


def _modulo_of_rest(rest: Expr, denominator: Expr) -> Expr:
    if (shared := _common_factor(rest, denominator)) is not None:
        smaller = _without(rest, shared)
        return shared * modulo(smaller, _without(denominator, shared)) + (rest - shared * smaller)
    if (known := _constant_quotient(rest, denominator)) is not None:
        return rest - known * denominator
    return rest.from_atom(Mod(rest, denominator))


def _common_factor(rest: Expr, denominator: Expr) -> Expr | None:
    """What divides both. A number need not divide the constant of rest, which is then rounded, if all is positive."""
    top, bottom = rest.coefficients, denominator.coefficients
    divisor = common_divisor(top, common_divisor(bottom, bottom.get((), 0)))
    constant = top.get((), 0)
    if divisor > 1 and constant % divisor and not _is_positive(denominator):
        divisor = gcd(divisor, constant)
    shared = () if denominator.constant is not None else common_monomial([*bottom, *top])
    return None if divisor == 1 and not shared else rest.from_terms({shared: divisor})


def _ceil_factor(rest: Expr, denominator: Expr) -> Expr | None:
    """k in the ceil division `(x*k - 1)//(y*k)`, which is `(x - 1)//y`."""
    if denominator.constant is not None or rest.coefficients.get(()) != -1 or rest.n_terms == 1:
        return None
    shared = common_monomial([*denominator.coefficients, *filter(None, rest.coefficients)])
    positive = shared and all((atom.range[0] or 0) > 0 for atom, _ in shared)
    return rest.from_terms({shared: 1}) if positive else None


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


def _should_mirror(rest: Expr, denominator: Expr) -> bool:
    """Whether to write `-1 - (-r - 1)//d` for `r//d`: of a ceil division and its negative one form is to remain.

    The first term decides: it should be positive, or as a fraction of d less than a half, where d goes into its atoms.
    (Division by a number, where all terms are such, leaves that to `families`.)
    """
    lead, divisor = next(iter(denominator.coefficients.items()))
    for monomial in sorted(rest.coefficients, key=reading_order):
        coefficient = rest.coefficients[monomial]
        is_fraction = denominator.n_terms == 1 and divide_monomials(monomial, lead) is not None
        if not is_fraction or 2 * coefficient != divisor:
            return 2 * coefficient > divisor if is_fraction else coefficient < 0
    return False


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
