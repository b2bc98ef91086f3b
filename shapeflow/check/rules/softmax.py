"""SF304, SF305, SF306: softmax over the batch, over a single number, over another axis than the product behind it."""

from __future__ import annotations

from collections.abc import Iterator

from torch import fx

from shapeflow.check.axes import Axis
from shapeflow.check.batch import BATCHES
from shapeflow.check.cause.call import names_in
from shapeflow.check.nodes import dims_of, operator_of
from shapeflow.check.problem import Problem
from shapeflow.check.rules.by_hand import normalised
from shapeflow.check.rules.layer import at_its_dim
from shapeflow.check.rules.marks import (
    SOFTMAX,
    contractions,
    in_torch_layer,
    is_product,
    is_weights,
    scores_before,
    softmax_axis,
)
from shapeflow.check.rules.rule import Rule
from shapeflow.check.rules.scene import Scene


def find_batch(scene: Scene) -> Iterator[Problem]:
    """SF304. A matrix of the batch against itself (contrastive losses) is meant to be normalised over the batch."""
    for node in scene.operators(*SOFTMAX, "normalize"):
        at, shape = softmax_axis(node), scene.axes.of(node)
        if at is None or shape is None or not scene.has_batch(shape[at]) or in_torch_layer(node):
            continue
        others = [axis for index, axis in enumerate(shape) if index != at]
        if any(map(scene.has_batch, others)) or not others or node.kwargs.get("dim", 0) is None:
            continue
        if _pools_a_bag(scene, node, at, shape):
            continue
        name, axis = operator_of(node), shape[at]
        message = (
            f"{name} goes over axis {at} ({axis}), which holds the batch: one example's result depends on the others"
        )
        problem = scene.problem("SF304", node, message, dims=names_in(axis.size), fix=_right_dim(scene, node, at))
        yield at_its_dim(scene, node, problem)
    yield from normalised(scene)


def _pools_a_bag(scene: Scene, node: fx.Node, at: int, shape: tuple[Axis, ...]) -> bool:
    """Attention over the instances of a bag: a matrix whose first axis nobody calls a batch, and a sum over it."""
    if scene.batch in BATCHES or len(shape) > 2:
        return False
    return any(each.axis == at for each in contractions(scene, node))


def _right_dim(scene: Scene, node: fx.Node, at: int) -> str:
    last = len(dims_of(node)) - 1
    summed = {each.axis for each in contractions(scene, node)} - {None, at}
    wide = [index for index, dim in enumerate(dims_of(node)) if index != at and dim.value != 1]
    right = summed.pop() if len(summed) == 1 else wide[-1] if wide else last
    return f"dim={-1 if right == last else right}"


def find_single(scene: Scene) -> Iterator[Problem]:
    """SF305. A layer of one feature, or a product that sums over another axis, shows that this was not meant."""
    for node in scene.operators("softmax", "log_softmax", "gumbel_softmax"):
        at, shape = softmax_axis(node), scene.axes.of(node)
        dims = dims_of(node)
        if at is None or shape is None or dims[at].constant != 1:
            continue
        summed = {each.axis for each in contractions(scene, node)} - {None, at}
        free = [index for index, dim in enumerate(dims) if dim.value is None and not scene.has_batch(shape[index])]
        if not summed and not (shape[at].implicit or shape[at].literal):
            continue
        right = summed.pop() if len(summed) == 1 else free[-1] if free else None
        value = "0" if operator_of(node) == "log_softmax" else "1"
        message = f"{operator_of(node)} goes over axis {at}, which has size 1: every result is {value}"
        named = names_in(dims[right]) if right is not None else ("1",)
        fix = _of_one_score(node) if right is None else f"dim={right}"
        yield at_its_dim(scene, node, scene.problem("SF305", node, message, dims=named, fix=fix))


def _of_one_score(node: fx.Node) -> str:
    """A classifier with one score: nothing else is there to choose from."""
    other = "logsigmoid" if operator_of(node) == "log_softmax" else "sigmoid"
    return f"{other} of the one score, or a layer of two features"


def find_not_contracted(scene: Scene) -> Iterator[Problem]:
    """SF306. Only where queries meet keys: an assignment to clusters is summed over the points on purpose."""
    for node in scene.operators("softmax"):
        at, shape = softmax_axis(node), scene.axes.of(node)
        if at is None or shape is None or not shape[at].factors or (scene.has_batch(shape[at])):
            continue
        found = contractions(scene, node)
        axes = {each.axis for each in found}
        if len(axes) != 1 or None in axes or at in axes or any(is_weights(each.other) for each in found):
            continue
        (summed,) = axes
        assert summed is not None
        if not _attends(scene, node, at):
            continue
        one, other = shape[at], shape[summed]
        message = f"softmax goes over axis {at} ({one}), the product behind it sums over axis {summed} ({other})"
        details = ("the weights that are summed do not sum to 1",)
        fix = f"dim={summed - len(shape)}"
        dims = names_in(one.size, other.size)
        yield at_its_dim(scene, node, scene.problem("SF306", node, message, dims=dims, fix=fix, details=details))


def _attends(scene: Scene, node: fx.Node, at: int) -> bool:
    """Whether the scores compare positions with positions: a product of two computed tensors, or a length's axis."""
    if any(is_product(each) for each in scores_before(node)):
        return True
    return dims_of(node)[at].unpinned.constant is None


RULES = (
    Rule(
        "SF304",
        "softmax or normalisation over the batch",
        "error",
        """
        Weights are normalised over what they choose from. Over the batch, one example's weights depend on the others.

        wrong:
            w = torch.softmax(scores.view(b * t, n), dim=0)

        right:
            w = torch.softmax(scores.view(b * t, n), dim=-1)
        """,
        find_batch,
    ),
    Rule(
        "SF305",
        "softmax over an axis of size one",
        "error",
        """
        The softmax of a single number is 1, whatever the number: nothing is chosen and nothing is learned.

        wrong:
            w = self.score(h).softmax(dim=-1)                # Linear(d, 1): B T 1

        right:
            w = self.score(h).softmax(dim=1)
        """,
        find_single,
    ),
    Rule(
        "SF306",
        "softmax over another axis than the one contracted next",
        "error",
        """
        The weights of one query sum to 1 over the keys, the axis that the product with the values sums over.

        wrong:
            w = scores.softmax(dim=1)                        # B T S
            return w @ v                                     # v: B S d

        right:
            w = scores.softmax(dim=-1)
            return w @ v
        """,
        find_not_contracted,
    ),
)
