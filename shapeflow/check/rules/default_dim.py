"""SF314: functions whose default axis was made for matrices, on a tensor of rank three."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch import fx

from shapeflow.check.batch import TIMES
from shapeflow.check.cause import written_call
from shapeflow.check.cause.call import names_in
from shapeflow.check.nodes import dims_of, operator_of, record_of
from shapeflow.check.problem import Problem
from shapeflow.check.rules.layer import at_its_dim
from shapeflow.check.rules.rule import Rule
from shapeflow.check.rules.scene import Scene, call_in_line
from shapeflow.dims.expr import Expr

POSITION = {"normalize": 2, "cosine_similarity": 2}
"""Where `dim` stands among the arguments of the functions that take axis 1 without one."""


def find(scene: Scene) -> Iterator[Problem]:
    for node in scene.operators("softmax", "log_softmax", "softmin"):
        if node.kwargs.get("dim", 0) is None and len(dims_of(node)) == 3:
            yield _problem(scene, node, dims_of(node), 0)
    for node in scene.operators(*POSITION):
        dims = _broadcast(node)
        if len(dims) == 3 and _is_time(dims[1], dims[2]) and _says_nothing(scene, node):
            yield _problem(scene, node, dims, 1)


def _broadcast(node: fx.Node) -> tuple[Expr, ...]:
    """The sizes that the function goes over: of both vectors for a similarity."""
    shapes = [dims_of(each) for each in node.args[:2] if isinstance(each, fx.Node)]
    if not shapes or len({len(shape) for shape in shapes}) != 1:
        return ()
    return tuple(next((dim for dim in axis if dim.value != 1), axis[0]) for axis in zip(*shapes, strict=True))


def _is_time(middle: Expr, last: Expr) -> bool:
    """Whether the features are last: numbers there alone; of two free sizes, by their names."""
    if _is_feature(last):
        return not _is_feature(middle)
    return str(middle) in TIMES and str(last) not in TIMES and not _is_feature(middle)


def _is_feature(dim: Expr) -> bool:
    """Whether a size is the model's own: a number, where positions are free."""
    return dim.value is not None and dim.value > 1


def _says_nothing(scene: Scene, node: fx.Node) -> bool:
    """Whether the call leaves `dim` out, as it is written."""
    record = record_of(node)
    scope = record.scopes[-1] if record is not None and record.scopes else None
    if scope is not None and scope.kind == "CosineSimilarity" and scene.root is not None:
        written = written_call(scene.root, scope.path)
        return written is not None and not written.open and written.argument("dim") is None
    call = call_in_line(node, operator_of(node))
    if call is None:
        return False
    starred = any(isinstance(each, ast.Starred) for each in call.args)
    return not starred and len(call.args) <= POSITION[operator_of(node)] and not _named(call)


def _named(call: ast.Call) -> bool:
    return any(each.arg in ("dim", None) for each in call.keywords)


def _problem(scene: Scene, node: fx.Node, dims: tuple[Expr, ...], axis: int) -> Problem:
    name = operator_of(node)
    shape = ", ".join(map(str, dims))
    message = f"{name} without a dim goes over axis {axis} ({dims[axis]}) of ({shape}), not over the last one"
    problem = scene.problem("SF314", node, message, dims=names_in(dims[axis]), fix="dim=-1")
    return at_its_dim(scene, node, problem)


RULES = (
    Rule(
        "SF314",
        "a default dim on a tensor of rank three",
        "error",
        """
        F.normalize and F.cosine_similarity go over axis 1 when nobody says otherwise, softmax over axis 0 of a tensor
        of rank three. Of (B, T, d) that is time, and the batch.

        wrong:
            x = F.normalize(x)                               # B T d

        right:
            x = F.normalize(x, dim=-1)
        """,
        find,
    ),
)
