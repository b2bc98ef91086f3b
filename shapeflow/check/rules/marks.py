"""Where a softmax comes from and where its weights go: masks before it, products behind it.

>>> [(each.node, each.axis) for each in contractions(scene, softmax)]       # of `w = s.softmax(-1)`, then `w @ v`
[(matmul, 2)]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from torch import fx

from shapeflow.check.axes import Axes, Axis, Shape
from shapeflow.check.axis import axes_named
from shapeflow.check.nodes import dims_of, operator_of, record_of
from shapeflow.check.rules.scene import Scene
from shapeflow.dims.expr import Expr

SOFTMAX = ("softmax", "log_softmax", "softmin", "gumbel_softmax")
SAME = frozenset(
    """dropout to float half bfloat16 double type_as type contiguous clone detach nan_to_num masked_fill
    alpha_dropout tril triu""".split()
)
"""Operators behind which weights are still weights, each in its place."""
SCALED = frozenset("mul div truediv rmul imul idiv".split())
SCORES = SAME | SCALED | frozenset("sub clamp clip tanh add radd iadd where".split())
"""Operators between a product and its softmax."""
MOVED = frozenset(
    "transpose swapaxes permute mT T t view reshape flatten unflatten unsqueeze squeeze getitem expand".split()
)
PRODUCTS = ("matmul", "rmatmul", "bmm", "baddbmm", "einsum")
TORCH_LAYERS = frozenset(
    """MultiheadAttention Transformer TransformerEncoder TransformerDecoder TransformerEncoderLayer
    TransformerDecoderLayer""".split()
)
LOW = -1e3
"""A score below this is meant to be minus infinity."""
FARTHEST = 40

MaskKind = Literal["blocked", "allowed", "added"]


@dataclass(frozen=True, slots=True)
class Contraction:
    """A product that sums over one axis of the weights: its number in the softmax's output, None if it is not whole."""

    node: fx.Node
    axis: int | None
    other: fx.Node | None


@dataclass(frozen=True, slots=True)
class Mask:
    """What is put on scores by `node`: true where they are blocked, where they are allowed, or numbers to add."""

    node: fx.Node
    value: fx.Node
    kind: MaskKind


class Followed(Axes):
    """Axes that are known behind one node only, whose axes have origins of their own: 0, 1, 2, ..."""

    __slots__ = ()

    def __post_init__(self) -> None:
        """Nothing is known until `begin`."""

    def begin(self, node: fx.Node, dims: tuple[Expr, ...]) -> Shape:
        shape = self.fresh(dims)
        self.known[node] = (shape,)
        return shape

    def go(self, node: fx.Node) -> Shape | None:
        """The axes behind one more node."""
        shapes = self._shapes(node)
        if shapes is not None:
            self.known[node] = shapes
        return self.of(node)


def softmax_axis(node: fx.Node) -> int | None:
    """Which axis a softmax goes over, counted from the first one."""
    given = node.kwargs.get("dim", node.args[1] if len(node.args) > 1 else None)
    rank = len(dims_of(node))
    if operator_of(node) == "gumbel_softmax":
        given = node.kwargs.get("dim", -1)
    if given is None and "dim" in node.kwargs:  # what torch takes when nobody says
        given = 0 if rank in (0, 1, 3) else 1
    return given % rank if isinstance(given, int) and -rank <= given < rank else None


def is_truth(node: fx.Node) -> bool:
    """Whether a node makes truth values."""
    return str(getattr(node.meta.get("val"), "dtype", "")) == "torch.bool"


def in_torch_layer(node: fx.Node) -> bool:
    """Whether an operator runs inside of torch's own attention: what is wrong there is how the layer is called."""
    record = record_of(node)
    return record is not None and any(scope.kind in TORCH_LAYERS for scope in record.scopes)


# Behind


def contractions(scene: Scene, start: fx.Node) -> tuple[Contraction, ...]:
    """The products that read these weights, through whatever only moves their axes."""
    followed = Followed(scene.trace, scene.axes.env)
    places = {axis.factors[0].id: at for at, axis in enumerate(followed.begin(start, dims_of(start))) if axis.factors}
    found: list[Contraction] = []
    for node in weights_behind(start):
        shape = followed.of(node) if node is start else followed.go(node)
        for user in node.users if shape is not None else ():
            for axis, other in _summed(user, node, shape or ()):
                at = places.get(axis.factors[0].id) if len(axis.factors) == 1 else None
                found.append(Contraction(user, at, other))
    return tuple(found)


def weights_behind(start: fx.Node) -> Iterator[fx.Node]:
    """The softmax, and the nodes behind it that still are its weights."""
    waiting, seen = [start], {start}
    while waiting and len(seen) < FARTHEST:
        node = waiting.pop(0)
        yield node
        for user in node.users:
            if user not in seen and keeps_weights(user, node):
                seen.add(user)
                waiting.append(user)


def keeps_weights(user: fx.Node, node: fx.Node) -> bool:
    """Whether `user` hands the weights in `node` on: moved, cast, dropped out, masked, or times something."""
    name = operator_of(user)
    if name == "where":
        return node in user.args[1:]
    if name == "mul" and node in user.args[1:]:
        return True
    if not user.args or user.args[0] is not node:
        return False
    if name in SCALED:
        return operator_of(user) in ("mul", "imul") or not any(_is_tensor(each) for each in user.args[1:])
    return name in SAME or name in MOVED


def _is_tensor(value: Any) -> bool:
    return isinstance(value, fx.Node) and "size" not in value.meta


def _summed(user: fx.Node, node: fx.Node, shape: Shape) -> Iterator[tuple[Axis, fx.Node | None]]:
    """The axes of `node` that a product sums over, and what it is multiplied with."""
    name = operator_of(user)
    if name in ("matmul", "rmatmul", "bmm") and len(user.args) == 2 and len(shape) > 1:
        left, right = user.args
        if left is not right:
            yield (shape[-1] if left is node else shape[-2]), (right if left is node else left)  # type: ignore[misc]
    elif name == "einsum":
        yield from _summed_by_letters(user, node, shape)
    elif name == "sum" and operator_of(node) == "mul" and len(node.all_input_nodes) == 2:
        at = axes_named(user.kwargs.get("dim", user.args[1] if len(user.args) > 1 else None), len(shape))
        if at is not None and len(at) == 1:
            yield shape[min(at)], None


def _summed_by_letters(user: fx.Node, node: fx.Node, shape: Shape) -> Iterator[tuple[Axis, fx.Node | None]]:
    equation, operands = einsum_of(user)
    if equation is None or len(operands) != 2 or operands[0] is operands[1]:
        return
    before, _, after = equation.partition("->")
    rows = before.split(",")
    if "." in equation or len(rows) != 2 or "->" not in equation:
        return
    at = 0 if operands[0] is node else 1
    summed = [letter for letter in rows[at] if letter not in after and letter in rows[1 - at]]
    if len(rows[at]) == len(shape) and len(summed) == 1:
        yield shape[rows[at].index(summed[0])], operands[1 - at]


def einsum_of(node: fx.Node) -> tuple[str | None, list[Any]]:
    """The equation of an einsum without spaces, and its operands."""
    equation, *operands = node.args
    if len(operands) == 1 and isinstance(operands[0], tuple | list):
        operands = list(operands[0])
    return (equation.replace(" ", "") if isinstance(equation, str) else None), operands


# Before


def scores_before(node: fx.Node) -> Iterator[fx.Node]:
    """What a softmax reads, back to the product or the layer that made it, each with the same axes."""
    rank = len(dims_of(node))
    value: Any = node.args[0] if node.args else None
    for _ in range(FARTHEST):
        if not isinstance(value, fx.Node) or len(dims_of(value)) != rank:
            return
        yield value
        name = operator_of(value)
        if name not in SCORES or not value.args:
            return
        value = scores_of(value)


def scores_of(node: fx.Node) -> Any:
    """Which argument holds the scores: for `where`, the one that is no number; for a sum, the one that is a product."""
    if operator_of(node) == "where" and len(node.args) == 3:
        return node.args[2] if is_low(node.args[1]) else node.args[1]
    if operator_of(node) in ("add", "radd", "iadd") and len(node.args) == 2:
        one, other = node.args
        if _is_tensor(other) and not _is_tensor(one):
            return other
        if _is_tensor(other) and _behind_product(other) and not _behind_product(one):
            return other
    return node.args[0]


def _behind_product(value: Any) -> bool:
    for _ in range(FARTHEST):
        name = operator_of(value)
        if name in PRODUCTS:
            return True
        if name not in SCORES | MOVED or not value.args:
            return False
        value = value.args[0]
    return False


def masks_before(node: fx.Node) -> Iterator[Mask]:
    """The masks on the scores that a softmax reads."""
    for each in scores_before(node):
        found = _mask_of(each)
        if found is not None:
            yield found


def _mask_of(node: fx.Node) -> Mask | None:
    name, args = operator_of(node), node.args
    if name == "masked_fill" and len(args) == 3 and is_low(args[2]) and isinstance(args[1], fx.Node):
        return Mask(node, args[1], "blocked")
    if name == "where" and len(args) == 3 and isinstance(args[0], fx.Node):
        if is_low(args[2]):
            return Mask(node, args[0], "allowed")
        return Mask(node, args[0], "blocked") if is_low(args[1]) else None
    if name in ("add", "radd", "iadd") and len(args) == 2:
        scores = scores_of(node)
        other = args[0] if args[1] is scores else args[1]
        return Mask(node, other, "added") if isinstance(other, fx.Node) and _is_tensor(other) else None
    if name == "baddbmm" and isinstance(args[0], fx.Node):
        return Mask(node, args[0], "added")
    return None


def is_low(value: Any) -> bool:
    """Whether a number stands for minus infinity: one that is written, or a constant tensor of one element made so."""
    if isinstance(value, int | float):
        return value <= LOW
    name = operator_of(value)
    if name in ("full", "full_like", "new_full"):
        fill = value.kwargs.get("fill_value", list(value.args)[-1] if value.args else None)
        return is_low(fill)
    return name in ("to", "neg", "mul", "expand") and any(is_low(each) for each in value.args)


def is_product(node: fx.Node) -> bool:
    """Whether scores are a product of two things that the inputs decide: of queries and keys."""
    name = operator_of(node)
    if name not in PRODUCTS:
        return False
    operands = einsum_of(node)[1] if name == "einsum" else list(node.args[1:] if name == "baddbmm" else node.args)
    return len(operands) == 2 and not any(_is_parameter(each) for each in operands)


def _is_parameter(value: Any) -> bool:
    """Whether a tensor is a parameter, moved or cast perhaps."""
    for _ in range(FARTHEST):
        record = record_of(value)
        if record is None and isinstance(value, fx.Node) and value.args:  # an item of a tuple: of `chunk`, `unbind`
            value = value.args[0]
            continue
        if record is None or record.kind in ("parameter", "buffer", "constant"):
            return True
        if operator_of(value) not in SAME | MOVED | {"expand", "repeat", "unbind", "chunk", "split"} or not value.args:
            return False
        value = value.args[0]
    return False


def is_weights(value: Any) -> bool:
    """Whether a tensor is a softmax, or one moved about."""
    for _ in range(FARTHEST):
        name = operator_of(value)
        if name in SOFTMAX:
            return True
        if name not in SAME | MOVED | SCALED or not value.args:
            return False
        value = value.args[0]
    return False
