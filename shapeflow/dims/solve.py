"""The size of one name that makes a difference zero.

>>> solve(5 * T - 40, env)
('T', 8)
>>> solve(H % 32, env)          # H was taken as 67: the next that divides
('H', 96)
"""

from __future__ import annotations

from shapeflow.dims.atoms import Symbol
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
