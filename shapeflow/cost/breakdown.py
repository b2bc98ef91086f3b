"""A cost by its parts: one operator, one module with all that runs in it, and what no rule knows.

>>> [(row.path, row.flops) for row in rows(cost)]
[('', 60*B), ('head', 60*B)]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shapeflow.dims.expr import Expr
from shapeflow.trace.result import Scope

if TYPE_CHECKING:
    from shapeflow.cost.cost import Cost


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """One operator: its name in the trace, what it is, the modules around it, its operations forward and backward.

    `activation_bytes` are what it is the first to keep for the backward.
    """

    name: str
    operator: str
    scopes: tuple[Scope, ...]
    flops: Expr
    backward_flops: Expr
    activation_bytes: Expr

    @property
    def module(self) -> str:
        """Path of the innermost module, `""` for the root."""
        return self.scopes[-1].path if self.scopes else ""


@dataclass(frozen=True, slots=True)
class CostRow:
    """One module with all that runs in it, over all its calls."""

    path: str  # "" for the whole model
    kind: str
    calls: int
    operators: int
    flops: Expr
    backward_flops: Expr
    activation_bytes: Expr

    @property
    def depth(self) -> int:
        """0 for the model, 1 for its children, ..."""
        return self.path.count(".") + 1 if self.path else 0

    @property
    def macs(self) -> Expr:
        """Multiply-adds: two operations each."""
        return self.flops // 2


@dataclass(frozen=True, slots=True)
class Unknown:
    """An operator that no rule knows: it counts as none, and is told."""

    operator: str
    modules: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.operator} (in {', '.join(path or 'the model itself' for path in self.modules)})"


def rows(cost: Cost) -> tuple[CostRow, ...]:
    """Every module that ran, in the order of definition."""
    inside: dict[str, list[OperatorCost]] = {}
    for operator in cost.operators:
        for path in dict.fromkeys(["", *(scope.path for scope in operator.scopes)]):
            inside.setdefault(path, []).append(operator)
    modules = cost.trace.modules
    paths = ["", *(path for path in modules if path and path in inside)]
    return tuple(_row(cost, path, inside.get(path, [])) for path in paths)


def _row(cost: Cost, path: str, operators: list[OperatorCost]) -> CostRow:
    info = cost.trace.modules.get(path)
    return CostRow(
        path,
        info.kind if info is not None and path else cost.name,
        1 if info is None else info.called,
        len(operators),
        *(
            sum((getattr(each, name) for each in operators), Expr.const(0))
            for name in ("flops", "backward_flops", "activation_bytes")
        ),
    )
