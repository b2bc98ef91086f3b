"""SF303: what was taken from the rows of a square matrix, aligned with its columns."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import fx

from shapeflow.check.axes import Axis, Shape
from shapeflow.check.cause.call import names_in
from shapeflow.check.nodes import name_of, record_of, tensors_of
from shapeflow.check.problem import Problem
from shapeflow.check.rules.rule import Rule
from shapeflow.check.rules.scene import Scene, call_in_line
from shapeflow.trace.view import KEEPS_AXES

SHARED_OUT = ("div", "truediv", "sub", "mul", "where", "masked_fill")
"""Operators that take a vector of a matrix off that matrix; of the products those with a reciprocal."""
REDUCTIONS = frozenset("sum mean amax amin max min prod std var norm logsumexp any all nansum".split())


@dataclass(frozen=True, slots=True)
class Vector:
    """What a reduction left of a matrix; `path` are the operators since then, an element at a time, last first."""

    reduction: fx.Node
    start: fx.Node
    path: tuple[fx.Node, ...]


def find(scene: Scene) -> Iterator[Problem]:
    """`a / a.sum(1)` of a square `a`: the sums of the rows divide the columns."""
    for node in scene.operators(*SHARED_OUT):
        pair = _pair(scene, node)
        vector = _vector(scene, pair[1]) if pair is not None else None
        if pair is None or vector is None or not _same(_start(pair[0]), vector.start):
            continue
        if name_of(record_of(node)) == "mul" and not any(map(_is_reciprocal, vector.path)):
            continue  # a product with the root of sums is one half of D^-1/2 A D^-1/2
        if _has_another(scene, node, pair[0], vector):
            continue
        places = _misaligned(scene.axes.of(pair[0]) or (), scene.axes.of(pair[1]) or ())
        if places is not None:
            yield _problem(scene, node, vector, *places)


def _pair(scene: Scene, node: fx.Node) -> tuple[fx.Node, fx.Node] | None:
    """A matrix and what has fewer axes, those of size one aside."""
    found = [
        (sum(bool(axis.factors) for axis in shape), each) for each in tensors_of(node) if (shape := scene.axes.of(each))
    ]
    if len(found) != 2 or found[0][0] == found[1][0]:
        return None
    (_, vector), (_, matrix) = sorted(found, key=lambda each: each[0])
    return matrix, vector


def _vector(scene: Scene, node: fx.Node) -> Vector | None:
    path: list[fx.Node] = []
    for each in _back(node):
        shape, before = scene.axes.of(each), scene.axes.of(each.args[0]) if each.args else None
        if shape is not None and before is not None and len(before) > len(shape):
            name = name_of(record_of(each))
            if not name and isinstance(each.args[0], fx.Node):  # the values of `max(1)`
                each, name = each.args[0], name_of(record_of(each.args[0]))
            return Vector(each, _start(each.args[0]), tuple(path)) if name in REDUCTIONS else None
        path.append(each)
    return None


def _same(one: fx.Node, other: fx.Node) -> bool:
    """One tensor, or the same part of one: `a[0]` twice."""
    return one is other or (one.op, one.target, one.args, one.kwargs) == (
        other.op,
        other.target,
        other.args,
        other.kwargs,
    )


def _start(node: Any) -> fx.Node:
    """Where a tensor comes from, one element at a time since then."""
    *_, start = _back(node)
    return start


def _back(node: Any) -> Iterator[fx.Node]:
    while isinstance(node, fx.Node):
        yield node
        record = record_of(node)
        if record is not None and not (record.kind == "operator" and _keeps_elements(node, name_of(record))):
            return
        node = node.args[0] if node.args else None


def _keeps_elements(node: fx.Node, name: str) -> bool:
    if name == "getitem":
        index = node.args[1] if isinstance(node.args[1], tuple) else (node.args[1],)
        return all(part in (None, Ellipsis, slice(None)) for part in index)
    return name in KEEPS_AXES or name in ("unsqueeze", "rdiv")


def _is_reciprocal(node: fx.Node) -> bool:
    name = name_of(record_of(node))
    return name in ("reciprocal", "rdiv") or (name == "pow" and bool(node.args[1] == -1))


def _has_another(scene: Scene, node: fx.Node, matrix: fx.Node, vector: Vector) -> bool:
    """Whether both sides of a matrix get their share: another vector of it goes into it, before or right behind."""
    near = [other for each in _back(matrix) for other in tensors_of(each)[1:]]
    near += [other for user in node.users for other in tensors_of(user) if other is not node]
    others = (_vector(scene, each) for each in near if scene.axes.of(each))  # a scalar has no side
    return any(other is not None and _same(other.start, vector.start) for other in others)


def _misaligned(matrix: Shape, vector: Shape) -> tuple[Axis, int, int] | None:
    """An axis of the vector, where the matrix has the axis that it stems from, and the place it is aligned with."""
    for back, axis in enumerate(reversed(vector), start=1):
        against = matrix[-back] if back <= len(matrix) else None
        if against is None or not axis.factors or not against.factors or axis.factors == against.factors:
            continue
        own = next((place for place, each in enumerate(matrix) if each.factors == axis.factors), None)
        if own is not None:
            return axis, own, len(matrix) - back
    return None


def _problem(scene: Scene, node: fx.Node, vector: Vector, axis: Axis, own: int, aligned: int) -> Problem:
    name = name_of(record_of(vector.reduction))
    call = call_in_line(vector.reduction, name)
    text = ast.unparse(call) if call is not None else f"the {name}"
    message = f"{name_of(record_of(node))}: {text} has axis {own} of the matrix, and is aligned with its axis {aligned}"
    kept = call is not None and (call.args or call.keywords)
    fix = f"{text[:-1]}, keepdim=True)" if kept else f"keepdim=True in the {name}"
    return scene.problem("SF303", node, f"{message}, both {axis}", dims=names_in(axis.size), fix=fix)


RULES = (
    Rule(
        "SF303",
        "a vector is aligned with the wrong of two equal axes",
        "error",
        """
        Broadcasting aligns from the last axis. The sums over the last axis of a square matrix belong to its rows.

        wrong:
            return a / a.sum(1)                              # a: N N

        right:
            return a / a.sum(1, keepdim=True)
        """,
        find,
    ),
)
