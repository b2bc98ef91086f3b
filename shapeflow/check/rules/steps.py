"""More of SF308: code that means a step of time, or all of them, and names the axis of the batch.

out, _ = self.rnn(x)              # batch_first=True: B T d
return self.head(out[-1])         # all steps of the last example
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from torch import fx

from shapeflow.check.axis import Shape, axes_named
from shapeflow.check.batch import BATCHES
from shapeflow.check.cause.call import names_in
from shapeflow.check.nodes import argument, dims_of, operator_of, record_of
from shapeflow.check.problem import Problem
from shapeflow.check.rules.operand import parsed_line
from shapeflow.check.rules.scene import Scene, call_in_line, receiver
from shapeflow.trace.view import KEEPS_AXES

RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
POOLS = ("mean", "sum", "amax", "max", "logsumexp", "nansum")


def last_examples(scene: Scene) -> Iterator[Problem]:
    """`out[-1]` of a recurrent layer, where that axis is the batch."""
    for node in scene.operators("getitem"):
        shape, index = scene.axes.of(node.args[0]), node.args[1]
        parts = index if isinstance(index, tuple) else (index,)
        if not shape or len(shape) != 3 or not _from_recurrent(node.args[0]) or not _names_last(parts):
            continue
        at = len(parts) - 1
        time = _time(scene, shape, at)
        if scene.has_batch(shape[at]) and time is not None:
            message = f"index -1 on axis {at} ({shape[at]}) takes the last example of the batch, not the last step"
            fix = f"{_indexed(node)}[{':, ' * time}-1]"
            yield scene.problem("SF308", node, message, dims=names_in(shape[at].size), fix=fix)


def _indexed(node: fx.Node) -> str:
    """What the index is written behind, the `out` of `out[-1]`; the tensor's own name where the line does not tell."""
    found = [each for each in ast.walk(parsed_line(node)) if isinstance(each, ast.Subscript)]
    last = [each for each in found if ast.unparse(each.slice).rstrip(")").endswith("-1")]
    return ast.unparse(last[0].value) if last else str(node.args[0])


def _names_last(parts: tuple[Any, ...]) -> bool:
    """Whether an index is all of some axes, and the last of one."""
    return parts[-1] == -1 and all(part == slice(None) for part in parts[:-1])


def _from_recurrent(node: Any) -> bool:
    """Whether a tensor is what a recurrent layer gives, an element at a time since then."""
    while isinstance(node, fx.Node) and node.args:
        if record_of(node) is None:
            return operator_of(node.args[0]) in RECURRENT
        if operator_of(node) not in KEEPS_AXES:
            return False
        node = node.args[0]
    return False


def _time(scene: Scene, shape: Shape, batch: int) -> int | None:
    """The axis that -1 was meant for: the first or second one that is no batch."""
    other = 1 - batch if batch < 2 else None
    return other if other is not None and not scene.has_batch(shape[other]) else None


def more_examples(scene: Scene) -> Iterator[Problem]:
    """A parameter of one row, given to every step, joined to the examples: a token that was meant for the front."""
    for node in scene.operators("cat", "concat", "concatenate"):
        parts, at = argument(node, 0, "tensors"), argument(node, 1, "dim", 0)
        shapes = [scene.axes.of(part) for part in parts] if isinstance(parts, tuple | list) else []
        if not isinstance(at, int) or len(shapes) != 2 or not all(each and len(each) == 3 for each in shapes):
            continue
        one, many = sorted((each for each in shapes if each), key=lambda each: bool(each[at].factors))
        other = 1 - at % 3
        if at % 3 > 1 or one[at].factors or not scene.has_batch(many[at]) or not one[other].factors:
            continue
        if one[other].constant and one[other].size is many[other].size and not scene.has_batch(many[other]):
            message = f"{operator_of(node)} along axis {at % 3} ({many[at]}) makes one more example of the batch"
            dims = names_in(many[at].size)
            fix = f"expand it along axis {at % 3}, and dim={other} in the {operator_of(node)}"
            yield scene.problem("SF308", node, message, dims=dims, fix=fix)


def pooled_examples(scene: Scene) -> Iterator[Problem]:
    """`x.mean(0)` of (B, T, d) before a layer, and a result for every step without a batch."""
    if scene.batch not in BATCHES or not _lost(scene):
        return
    for node in scene.operators(*POOLS):
        shape = scene.axes.of(node.args[0]) if node.args else None
        at = axes_named(argument(node, 1, "dim", node.kwargs.get("axis")), len(shape)) if shape else None
        if not shape or len(shape) < 3 or at is None or len(at) != 1 or len(dims_of(node)) == len(shape):
            continue
        (batch,) = at
        rest = [
            place for place, axis in enumerate(shape) if place != batch and dims_of(node.args[0])[place].value is None
        ]
        if not scene.has_batch(shape[batch]) or not rest or any(scene.has_batch(shape[each]) for each in rest):
            continue
        if any(operator_of(user) == "linear" for user in node.users):
            name = operator_of(node)
            message = f"{name} goes over axis {batch} ({shape[batch]}), the batch, and leaves {shape[rest[0]]}"
            fix = f"{receiver(call_in_line(node, name))}.{name}({rest[0]})"
            yield scene.problem("SF308", node, message, dims=names_in(shape[batch].size), fix=fix)


def _lost(scene: Scene) -> bool:
    """Whether no output has the batch, and one has another free axis."""
    shapes = [edge.shape.dims for edge in scene.trace.outputs]
    axes = [dim for dims in shapes for dim in dims]
    return any(dim.value is None for dim in axes) and not any(scene.batch in names_in(dim) for dim in axes)
