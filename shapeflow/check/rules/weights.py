"""SF304 and SF306: weights that are normalised over the batch, or over another axis than they are summed over."""

from __future__ import annotations

from collections.abc import Iterator

from torch import fx

from shapeflow.check.axes import Axis, name_of, record_of
from shapeflow.check.problem import Problem
from shapeflow.check.rules.rule import Rule
from shapeflow.check.rules.scene import Scene, names_of

SOFTMAX = ("softmax", "log_softmax", "softmin", "gumbel_softmax")
TORCHS = ("MultiheadAttention", "TransformerEncoderLayer", "TransformerDecoderLayer")
ON = frozenset(
    """dropout to float half bfloat16 type_as contiguous clone masked_fill view reshape flatten unflatten transpose
    permute unsqueeze squeeze mul div detach nan_to_num getitem""".split()
)
"""Operators behind which the weights are still weights."""


def axis_of(scene: Scene, node: fx.Node) -> Axis | None:
    """The axis that a softmax goes over."""
    given = node.kwargs.get("dim", node.args[1] if len(node.args) > 1 else None)
    shape = scene.axes.of(node)
    if not isinstance(given, int) or shape is None or not -len(shape) <= given < len(shape):
        return None
    return shape[given]


def _own(scene: Scene, *names: str) -> Iterator[fx.Node]:
    """These operators, but for those inside of torch's own layers: what is wrong there is how they are called."""
    for node in scene.operators(*names):
        record = record_of(node)
        if record is not None and not any(scope.kind in TORCHS for scope in record.scopes):
            yield node


def find_batch(scene: Scene) -> Iterator[Problem]:
    for node in _own(scene, *SOFTMAX):
        axis = axis_of(scene, node)
        if axis is not None and scene.has_batch(axis):
            name = name_of(record_of(node))
            message = f"{name} goes over {axis}, which holds the batch: the weights of one example depend on the others"
            yield scene.problem("SF304", node, message, dims=names_of(axis.size), fix="dim=-1")


def find_not_contracted(scene: Scene) -> Iterator[Problem]:
    for node in _own(scene, "softmax"):
        axis = axis_of(scene, node)
        if axis is None or not axis.factors or scene.has_batch(axis):
            continue
        summed = _contracted(scene, node)
        if summed is None or not summed.factors or _share(axis, summed):
            continue
        shape = scene.axes.of(node) or ()
        place = next((at - len(shape) for at, each in enumerate(shape) if each.factors == summed.factors), None)
        if place is None:
            continue
        message = f"softmax goes over {axis}, but the product behind it sums over {summed}: no row of weights sums to 1"
        yield scene.problem("SF306", node, message, dims=names_of(axis.size, summed.size), fix=f"dim={place}")


def _share(one: Axis, other: Axis) -> bool:
    return bool({each.id for each in one.factors} & {each.id for each in other.factors})


def _contracted(scene: Scene, node: fx.Node) -> Axis | None:
    """The axis over which the next product sums, when these weights go nowhere else."""
    users = [user for user in node.users if record_of(user) is not None]
    if len(users) != 1:
        return None
    user, name = users[0], name_of(record_of(users[0]))
    if name in ("matmul", "bmm", "rmatmul") and len(user.args) == 2:
        left = user.args[0] is node
        shape = scene.axes.of(node)
        return None if shape is None or len(shape) < 2 else shape[-1 if left else -2]
    return _contracted(scene, user) if name in ON and user.args and user.args[0] is node else None


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
