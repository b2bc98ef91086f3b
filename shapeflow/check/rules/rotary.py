"""SF318: rotary positions whose rotation pairs other features than their angles do."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any, Literal

from torch import fx

from shapeflow.check.cause.call import names_in
from shapeflow.check.nodes import argument, behind, dims_of, operator_of, record_of, tensors_of
from shapeflow.check.problem import Problem
from shapeflow.check.rules.rule import Rule
from shapeflow.check.rules.scene import Scene, call_in_line, line_of, receiver

Layout = Literal["halves", "pairs"]
SAME = frozenset(
    "cos sin to float half bfloat16 double type_as contiguous clone detach mul unsqueeze getitem expand view".split()
)
"""Operators behind which an angle still belongs to its feature."""
FARTHEST = 20


def find(scene: Scene) -> Iterator[Problem]:
    """`rotate(x) * sin`: x's second half, or each second feature, goes to the first with a minus."""
    for node in scene.operators("mul"):
        if len(node.args) != 2:
            continue
        for rotated, angles in (node.args, node.args[::-1]):
            rotation, made = _rotation(rotated), _angles(scene, angles)
            if rotation is not None and made is not None and rotation != made[1]:
                yield _problem(scene, node, rotation, made[0])


def _rotation(node: Any) -> Layout | None:
    """What `cat((-x2, x1), -1)` pairs: halves; `stack((-x2, x1), -1).flatten(-2)`: neighbours."""
    node = behind(node, ("to", "float", "type_as", "contiguous"))
    name = operator_of(node)
    if name in ("cat", "concat"):
        parts = argument(node, 0, "tensors")
        return "halves" if _is_turned(parts, _is_half) else None
    if name in ("flatten", "reshape", "view") and operator_of(node.args[0]) == "stack":
        parts, at = argument(node.args[0], 0, "tensors"), argument(node.args[0], 1, "dim", 0)
        return "pairs" if at in (-1, len(dims_of(node))) and _is_turned(parts, _is_every_second) else None
    return None


def _is_turned(parts: Any, is_part: Callable[[Any, int], bool]) -> bool:
    """Two parts of one tensor, the second one first and negative."""
    if not isinstance(parts, tuple | list) or len(parts) != 2 or operator_of(parts[0]) != "neg":
        return False
    first, second = parts[0].args[0], parts[1]
    return is_part(first, 1) and is_part(second, 0) and _of(first) is _of(second)


def _of(part: Any) -> Any:
    return part.args[0]


def _is_half(node: Any, which: int) -> bool:
    """A half of the last axis: a slice, or an item of `chunk(2)`."""
    if record_of(node) is None and isinstance(node, fx.Node) and node.args:
        return operator_of(node.args[0]) in ("chunk", "split") and bool(node.args[1] == which)
    part = _last_slice(node)
    return part is not None and part.step is None and (part.start is None) == (which == 0)


def _is_every_second(node: Any, which: int) -> bool:
    part = _last_slice(node)
    return part is not None and part.step == 2 and (part.start or 0) == which


def _last_slice(node: Any) -> slice | None:
    index = node.args[1] if operator_of(node) == "getitem" else None
    last = index[-1] if isinstance(index, tuple) and index else None
    return last if isinstance(last, slice) else None


def _angles(scene: Scene, node: Any) -> tuple[fx.Node, Layout] | None:
    """What makes both features of a pair have one angle, and which features those are. Only behind a sine."""
    seen = False
    for _ in range(FARTHEST):
        name = operator_of(node)
        seen = seen or name in ("sin", "cos")
        found = _doubled(scene, node)
        if found is not None:
            return (node, found) if seen or _leads_to_sine(node) else None
        if name not in SAME or not node.args or (name == "mul" and len(tensors_of(node)) != 1):
            return None
        node = node.args[0]
    return None


def _leads_to_sine(node: fx.Node) -> bool:
    """Whether what is doubled are sines already."""
    return any(operator_of(each) in ("sin", "cos") for each in tensors_of(node))


def _doubled(scene: Scene, node: Any) -> Layout | None:
    name = operator_of(node)
    if name in ("cat", "concat"):
        parts, at = argument(node, 0, "tensors"), argument(node, 1, "dim", 0)
        same = isinstance(parts, tuple | list) and len(parts) == 2 and parts[0] is parts[1]
        return "halves" if same and at in (-1, len(dims_of(node)) - 1) else None
    if name in ("repeat_interleave", "repeat"):
        shape = scene.axes.of(node)
        last = shape[-1].factors if shape else ()
        copies = [factor.trait == "constant" and factor.size.value == 2 for factor in last]
        return {(False, True): "pairs", (True, False): "halves"}.get(tuple(copies))  # type: ignore[return-value]
    return None


def _problem(scene: Scene, node: fx.Node, rotation: Layout, made: fx.Node) -> Problem:
    turns = "its two halves" if rotation == "halves" else "neighbours"
    shares = "neighbours" if rotation == "halves" else "the two halves"
    size = dims_of(made)[-1]
    message = f"the rotation turns {turns} into each other, and {operator_of(made)} gives one angle to {shares}"
    tensor = _written(made)
    fix = (
        f"torch.cat(({tensor}, {tensor}), dim=-1)" if rotation == "halves" else f"{tensor}.repeat_interleave(2, dim=-1)"
    )
    details = () if (used := line_of(node)) is None else (f"they meet at {used}",)
    return scene.problem("SF318", made, message, dims=names_in(size), fix=fix, details=details)


def _written(made: fx.Node) -> str:
    """What is doubled, as the line has it."""
    call = call_in_line(made, operator_of(made))
    parts = call.args[0] if call is not None and call.args else None
    if isinstance(parts, ast.Tuple | ast.List):
        return ast.unparse(parts.elts[0])
    return receiver(call, tensors_of(made)[0].name)


RULES = (
    Rule(
        "SF318",
        "a rotation whose angles belong to other features",
        "error",
        """
        Rotary positions turn two features by one angle. Where the rotation pairs feature i with i + d/2, both halves
        need the same angles; where it pairs neighbours, neighbours do.

        wrong:
            angle = angle.repeat_interleave(2, dim=-1)
            x = x * angle.cos() + torch.cat((-x2, x1), dim=-1) * angle.sin()      # x1, x2 = x.chunk(2, dim=-1)

        right:
            angle = torch.cat((angle, angle), dim=-1)
            x = x * angle.cos() + torch.cat((-x2, x1), dim=-1) * angle.sin()
        """,
        find,
    ),
)
