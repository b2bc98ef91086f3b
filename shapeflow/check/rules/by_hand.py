"""More of SF304: a layer norm written by hand whose mean and deviation go over the batch.

mean, std = x.mean(0, keepdim=True), x.std(0, keepdim=True)       # x: B T d
return self.g * (x - mean) / std + self.b
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import fx

from shapeflow.check.axis import axes_named
from shapeflow.check.cause.call import names_in
from shapeflow.check.nodes import argument, behind, dims_of, operator_of, record_of, tensors_of
from shapeflow.check.problem import Problem
from shapeflow.check.rules.scene import Scene, call_in_line, receiver

QUOTIENTS = ("div", "truediv", "mul")
BETWEEN = ("sqrt", "rsqrt", "add", "clamp", "clamp_min", "pow", "reciprocal", "unsqueeze")


def normalised(scene: Scene) -> Iterator[Problem]:
    """(x - mean) / deviation over the batch alone, of rank three or more, and scaled by a parameter of features."""
    for node in scene.operators("sub"):
        one, mean = node.args[0], _reduction(node.args[1], ("mean",))
        at = _over_batch(scene, one, mean)
        if mean is None or at is None or not any(_is_scaled(user, one, at, scene) for user in node.users):
            continue
        axis = (scene.axes.of(one) or ())[at]
        message = (
            f"mean goes over axis {at} ({axis}), which holds the batch: one example's result depends on the others"
        )
        fix = f"{receiver(call_in_line(mean, 'mean'))}.mean(-1, keepdim=True)"
        yield scene.problem("SF304", mean, message, dims=names_in(axis.size), fix=fix)


def _reduction(node: Any, names: tuple[str, ...]) -> fx.Node | None:
    """The reduction behind what is taken off."""
    found = behind(node, BETWEEN)
    return found if operator_of(found) in names else None


def _over_batch(scene: Scene, one: Any, reduction: fx.Node | None) -> int | None:
    """The axis of the batch, where a reduction of `one` goes over it alone and other axes are free."""
    shape = scene.axes.of(one)
    if reduction is None or not shape or len(shape) < 3 or reduction.args[0] is not one:
        return None
    at = axes_named(argument(reduction, 1, "dim", reduction.kwargs.get("axis")), len(shape))
    if at is None or len(at) != 1 or not scene.has_batch(shape[min(at)]):
        return None
    rest = [dim for place, dim in enumerate(dims_of(one)) if place not in at]
    return min(at) if any(dim.value is None for dim in rest) else None


def _is_scaled(user: fx.Node, one: Any, at: int, scene: Scene) -> bool:
    """Whether the deviation goes over the same axis, and a parameter scales the quotient or the difference."""
    if operator_of(user) not in QUOTIENTS:
        return False
    chain = [user, *user.users, *(each for user in user.users for each in user.users)]
    read = [other for each in chain for other in tensors_of(each)]
    deviations = (_reduction(each, ("std", "var")) for each in read)
    vectors = [record for each in read if (record := record_of(each)) is not None and record.kind == "parameter"]
    return any(_over_batch(scene, one, each) == at for each in deviations) and any(
        len(record.outputs[0].shape.dims) == 1 for record in vectors
    )
