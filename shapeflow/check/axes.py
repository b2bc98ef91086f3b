"""Where each axis of each tensor comes from: an axis is a row of factors, each with an origin of its own.

>>> axes = Axes(trace, env)
>>> axes.of(node)           # of `x.view(b * t, d)`: the first axis is made of two
(Axis((Factor(B), Factor(T))), Axis((Factor(d),)))

Views split and merge factors, transposes move axes, elementwise operators pair them. What an operator that is not known
here makes has factors of its own, so that no finding comes of ignorance.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from torch import fx

from shapeflow.check.axis import Axis, Factor, Recut, Shape
from shapeflow.check.axis_rules import RULES
from shapeflow.check.nodes import operator_of, record_of
from shapeflow.dims.env import DimEnv
from shapeflow.dims.expr import Expr
from shapeflow.dims.relation import Relation
from shapeflow.trace.result import Trace

__all__ = ["Axes", "Axis", "Factor", "Recut", "Shape"]


@dataclass(slots=True)
class Axes:
    """The axes of every node of a trace, and the views that re-cut them."""

    trace: Trace
    env: DimEnv
    recuts: list[Recut] = field(default_factory=list)
    known: dict[fx.Node, tuple[Shape, ...]] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=count)
    _hints: dict[Expr, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in self.trace.graph.nodes:
            shapes = self._shapes(node)
            if shapes is not None:
                self.known[node] = shapes

    def of(self, node: Any, output: int = 0) -> Shape | None:
        """The axes of a node's output; None for what is no tensor."""
        shapes = self.known.get(node) if isinstance(node, fx.Node) else None
        return shapes[output] if shapes is not None and output < len(shapes) else None

    def constant(self, value: Any) -> Any:
        """What a `get_attr` node holds that is no tensor: an Ellipsis in an index."""
        attributes = self.trace._attempt.recorder.writer.attributes  # the trace has no public way to them
        if isinstance(value, fx.Node) and value.op == "get_attr" and record_of(value) is None:
            return attributes.get(str(value.target), value)
        return value

    # Nodes

    def _shapes(self, node: fx.Node) -> tuple[Shape, ...] | None:
        record = record_of(node)
        if record is None:
            if node.target is operator.getitem and isinstance(node.args[1], int):
                shape = self.of(node.args[0], node.args[1])
                return None if shape is None else (shape,)
            return None
        sizes = [signature.shape.dims for signature in record.outputs]
        return tuple(self._made(node, dims, index) for index, dims in enumerate(sizes))

    def _made(self, node: fx.Node, dims: Sequence[Expr], output: int) -> Shape:
        name = operator_of(node)
        rule = RULES.get(name)
        found = rule(self, node, dims, output) if rule is not None else None
        if found is None or len(found) != len(dims):
            return self.fresh(dims)
        return self._distinct([self._sized(axis, dim) for axis, dim in zip(found, dims, strict=True)])

    def _sized(self, axis: Axis, dim: Expr) -> Axis:
        """The axis if it has this size; else one of its own, kin to nothing."""
        if dim.value == 1:
            return replace(axis, factors=())
        return axis if axis.factors and self.equal(axis.size, dim) else self.axis(dim)

    def _distinct(self, shape: Sequence[Axis]) -> Shape:
        """The two axes of `x @ x.T` stem from one, and are two all the same: both get origins of their own."""
        ids = [factor.id for axis in shape for factor in axis.factors]
        if len(set(ids)) == len(ids):
            return tuple(shape)
        return tuple(
            replace(axis, factors=tuple(self._alone(each) if ids.count(each.id) > 1 else each for each in axis.factors))
            for axis in shape
        )

    def _alone(self, factor: Factor) -> Factor:
        return Factor((next(self._numbers),), factor.size, factor.trait)

    def fresh(self, dims: Iterable[Expr], *, implicit: bool = False) -> Shape:
        """Axes with origins of their own."""
        return tuple(self.axis(dim, implicit=implicit) for dim in dims)

    def axis(self, size: Expr, *, implicit: bool = False, trait: str = "") -> Axis:
        if size.value == 1:
            return Axis((), implicit)
        return Axis((Factor((next(self._numbers),), size, trait),))

    # Sizes

    def equal(self, one: Expr, other: Expr) -> bool:
        """Whether two sizes are known to be equal."""
        if one.unpinned is other.unpinned:
            return True
        return self.hint(one) == self.hint(other) and self.env.decide(Relation("==", one - other)) is True

    def hint(self, size: Expr) -> int:
        """The number that stood for a size in this run."""
        known = self._hints.get(size)
        if known is None:
            known = self._hints[size] = self.env.hint(size)
        return known
