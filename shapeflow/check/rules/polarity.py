"""SF312: a mask that says the opposite of what its reader takes it for."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from shapeflow.check.cause.call import names_in
from shapeflow.check.nodes import dims_of, operator_of, record_of
from shapeflow.check.problem import Problem
from shapeflow.check.rules.concrete import value_of
from shapeflow.check.rules.marks import (
    FARTHEST,
    LOW,
    MOVED,
    Mask,
    in_torch_layer,
    is_low,
    is_truth,
    masks_before,
    softmax_axis,
)
from shapeflow.check.rules.mask import sdpa_mask
from shapeflow.check.rules.rule import Rule
from shapeflow.check.rules.scene import Scene, call_in_line, line_of

UNCHANGED = MOVED | frozenset("expand repeat to bool contiguous clone type_as expand_as".split())
SAYS = frozenset("tril triu eq ne lt le gt ge invert logical_not bitwise_not".split())
"""Operators that make a mask what it is: the last of them is where a wrong one is told."""
FLIPPED = {"ge": "lt", "lt": "ge", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}


def find(scene: Scene) -> Iterator[Problem]:
    seen: set[fx.Node] = set()
    for reader, mask, turned in _read(scene):
        for part in _parts(mask):
            said = _opposite(scene, part, turned)
            place = _said_by(part.value) or part.node
            if said is not None and place not in seen:
                seen.add(place)
                yield _problem(scene, reader, place, part, said)


def _read(scene: Scene) -> Iterator[tuple[fx.Node, Mask, bool]]:
    """Each reader of a mask, the mask, and whether its queries are the last axis."""
    for node in scene.operators("scaled_dot_product_attention"):
        mask = sdpa_mask(node)
        if mask is not None:
            yield node, Mask(node, mask, "allowed" if is_truth(mask) else "added"), False
    for node in scene.operators("softmax", "log_softmax"):
        at, rank = softmax_axis(node), len(dims_of(node))
        if at is not None and rank > 1 and at >= rank - 2:
            for mask in masks_before(node):
                yield node, mask, at == rank - 2


def _parts(mask: Mask) -> Iterator[Mask]:
    """Masks that are added to each other, one by one; a fill of minus infinity is what it is filled by."""
    value = _still(mask.value)
    name = operator_of(value)
    if mask.kind == "added" and name == "add" and len(value.args) == 2:
        for each in value.args:
            if isinstance(each, fx.Node):
                yield from _parts(Mask(mask.node, each, "added"))
    elif mask.kind == "added" and name == "masked_fill" and is_low(value.args[2]) and _is_zero(value.args[0]):
        yield Mask(mask.node, value.args[1], "blocked")  # type: ignore[arg-type]
    else:
        yield mask


def _is_zero(value: Any) -> bool:
    return operator_of(value) in ("zeros", "zeros_like", "new_zeros")


def _still(node: fx.Node) -> fx.Node:
    """What a mask was before it was moved or cast."""
    for _ in range(FARTHEST):
        if operator_of(node) not in UNCHANGED or not node.args or not isinstance(node.args[0], fx.Node):
            break
        if operator_of(node) == "getitem" and not _is_plain(node.args[1]):
            break
        node = node.args[0]
    return node


def _is_plain(index: Any) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    return all(part is None or part is Ellipsis or isinstance(part, slice) for part in parts)


def _opposite(scene: Scene, mask: Mask, turned: bool) -> str | None:
    """What is wrong with a mask, None where nothing is known to be."""
    value = value_of(scene, mask.value)
    if value is not None:
        return _of_values(value, mask, turned)
    if mask.kind == "added":
        return None
    blocked = _means(scene, mask.value)
    if blocked is None or (blocked == "padding") == (mask.kind == "blocked"):
        return None
    return "it hides the real tokens and shows the padding"


def _of_values(value: torch.Tensor, mask: Mask, turned: bool) -> str | None:
    if value.dim() < 2 or value.shape[-1] != value.shape[-2] or value.shape[-1] < 2 or value.is_complex():
        return None
    if mask.kind == "added":
        if value.dtype is torch.bool:
            return None
        allowed = value > LOW
        if _is_triangle_of_ones(value):
            return "ones and zeros are added to the scores, which hides nothing"
    else:
        allowed = value.bool() if mask.kind == "allowed" else ~value.bool()
    matrices = allowed.mT if turned else allowed
    matrices = matrices.reshape(-1, *matrices.shape[-2:])
    later = torch.ones_like(matrices).triu(1)
    if bool(matrices.triu(1).eq(later).all()) and not bool(matrices.tril(-1).any()):
        return "a position reads the later ones, and none before it"
    return None


def _is_triangle_of_ones(value: torch.Tensor) -> bool:
    ones = torch.ones_like(value)
    return any(bool(value.eq(each).all()) for each in (ones.tril(), ones.triu(), ones.tril(-1), ones.triu(1)))


def _means(scene: Scene, node: fx.Node) -> str | None:
    """`padding` or `tokens`: where a comparison of tokens with a number, or of positions with lengths, is true."""
    node = _still(node)
    name = operator_of(node)
    if name in ("invert", "logical_not", "bitwise_not") and isinstance(node.args[0], fx.Node):
        inner = _means(scene, node.args[0])
        return None if inner is None else "tokens" if inner == "padding" else "padding"
    if name not in FLIPPED or len(node.args) != 2:
        return None
    one, other = node.args
    if name in ("eq", "ne") and isinstance(one, fx.Node) and is_truth(one) and other in (0, False):
        inner = _means(scene, one)
        flips = name == "eq"
        return inner if inner is None or not flips else "tokens" if inner == "padding" else "padding"
    if isinstance(one, fx.Node) and isinstance(other, int) and _are_tokens(one):
        return {"ne": "tokens", "eq": "padding"}.get(name) or ("tokens" if (name, other) == ("gt", 0) else None)
    if not isinstance(one, fx.Node) or not isinstance(other, fx.Node):
        return None
    if _are_positions(one) and _are_lengths(other):
        return {"lt": "tokens", "ge": "padding"}.get(name)
    if _are_lengths(one) and _are_positions(other):
        return {"gt": "tokens", "le": "padding"}.get(name)
    return None


def _are_tokens(node: fx.Node) -> bool:
    """An input that an embedding reads."""
    node = _still(node)
    return node.op == "placeholder" and any(operator_of(user) == "embedding" for user in node.users)


def _are_positions(node: fx.Node) -> bool:
    return operator_of(_still(node)) == "arange"


def _are_lengths(node: fx.Node) -> bool:
    node = _still(node)
    return node.op == "placeholder" and len(dims_of(node)) == 1


def _said_by(node: fx.Node) -> fx.Node | None:
    """The operator of the model's own that made a mask what it is."""
    waiting = [node]
    for _ in range(FARTHEST):
        if not waiting:
            return None
        each = waiting.pop(0)
        if operator_of(each) in SAYS and not in_torch_layer(each):
            return each
        waiting.extend(source for source in each.all_input_nodes if "size" not in source.meta)
    return None


def _problem(scene: Scene, reader: fx.Node, place: fx.Node, mask: Mask, said: str) -> Problem:
    record = record_of(reader)
    layer = next((s.kind for s in record.scopes if in_torch_layer(reader)), None) if record is not None else None
    name = layer or ("masked_fill" if operator_of(reader) == "softmax" else operator_of(reader))
    takes = {"allowed": "True is what may be read", "blocked": "True is what is hidden", "added": "it is added"}
    message = f"the mask for {name} is the wrong way round ({takes[mask.kind]}): {said}"
    used = line_of(reader)
    details = (f"read at {used}",) if used is not None and place is not reader else ()
    sizes = dims_of(mask.value)[-1:]
    return scene.problem("SF312", place, message, dims=names_in(*sizes), fix=_fix(place, mask), details=details)


def _fix(place: fx.Node, mask: Mask) -> str:
    """The line's own call the other way round."""
    name = operator_of(place)
    call = call_in_line(place, name)
    if name in ("tril", "triu") and mask.kind != "added":
        return _other_triangle(name, call)
    if name in ("invert", "logical_not", "bitwise_not"):
        return "leave the negation (~) out"
    signs = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
    if name in FLIPPED:
        return f"{signs[FLIPPED[name]]} instead of {signs[name]}"
    return "~mask" if mask.kind != "added" else "minus infinity where nothing may be read, 0 elsewhere"


def _other_triangle(name: str, call: ast.Call | None) -> str:
    """`torch.triu(x, diagonal=1)` for `torch.tril(x)`, and the other way round."""
    other = "triu" if name == "tril" else "tril"
    extra = "diagonal=1" if other == "triu" else ""
    if call is None:
        return f"torch.{other}(..., {extra})" if extra else f"torch.{other}(...)"
    if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) != "torch":
        return f"{ast.unparse(call.func.value)}.{other}({extra})"
    return f"torch.{other}({', '.join(filter(None, [ast.unparse(call.args[0]), extra]))})" if call.args else f"~{name}"


RULES = (
    Rule(
        "SF312",
        "a mask of the wrong polarity",
        "error",
        """
        True means the opposite in two functions: to nn.MultiheadAttention (attn_mask, key_padding_mask) a position that
        must not be read, to F.scaled_dot_product_attention one that may.

        wrong:
            mask = torch.tril(torch.ones(t, t, dtype=torch.bool))
            y, _ = self.attention(x, x, x, attn_mask=mask)        # nn.MultiheadAttention

        right:
            mask = torch.triu(torch.ones(t, t, dtype=torch.bool), diagonal=1)
            y, _ = self.attention(x, x, x, attn_mask=mask)
        """,
        find,
    ),
)
