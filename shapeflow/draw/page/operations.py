"""Operations of one forward for each operator of a trace, for the page's panel.

>>> to_html(trace.to_networkx(), operations=operations_of(trace))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shapeflow.dims.expr import Expr

if TYPE_CHECKING:
    from shapeflow.trace.result import Trace


@dataclass(frozen=True, slots=True)
class Operations:
    """FLOPs as formulas by node name; `unknown` are operators that no rule counts, with the modules around them."""

    flops: Mapping[str, Expr]
    unknown: tuple[str, ...] = ()


def operations_of(trace: Trace) -> Operations:
    """What `sf.cost` counts. Raises ShapeflowError where it cannot."""
    from shapeflow.cost.cost import cost

    counted = cost(trace)
    flops = {call.name: flops for call, flops in zip(counted.calls, counted.forward, strict=True)}
    return Operations(flops, tuple(map(str, counted.unknown)))
