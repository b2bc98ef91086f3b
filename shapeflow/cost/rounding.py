"""Sizes that a model rounds from a float, as formulas: `math.ceil(T / 4)` is `(T - 1)//4 + 1`, where floats are exact.

>>> rounded(env)
{n0: 2*T}
"""

from __future__ import annotations

from typing import Any

from shapeflow.dims.atoms import Symbol
from shapeflow.dims.env import DimEnv
from shapeflow.dims.expr import Expr
from shapeflow.dims.floating import Call, Ratio

Fraction = tuple[Expr, Expr]
"""Numerator and denominator, the latter a positive number."""
NOTHING: Fraction = Expr.const(0), Expr.const(1)


def rounded(env: DimEnv) -> dict[Symbol, Expr]:
    """Formulas for the symbols of roundings; those of square roots and other functions stay names."""
    found = {symbol: _rounded(call) for symbol, call in env.computed.items()}
    return {symbol: formula for symbol, formula in found.items() if formula is not None}


def _rounded(call: Call) -> Expr | None:
    fraction = _fraction(call.arguments[0])
    if fraction is None:
        return None
    numerator, denominator = fraction
    if call.function == "floor":
        return numerator // denominator
    return -(-numerator // denominator) if call.function == "ceil" else None


def _fraction(formula: Any) -> Fraction | None:
    if isinstance(formula, Ratio):
        return _positive(formula.numerator, formula.denominator)
    if not isinstance(formula, Call) or formula.function not in ("neg", "add", "sub", "mul", "truediv"):
        return None
    parts = [part for part in map(_fraction, formula.arguments) if part is not None]
    if len(parts) < len(formula.arguments):
        return None
    return _combined(formula.function, *parts)


def _combined(function: str, left: Fraction, right: Fraction = NOTHING) -> Fraction | None:
    (a, b), (c, d) = left, right
    match function:
        case "neg":
            return -a, b
        case "add":
            return a * d + c * b, b * d
        case "sub":
            return a * d - c * b, b * d
        case "mul":
            return a * c, b * d
        case _:
            return _positive(a * d, b * c)


def _positive(numerator: Expr, denominator: Expr) -> Fraction | None:
    """None where the sign of the denominator is not known."""
    number = denominator.value
    if number is None or number == 0:
        return None
    return (numerator, denominator) if number > 0 else (-numerator, -denominator)
