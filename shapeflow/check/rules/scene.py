"""What a rule looks at: a trace with the origin of every axis, the batch, and the source behind a node.

>>> for node in scene.operators("softmax", "log_softmax"):
...     axis = scene.axes.of(node)[-1]
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import fx, nn

from shapeflow.check.axes import Axes, Axis
from shapeflow.check.batch import batch_in
from shapeflow.check.nodes import name_of, record_of
from shapeflow.check.problem import Level, Problem
from shapeflow.dims.expr import Expr
from shapeflow.trace.result import Location, Trace
from shapeflow.trace.source import location


@dataclass(frozen=True, slots=True)
class Scene:
    """A trace as the rules see it."""

    trace: Trace
    axes: Axes
    batch: str | None
    root: nn.Module | None

    @staticmethod
    def of(trace: Trace) -> Scene:
        attempt = trace._attempt  # the run itself: its sizes and its modules
        return Scene(trace, Axes(trace, attempt.env), batch_in(attempt), attempt.subject.root)

    def operators(self, *names: str) -> Iterator[fx.Node]:
        """The nodes of these operators, all of them without a name."""
        for node in self.trace.graph.nodes:
            record = record_of(node)
            if record is not None and record.kind == "operator" and (not names or name_of(record) in names):
                yield node

    def is_batch(self, size: Expr) -> bool:
        """Whether a size is that of the batch, and nothing else."""
        return self.batch is not None and size is Expr.symbol(self.batch)

    def has_batch(self, axis: Axis) -> bool:
        """Whether the batch is in an axis, alone or merged with others."""
        return any(self.is_batch(factor.size) for factor in axis.factors)

    def problem(self, rule: str, node: fx.Node, message: str, **more: Any) -> Problem:
        """A problem at the line of a node."""
        level: Level = more.pop("level", "error")
        record = record_of(node)
        module = record.scopes[-1].path if record is not None and record.scopes else ""
        return Problem(rule, level, message, module=module, **more).at(line_of(node))


def line_of(node: fx.Node) -> Location | None:
    """The user's line behind a node."""
    record = record_of(node)
    return location(record.place) if record is not None else None


def call_in_line(node: fx.Node, *names: str) -> ast.Call | None:
    """The call of one of these names in the line of a node, where there is one only and the line parses."""
    where = line_of(node)
    code = "" if where is None else where.code.partition("  #")[0].rstrip(" :")
    try:
        tree = ast.parse(code.removeprefix("return "))
    except SyntaxError:
        return None
    found = [
        each
        for each in ast.walk(tree)
        if isinstance(each, ast.Call) and (getattr(each.func, "attr", None) or getattr(each.func, "id", "")) in names
    ]
    return found[0] if len(found) == 1 else None


def receiver(call: ast.Call | None, default: str = "x") -> str:
    """The tensor that a call is made on: the `y` of `y.reshape(...)` and of `torch.reshape(y, ...)`."""
    if call is None:
        return default
    if isinstance(call.func, ast.Attribute):
        owner = ast.unparse(call.func.value)
        if owner not in ("torch", "F", "nn.functional", "torch.nn.functional"):
            return owner
    return ast.unparse(call.args[0]) if call.args else default
