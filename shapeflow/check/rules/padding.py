"""SF317: a mean that divides by all positions, the padding that was made zero among them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import fx

from shapeflow.check.axis import axes_named
from shapeflow.check.cause.call import names_in
from shapeflow.check.nodes import argument, behind, dims_of, operator_of, record_of, tensors_of
from shapeflow.check.problem import Problem
from shapeflow.check.rules.operand import operand_in_line
from shapeflow.check.rules.rule import Rule
from shapeflow.check.rules.scene import Scene

MOVES = frozenset(
    "unsqueeze getitem expand to float half bfloat16 type_as int long bool invert logical_not view".split()
)
COMPARES = frozenset("eq ne lt le gt ge".split())


def find(scene: Scene) -> Iterator[Problem]:
    """`(x * mask).mean(1)`: the longer the padding, the smaller the mean."""
    for node in scene.operators("mean"):
        shape = scene.axes.of(node.args[0]) if node.args else None
        at = axes_named(argument(node, 1, "dim", node.kwargs.get("axis")), len(shape)) if shape else None
        if not shape or at is None or len(at) != 1 or len(shape) < 3 or scene.has_batch(shape[min(at)]):
            continue
        mask = _mask(node.args[0])
        if mask is not None and _varies(scene, mask, len(shape) - min(at)):
            axis = shape[min(at)]
            message = f"mean over {axis} divides by all of {axis}, also by the positions that the mask made zero"
            yield scene.problem("SF317", node, message, dims=names_in(axis.size), fix=_fix(node, min(at)))


def _mask(node: Any) -> fx.Node | None:
    """The mask that what is averaged was multiplied with."""
    name = operator_of(node)
    if name in ("mul", "imul") and len(node.args) == 2:
        return next((each for each in node.args if _is_of_positions(each)), None)
    if name == "masked_fill" and node.args[2] == 0 and _is_of_positions(node.args[1]):
        return node.args[1]
    return None


def _is_of_positions(node: Any) -> bool:
    """Whether a mask tells tokens from padding: a comparison of whole numbers, or an input that is called a mask."""
    node = behind(node, MOVES)
    if not isinstance(node, fx.Node):
        return False
    if operator_of(node) in COMPARES:
        return not any(_dtype(each).startswith("torch.float") for each in tensors_of(node)) and _reads_input(node)
    record = record_of(node)
    return record is not None and record.kind == "input" and ("mask" in node.name or _dtype(node) == "torch.bool")


def _reads_input(node: fx.Node) -> bool:
    """Tokens or lengths are given; what a layer computed is no padding."""
    sources = (behind(each, MOVES) for each in tensors_of(node))
    return any(isinstance(each, fx.Node) and each.op == "placeholder" for each in sources)


def _dtype(node: fx.Node) -> str:
    return str(getattr(node.meta.get("val"), "dtype", ""))


def _varies(scene: Scene, mask: fx.Node, back: int) -> bool:
    """Whether the mask varies along the axis of the mean, and along no feature."""
    dims = dims_of(mask)
    return len(dims) >= back and dims[-back].value is None and (back == 1 or dims[-1].value == 1)


def _fix(node: fx.Node, at: int) -> str:
    product = node.args[0]
    assert isinstance(product, fx.Node)
    if operator_of(product) != "mul":
        return f"the sum over axis {at}, divided by the number of positions that are not masked"
    place = next(i for i, each in enumerate(product.args) if _is_of_positions(each))
    texts = [operand_in_line(product, i) for i in range(2)]
    if not all(texts) or len(product.all_input_nodes) != 2:
        return f"the sum over axis {at}, divided by mask.sum({at})"
    return f"({texts[0]} * {texts[1]}).sum({at}) / {texts[place]}.sum({at})"


RULES = (
    Rule(
        "SF317",
        "a mean that counts the padding",
        "error",
        """
        What was masked adds nothing to the sum, and still counts in the number that the mean divides by: the result of
        an example depends on how far its batch was padded.

        wrong:
            x = self.emb(ids) * (ids != 0).unsqueeze(-1)
            return x.mean(1)

        right:
            mask = (ids != 0).unsqueeze(-1)
            return (self.emb(ids) * mask).sum(1) / mask.sum(1)
        """,
        find,
    ),
)
