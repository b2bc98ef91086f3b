"""SF316: two axes that were made of the same parts in another order, paired element by element."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from torch import fx

from shapeflow.check.axis import Axis, Factor, Shape
from shapeflow.check.cause.call import names_in
from shapeflow.check.nodes import argument, operator_of, tensors_of
from shapeflow.check.problem import Problem
from shapeflow.check.rules.operand import parsed_line
from shapeflow.check.rules.rule import Rule
from shapeflow.check.rules.scene import Scene, call_in_line, receiver
from shapeflow.trace.view import KEEPS_AXES

OF_CLASSES = ("cross_entropy", "nll_loss")
LOSSES = """mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits
kl_div""".split()
MERGES = ("view", "reshape", "flatten", "ravel", "repeat", "tile", "repeat_interleave")
FARTHEST = 40


def find(scene: Scene) -> Iterator[Problem]:
    """Each operator that pairs two tensors, axis by axis."""
    for node in scene.operators():
        for (one, first), (other, second) in _pairs(scene, node):
            if _misordered(first, second):
                yield _problem(scene, node, one, other, first, second)
                break


def _pairs(scene: Scene, node: fx.Node) -> Iterator[tuple[tuple[fx.Node, Axis], tuple[fx.Node, Axis]]]:
    """Two tensors that this operator reads, and an axis of each that it runs along together."""
    name = operator_of(node)
    if name in OF_CLASSES:
        yield from _with_classes(scene, node)
    elif name == "scaled_dot_product_attention":
        query, key, value = (argument(node, at, each) for at, each in enumerate(("query", "key", "value")))
        yield from _aligned(scene, key, value, 1)
        yield from _aligned(scene, query, key, 2)
    elif name in ("matmul", "bmm"):
        yield from _aligned(scene, argument(node, 0, "input"), argument(node, 1, "other", argument(node, 1, "mat2")), 2)
    elif name in KEEPS_AXES or name in LOSSES:
        tensors = tensors_of(node)
        if len(tensors) == 2:
            yield from _aligned(scene, tensors[0], tensors[1], 0)


def _with_classes(scene: Scene, node: fx.Node) -> Iterator[tuple[tuple[fx.Node, Axis], tuple[fx.Node, Axis]]]:
    """Scores (N, C, ...) and classes (N, ...)."""
    scores, target = argument(node, 0, "input"), argument(node, 1, "target")
    given, wanted = scene.axes.of(scores), scene.axes.of(target)
    if given and wanted and len(given) == len(wanted) + 1:
        for axis, other in zip((given[0], *given[2:]), wanted, strict=True):
            yield (scores, axis), (target, other)


def _aligned(
    scene: Scene, one: Any, other: Any, last: int
) -> Iterator[tuple[tuple[fx.Node, Axis], tuple[fx.Node, Axis]]]:
    """Axes aligned from the last one; so many of the `last` are no pairs."""
    first, second = scene.axes.of(one), scene.axes.of(other)
    for back in range(last + 1, min(len(first or ()), len(second or ())) + 1):
        assert first is not None and second is not None
        yield (one, first[-back]), (other, second[-back])


def _misordered(one: Axis, other: Axis) -> bool:
    """(T, B) against (B, T), or copies outside against copies inside: the same sizes, and nothing in its place."""
    a, b = one.factors, other.factors
    if len(a) != len(b) or len(a) < 2 or any(factor.trait == "shifted" for factor in (*a, *b)):
        return False
    apart = [at for at in range(len(a)) if a[at].size is not b[at].size]
    if len(apart) < 2 or sorted(str(a[at]) for at in apart) != sorted(str(b[at]) for at in apart):
        return False
    free = {name for at in apart for name in names_in(a[at].size) if _is_free(a[at])}
    return len(free) >= 2 or _are_the_same(a, b, apart) or _are_copies(a, b, apart)


def _is_free(factor: Factor) -> bool:
    return any(symbol.value is None for symbol in factor.size.symbols)


def _are_the_same(a: Sequence[Factor], b: Sequence[Factor], apart: list[int]) -> bool:
    return {a[at].id for at in apart} == {b[at].id for at in apart}


def _are_copies(a: Sequence[Factor], b: Sequence[Factor], apart: list[int]) -> bool:
    """Copies of one size on both sides, in different places: `repeat` on one, `repeat_interleave` on the other."""
    places = [[at for at in apart if row[at].trait == "constant"] for row in (a, b)]
    return all(len(each) == 1 for each in places) and (
        places[0] != places[1] and a[places[0][0]].size is b[places[1][0]].size
    )


def _problem(scene: Scene, node: fx.Node, one: fx.Node, other: fx.Node, first: Axis, second: Axis) -> Problem:
    orders = [", ".join(map(str, axis.factors)) for axis in (first, second)]
    message = (
        f"{operator_of(node)}: an axis made of ({orders[0]}) is paired with one made of ({orders[1]}): "
        "what stands in one place is not the same of both"
    )
    fix = _fix(scene, other, second) or _fix(scene, one, first) or f"flatten both in one order, ({orders[0]})"
    dims = names_in(*(factor.size for factor in first.factors))
    made = _merge(scene, other, second)
    copied = made is not None and operator_of(made) in ("repeat", "tile")
    return scene.problem("SF316", made if copied and made is not None else node, message, dims=dims, fix=fix)


def _merge(scene: Scene, node: Any, axis: Axis) -> fx.Node | None:
    """The operator that made one axis of these factors."""
    for _ in range(FARTHEST):
        shape = scene.axes.of(node)
        if shape is None or not any(each.factors == axis.factors for each in shape):
            return None
        before = node.args[0] if node.args and isinstance(node.args[0], fx.Node) else None
        if operator_of(node) in MERGES and not _has(scene.axes.of(before), axis):
            return node
        node = before
    return None


def _has(shape: Shape | None, axis: Axis) -> bool:
    return any(each.factors == axis.factors for each in shape or ())


def _fix(scene: Scene, node: fx.Node, axis: Axis) -> str:
    """The flattening with its axes in the other order; copies made the other way."""
    made = _merge(scene, node, axis)
    call = _call(made) if made is not None else None
    if made is None or call is None:
        return ""
    tensor = receiver(call)
    if operator_of(made) in ("repeat", "tile"):
        at = next(i for i, each in enumerate(scene.axes.of(made) or ()) if each.factors == axis.factors)
        copies = next((factor.size for factor in axis.factors if factor.trait == "constant"), None)
        return f"{tensor}.repeat_interleave({copies}, dim={at})"
    places = [_place(scene.axes.of(made.args[0]) or (), factor) for factor in axis.factors]
    if None in places or len(places) != 2:
        return ""
    first, second = sorted(place for place in places if place is not None)
    method = tensor == ast.unparse(call.func)[: len(tensor)]
    inside = ", ".join(map(ast.unparse, call.args if method else call.args[1:]))
    return f"{tensor}.transpose({first}, {second}).{operator_of(made).replace('view', 'reshape')}({inside})"


def _call(made: fx.Node) -> ast.Call | None:
    """The call that flattens: of several in the line the one on a tensor of this name."""
    found = call_in_line(made, operator_of(made))
    if found is not None:
        return found
    calls = [each for each in ast.walk(parsed_line(made)) if isinstance(each, ast.Call)]
    named = [each for each in calls if ast.unparse(each.func) == f"{made.args[0]}.{operator_of(made)}"]
    return named[0] if len(named) == 1 else None


def _place(shape: Shape, factor: Factor) -> int | None:
    return next((at for at, each in enumerate(shape) if each.factors == (factor,)), None)


RULES = (
    Rule(
        "SF316",
        "axes that were flattened in different orders meet",
        "error",
        """
        Flattened from (T, B), row 1 is the first step of the second example; from (B, T) it is the second step of the
        first. The sizes are equal, the rows are not. So with heads that are copied: `repeat` gives a b a b,
        `repeat_interleave` a a b b.

        wrong:
            logits = self.out(h)                             # T B vocab
            return F.cross_entropy(logits.reshape(-1, vocab), y.reshape(-1))      # y: B T

        right:
            return F.cross_entropy(logits.reshape(-1, vocab), y.transpose(0, 1).reshape(-1))
        """,
        find,
    ),
)
