"""How the nodes of a trace's graph are read: who made each, with what arguments, of which sizes.

>>> operator_of(node), dims_of(node), argument(node, 1, "dim")
('softmax', (B, T, S), -1)
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from torch import fx

from shapeflow.dims.expr import Expr
from shapeflow.trace.traced import Record


def record_of(node: Any) -> Record | None:
    record = node.meta.get("shapeflow") if isinstance(node, fx.Node) else None
    return record if isinstance(record, Record) else None


def name_of(record: Record | None) -> str:
    """The operator's name, in place or not."""
    return "" if record is None else record.operator.rstrip("_") if record.operator != "_" else "_"


def operator_of(node: Any) -> str:
    """The name of a node's operator, `""` for what is none."""
    record = record_of(node)
    return name_of(record) if record is not None and record.kind == "operator" else ""


def tensors_of(node: fx.Node) -> list[fx.Node]:
    """The nodes that a node reads."""
    return [each for each in node.all_input_nodes if "size" not in each.meta]


def behind(node: Any, operators: Collection[str]) -> Any:
    """What stands behind these operators, back along the first argument of each."""
    while operator_of(node) in operators and node.args:
        node = node.args[0]
    return node


def argument(node: fx.Node, index: int, name: str, default: Any = None) -> Any:
    """An argument by its name or place."""
    return node.kwargs.get(name, node.args[index] if len(node.args) > index else default)


def numbers_of(args: Any, kwargs: Any) -> list[int]:
    """The whole numbers among the arguments, those in lists too."""
    found: list[int] = []
    for value in [*args, *kwargs.values()]:
        if isinstance(value, tuple | list):
            found.extend(numbers_of(value, {}))
        elif isinstance(value, int) and not isinstance(value, bool):
            found.append(value)
    return found


def dims_of(node: Any) -> tuple[Expr, ...]:
    """The sizes of a node's first output."""
    record = record_of(node)
    return record.outputs[0].shape.dims if record is not None and record.outputs else ()
