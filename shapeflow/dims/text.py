"""Printing of `Expr` (parsing follows)."""

from __future__ import annotations

from shapeflow.dims.expr import Expr


def show(expr: Expr) -> str:
    return " + ".join(
        "*".join([str(c)] * (c != 1 or not m) + [f"{a}" + (f"^{p}" if p > 1 else "") for a, p in m])
        for m, c in expr.coefficients.items()
    ) or "0"
