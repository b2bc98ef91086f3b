"""The parts that a model's operations fall into, by what does them: feed-forwards, projections, attention, the head.

Products with parameters belong to the kind of the module around the layer; products of two tensors that were both
computed are its scores: attention, as a rule.

>>> [(part.name, part.flops) for part in parts(cost)]
[('GPT2MLP', 12582912*B*T), ('GPT2Attention', ...), ('GPT2Attention, scores', 6144*B*T^2)]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shapeflow.cost.calls import Call, root_of
from shapeflow.dims.expr import Expr

if TYPE_CHECKING:
    from shapeflow.cost.cost import Cost
    from shapeflow.trace.result import ModuleInfo

CONTAINERS = frozenset({"Sequential", "ModuleList", "ModuleDict"})
HELD = frozenset({"parameter", "buffer"})


@dataclass(frozen=True, slots=True)
class Part:
    """Operations of one forward that are alike."""

    name: str
    flops: Expr


def parts(cost: Cost) -> tuple[Part, ...]:
    """All parts that have operations, in the order of first running."""
    modules = cost.trace.modules
    parents = {path.rpartition(".")[0] for path in modules if path}
    found: dict[str, Expr] = {}
    for call, operator in zip(cost.calls, cost.forward, strict=True):
        if operator.constant != 0:
            name = _name(cost.name, call, modules, parents)
            found[name] = found.get(name, Expr.const(0)) + operator
    return tuple(Part(name, flops) for name, flops in found.items())


def _name(model: str, call: Call, modules: dict[str, ModuleInfo], parents: set[str]) -> str:
    """The kind of the innermost module that holds layers: the model itself for layers that are its own."""
    around = [scope for scope in call.record.scopes if scope.path in parents and scope.kind not in CONTAINERS]
    owner = around[-1].kind if around else model
    return owner if _reads_parameters(call) else f"{owner}, scores"


def _reads_parameters(call: Call) -> bool:
    return any(root_of(tensor).record.kind in HELD for tensor in call.reads)
