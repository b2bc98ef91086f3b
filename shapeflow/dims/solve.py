"""The size of one name that makes a difference zero.

>>> solve(5 * T - 40, env)
('T', 8)
>>> solve(H % 32, env)          # H was taken as 67: the next that divides
('H', 96)
"""

from __future__ import annotations

from collections.abc import Iterable

from shapeflow.dims.atoms import FloorDiv, Mod, Symbol, children
from shapeflow.dims.env import DimEnv
from shapeflow.dims.expr import Expr
from shapeflow.dims.relation import without_common_symbols

FARTHEST = 4096


def solve(difference: Expr, env: DimEnv) -> tuple[str, int] | None:
    """A free name and its size; None when no single name does it."""
    difference = without_common_symbols(difference)
    symbols = [symbol for symbol in env.hints if symbol in difference.symbols]  # in the order of the inputs
    if len(symbols) != len(difference.symbols) or env.fresh.keys() & symbols or env.definitions.keys() & symbols:
        return None
    if any(not isinstance(atom, Symbol) for monomial, _ in difference.terms for atom, _ in monomial):
        return next((found for symbol in reversed(symbols) if (found := _search(difference, symbol, env))), None)
    if len(symbols) != 1:
        return None
    (symbol,) = symbols
    zero, one = (difference.evaluate({symbol: number}) for number in (0, 1))
    slope = one - zero
    if slope == 0 or zero % slope or -zero // slope < 1:
        return None
    found = -zero // slope
    return (symbol.name, found) if difference.evaluate({symbol: found}) == 0 else None


def _search(difference: Expr, symbol: Symbol, env: DimEnv) -> tuple[str, int] | None:
    """The next size of this name that does it, the others as they are: most often a multiple."""
    start = env.hints[symbol]
    for number in range(start, start + FARTHEST):
        if difference.evaluate({**env.hints, symbol: number}) == 0:
            return symbol.name, number
    return None


def solve_for_any(difference: Expr, env: DimEnv, *, beside: Iterable[Expr] = ()) -> tuple[str, int] | None:
    """A size of one of several names that makes the difference zero, and leaves those `beside` it zero if it can.

    For sizes that a constructor divides by one another: what is divided is changed before what it is divided by, and
    quotients stay above 2, so that no axis looks like a constant.
    """
    names = [symbol for symbol in env.hints if symbol in difference.symbols]
    if len(names) != len(difference.symbols) or env.fresh.keys() & names or env.definitions.keys() & names:
        return None
    divisors = {symbol for division in divisions_in(difference) for symbol in division.denominator.symbols}
    order = sorted(names, key=lambda symbol: (symbol in divisors, -names.index(symbol)))
    known = [each for each in beside if each.symbols <= env.hints.keys()]
    for others in (known, []) if known else ([],):
        for symbol in order:
            for number in range(2, FARTHEST):
                sizes = {**env.hints, symbol: number}
                zero = number != env.hints[symbol] and all(each.evaluate(sizes) == 0 for each in (difference, *others))
                if zero and _is_sound(difference, sizes):
                    return symbol.name, number
    return None


def divisions_in(expr: Expr) -> Iterable[FloorDiv | Mod]:
    """Every `//` and `%` in an expression, inner ones too."""
    for monomial, _ in expr.terms:
        for atom, _ in monomial:
            if isinstance(atom, FloorDiv | Mod):
                yield atom
            for part in children(atom):
                yield from divisions_in(part)


def _is_sound(difference: Expr, sizes: dict[Symbol, int]) -> bool:
    return all(
        division.numerator.evaluate(sizes) // division.denominator.evaluate(sizes) > 2
        for division in divisions_in(difference)
        if division.denominator.constant is None
    )
