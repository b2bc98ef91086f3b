"""The value that one axis of a spec is read into.

>>> str(Dim(Expr.symbol("T"), "T", high=512))
'T<=512'
"""

from __future__ import annotations

from dataclasses import dataclass

from shapeflow.dims.expr import Expr


@dataclass(frozen=True, slots=True)
class Dim:
    """One axis: `T` has `expr` and `name`, `3` and `2*T` only an `expr`, `*batch` only a `name`, `_` and `...` neither.

    `H=224` is a pinned symbol; `d=h*k` an expression under the name `d`. `?x` may differ at every leaf of a tree, so it
    keeps `x` as a label and has no `expr`. Bounds are inclusive; without one, a size is at least 1.
    """

    expr: Expr | None = None
    name: str | None = None
    broadcast: bool = False
    variadic: bool = False
    low: int | None = None
    high: int | None = None

    def __str__(self) -> str:
        mark = "#" if self.broadcast else ""
        if self.variadic:
            return f"{mark}*{self.name}" if self.name else "..."
        if self.expr is None:
            return f"{mark}?{self.name}" if self.name else "_"
        return mark + _size_text(self.expr, self.name) + _bound_text(">=", self.low) + _bound_text("<=", self.high)


def _size_text(expr: Expr, name: str | None) -> str:
    size = str(expr).replace(" ", "")
    if name is None:
        return size
    if size != name:
        return f"{name}={size}"
    return name if expr.value is None else f"{name}={expr.value}"


def _bound_text(relation: str, bound: int | None) -> str:
    return "" if bound is None else f"{relation}{bound}"
