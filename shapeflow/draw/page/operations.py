"""Operations of one forward for each operator of a trace, for drawings, for the page's panel, for a saved trace.

>>> to_html(trace.to_networkx(), operations=operations_of(trace))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shapeflow.graph.operations import Operations

if TYPE_CHECKING:
    from shapeflow.trace.result import Trace


def operations_of(trace: Trace) -> Operations:
    """What `sf.cost` counts. Raises ShapeflowError where it cannot."""
    from shapeflow.cost.cost import cost

    counted = cost(trace)
    flops = {call.name: flops for call, flops in zip(counted.calls, counted.forward, strict=True)}
    return Operations(flops, tuple(map(str, counted.unknown)))
