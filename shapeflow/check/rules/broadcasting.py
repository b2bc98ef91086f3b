"""SF302: a column and a row that broadcast to all pairs, which nobody meant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import fx

from shapeflow.check.axes import Axis, Shape
from shapeflow.check.cause.call import names_in
from shapeflow.check.nodes import name_of, record_of, tensors_of
from shapeflow.check.problem import Problem
from shapeflow.check.rules.operand import name_in_line, operand_in_line
from shapeflow.check.rules.rule import Rule
from shapeflow.check.rules.scene import Scene, line_of
from shapeflow.trace.view import KEEPS_AXES

SUMS = """add sub mul div truediv pow rsub radd rmul rdiv iadd isub maximum minimum where eq ne lt le gt ge
lerp mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits""".split()


def find_doubled(scene: Scene) -> Iterator[Problem]:
    """(B, 1) with (B,) gives (B, B)."""
    told: set[Any] = set()
    for node in scene.operators(*SUMS):
        pair = _pair(scene, node)
        if pair is None:
            continue
        longer, shorter = (scene.axes.of(each) for each in pair)
        assert longer is not None and shorter is not None
        loss = name_of(record_of(node)).endswith("_loss")
        doubled = _doubled(longer, shorter, pairs=not loss and _was_column(scene, pair[1]), loss=loss)
        if doubled is not None and (where := line_of(node)) not in told:
            told.add(where)
            yield _doubled_problem(scene, node, pair, *doubled)


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


def _doubled(longer: Shape, shorter: Shape, *, pairs: bool, loss: bool) -> tuple[Axis, int] | None:
    """The axis of the shorter against a size of one that no one asked for, where the longer has that size elsewhere.

    With it the place of the one, from the end. Where both stem from one axis, `left(x) + right(x).squeeze(-1)` may mean
    all `pairs` of its rows. No `loss` compares each with every other, whoever made the size of one.
    """
    for back, axis in enumerate(reversed(shorter), start=1):
        against = longer[-back]
        free = any(symbol.value is None for symbol in axis.size.symbols)
        if axis.factors and free and not against.factors and (against.implicit or loss):
            others = [each for each in longer[: len(longer) - len(shorter)] if each.factors]
            if any(each.size is axis.size and not (pairs and each.factors == axis.factors) for each in others):
                return axis, -back
    return None


def _was_column(scene: Scene, node: fx.Node) -> bool:
    """Whether a vector was (N, 1) before."""
    *_, start = _back(node)
    shape = scene.axes.of(start.args[0]) if name_of(record_of(start)) in ("squeeze", "getitem", "flatten") else None
    return shape is not None and not shape[-1].factors


def _doubled_problem(scene: Scene, node: fx.Node, pair: tuple[fx.Node, fx.Node], axis: Axis, place: int) -> Problem:
    longer, shorter = pair
    shapes = " and ".join(f"({_row(scene.axes.of(each) or ())})" for each in (longer, shorter))
    message = f"{name_of(record_of(node))}: {shapes} broadcast to two axes of {axis}: each is paired with every other"
    written = operand_in_line(node, node.all_input_nodes.index(longer)) or name_in_line(longer)
    return scene.problem("SF302", node, message, dims=names_in(axis.size), fix=f"{written}.squeeze({place})")


def _row(shape: Shape) -> str:
    return ", ".join(map(str, shape))


def _back(node: object) -> Iterator[fx.Node]:
    while isinstance(node, fx.Node):
        yield node
        record = record_of(node)
        if record is not None and (record.kind != "operator" or name_of(record) not in KEEPS_AXES):
            return
        node = node.args[0] if node.args else None


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
)
