"""What each operator of a graph costs, where somebody counted it; a saved trace may hold it, as `"operations"`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shapeflow.dims.expr import Expr


@dataclass(frozen=True, slots=True)
class Operations:
    """FLOPs as formulas by node name; `unknown` are operators that no rule counts, with the modules around them."""

    flops: Mapping[str, Expr]
    unknown: tuple[str, ...] = ()
