"""SF302 and SF303: operands that broadcast, but not as anybody meant."""

from __future__ import annotations

from collections.abc import Iterator

from torch import fx

from shapeflow.check.axes import Axis, Shape, name_of, record_of, tensors_of
from shapeflow.check.problem import Problem
from shapeflow.check.rules.rule import Rule
from shapeflow.check.rules.scene import Scene, line_of, names_of

SUMS = """add sub mul div truediv pow rsub radd rmul rdiv iadd isub maximum minimum where eq ne lt le gt ge
lerp mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits""".split()


def find_doubled(scene: Scene) -> Iterator[Problem]:
    """(B, 1) with (B,) gives (B, B)."""
    for node in scene.operators(*SUMS):
        pair = _pair(scene, node)
        if pair is None:
            continue
        longer, shorter = (scene.axes.of(each) for each in pair)
        assert longer is not None and shorter is not None
        doubled = _doubled(longer, shorter)
        if doubled is not None:
            yield _doubled_problem(scene, node, pair, doubled)


def _pair(scene: Scene, node: fx.Node) -> tuple[fx.Node, fx.Node] | None:
    """Two operands of different rank, the longer one first."""
    found = [each for each in tensors_of(node) if scene.axes.of(each)]
    if len(found) != 2:
        return None
    one, other = found
    ranks = [len(scene.axes.of(each) or ()) for each in (one, other)]
    if ranks[0] == ranks[1]:
        return None
    return (one, other) if ranks[0] > ranks[1] else (other, one)


def _doubled(longer: Shape, shorter: Shape) -> Axis | None:
    """The axis of the shorter that lies against a size of one that no one asked for, and that the longer has too."""
    for back, axis in enumerate(reversed(shorter), start=1):
        against = longer[-back]
        free = any(symbol.value is None for symbol in axis.size.symbols)
        if axis.factors and free and not against.factors and against.implicit:
            others = [each for each in longer[: len(longer) - len(shorter)] if each.factors]
            if any(each.size is axis.size for each in others):
                return axis
    return None


def _doubled_problem(scene: Scene, node: fx.Node, pair: tuple[fx.Node, fx.Node], axis: Axis) -> Problem:
    longer, shorter = pair
    shapes = " and ".join(f"({_row(scene.axes.of(each) or ())})" for each in (longer, shorter))
    message = f"{name_of(record_of(node))}: {shapes} broadcast to two axes of {axis}: each is paired with every other"
    name = _written(longer)
    return scene.problem("SF302", node, message, dims=names_of(axis.size), fix=f"{name}.squeeze(-1)")


def _written(node: fx.Node) -> str:
    """The name that the code gave a tensor, where its line is an assignment."""
    while record_of(node) is None and node.args and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    where = line_of(node)
    name = where.code.partition("=")[0].strip() if where is not None and " = " in where.code else ""
    return name if name.isidentifier() else str(node)


def _row(shape: Shape) -> str:
    return ", ".join(map(str, shape))


def find_misaligned(scene: Scene) -> Iterator[Problem]:
    """`a / a.sum(1)` of a square `a`: the sums of the rows divide the columns."""
    for node in scene.operators(*SUMS):
        pair = _pair(scene, node)
        if pair is None:
            continue
        matrix, vector = (scene.axes.of(each) for each in pair)
        assert matrix is not None and vector is not None
        for back, axis in enumerate(reversed(vector), start=1):
            against = matrix[-back]
            if not axis.factors or not against.factors or axis.factors == against.factors:
                continue
            own = next((at for at, each in enumerate(matrix) if each.factors == axis.factors), None)
            if own is not None and own != len(matrix) - back:
                message = (
                    f"{name_of(record_of(node))}: the axis {axis} of {_written(pair[1])} stems from axis {own} of "
                    f"{_written(pair[0])}, and is aligned with axis {len(matrix) - back}"
                )
                fix = "keepdim=True in the reduction, or unsqueeze(-1) behind it"
                yield scene.problem("SF303", node, message, dims=names_of(axis.size), fix=fix)
                break


RULES = (
    Rule(
        "SF302",
        "broadcasting makes a name appear twice",
        "error",
        """
        A layer with one feature gives (B, 1). Against (B,) it broadcasts to (B, B): each prediction meets each target.

        wrong:
            pred = self.net(x)                               # B 1
            return ((pred - y) ** 2).mean()                  # y: B

        right:
            pred = self.net(x).squeeze(-1)
            return ((pred - y) ** 2).mean()
        """,
        find_doubled,
    ),
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
        find_misaligned,
    ),
)
