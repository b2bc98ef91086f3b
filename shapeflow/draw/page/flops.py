"""Operations of one forward for each operator of a trace, for the page's panel.

>>> to_html(trace.to_networkx(), flops=flops_of(trace))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shapeflow.dims.expr import Expr

if TYPE_CHECKING:
    from shapeflow.trace.result import Trace


def flops_of(trace: Trace) -> dict[str, Expr]:
    """FLOPs as formulas by node name. Raises ShapeflowError where they cannot be counted."""
    from shapeflow.cost.cost import cost

    counted = cost(trace)
    return {call.name: flops for call, flops in zip(counted.calls, counted.forward, strict=True)}
