"""SF307 and SF313: masks that do nothing, and masks that come too late."""

from __future__ import annotations

from collections.abc import Iterator

from torch import fx

from shapeflow.check.cause.call import names_in
from shapeflow.check.nodes import dims_of, operator_of
from shapeflow.check.problem import Problem
from shapeflow.check.rules.concrete import RANDOM
from shapeflow.check.rules.marks import (
    FARTHEST,
    MOVED,
    contractions,
    in_torch_layer,
    is_low,
    is_product,
    is_truth,
    masks_before,
    scores_before,
    softmax_axis,
    weights_behind,
)
from shapeflow.check.rules.rule import Rule
from shapeflow.check.rules.scene import Scene


def find_constant(scene: Scene) -> Iterator[Problem]:
    """SF307. Beside a mask that varies, one that does not only empties rows that nobody reads."""
    for node in scene.operators("softmax", "log_softmax"):
        at = softmax_axis(node)
        if at is None or dims_of(node)[at].value == 1 or in_torch_layer(node):
            continue
        masks = [mask for mask in masks_before(node) if mask.kind != "added" or is_masking(mask.value)]
        back = len(dims_of(node)) - at
        if masks and all(_is_constant(mask.value, back) for mask in masks):
            yield _constant_problem(scene, masks[0].node, masks[0].value, node, at)
    for node in scene.operators("scaled_dot_product_attention"):
        mask = sdpa_mask(node)
        if mask is not None and not in_torch_layer(node) and is_masking(mask) and _is_constant(mask, 1):
            keys = dims_of(node.args[1])
            if keys and keys[-2].value != 1:
                yield _constant_problem(scene, node, mask, node, -1)


def _is_constant(mask: fx.Node, back: int) -> bool:
    dims = dims_of(mask)
    return bool(dims) and (len(dims) < back or dims[-back].value == 1)


def _constant_problem(scene: Scene, where: fx.Node, mask: fx.Node, node: fx.Node, at: int) -> Problem:
    axis = dims_of(node.args[1])[-2] if at < 0 else dims_of(node)[at]
    shape = ", ".join(map(str, dims_of(mask)))
    message = f"the mask ({shape}) is the same for all of {axis}, which the softmax goes over: it hides all or nothing"
    rank = len(dims_of(mask))
    fix = f"mask {axis}: ({', '.join(_turned(mask))})" if rank > 1 else ""
    return scene.problem("SF307", where, message, dims=names_in(axis), fix=fix)


def _turned(mask: fx.Node) -> list[str]:
    """The shape of the mask with its size-one axis and the one before it swapped."""
    dims = list(map(str, dims_of(mask)))
    return [*dims[:-2], dims[-1], dims[-2]]


def is_masking(value: object) -> bool:
    """Whether numbers that are added, or weights' factors, come out of truth values."""
    waiting = [value]
    for _ in range(FARTHEST):
        if not waiting:
            return False
        node = waiting.pop()
        if not isinstance(node, fx.Node) or "size" in node.meta:
            continue
        if is_truth(node) and is_random(node):
            return False
        if is_truth(node) or operator_of(node) in ("tril", "triu") or _is_input_of_whole_numbers(node):
            return True
        if operator_of(node) in STILL_MASKS and node.args:
            waiting.extend(node.args)
    return False


def _is_input_of_whole_numbers(node: fx.Node) -> bool:
    """A mask of ones and zeros, as tokenisers give it: tokens themselves are never added to scores."""
    value = node.meta.get("val")
    return node.op == "placeholder" and str(getattr(value, "dtype", "")) in (
        "torch.int64",
        "torch.int32",
        "torch.uint8",
    )


STILL_MASKS = MOVED | frozenset(
    "mul add sub rsub to float half bfloat16 masked_fill where expand repeat contiguous type_as invert neg int".split()
)


def is_random(node: fx.Node) -> bool:
    """Whether chance decides: dropout by hand."""
    return any(operator_of(each) in RANDOM for each in (node, *node.all_input_nodes))


def sdpa_mask(node: fx.Node) -> fx.Node | None:
    given = node.kwargs.get("attn_mask", node.args[3] if len(node.args) > 3 else None)
    return given if isinstance(given, fx.Node) else None


def find_late(scene: Scene) -> Iterator[Problem]:
    """SF313. Where a mask came before the softmax too, the second one only cleans rows up."""
    for node in scene.operators("softmax"):
        at = softmax_axis(node)
        if at is None or not any(is_product(each) for each in scores_before(node)):
            continue
        if any(True for _ in masks_before(node)) or all(each.axis != at for each in contractions(scene, node)):
            continue
        for late in _late_masks(node, len(dims_of(node)) - at):
            axis = dims_of(node)[at]
            message = f"weights are masked after the softmax over {axis}: what is left of a row does not sum to 1"
            fix = "scores.masked_fill(mask, -inf) before the softmax"
            yield scene.problem("SF313", late, message, dims=names_in(axis), fix=fix)
            break


def _late_masks(node: fx.Node, back: int) -> Iterator[fx.Node]:
    """Masks on the weights while their axes are those of the softmax; a row that is normalised again has no fault."""
    rank = len(dims_of(node))
    for weights in weights_behind(node):
        if len(dims_of(weights)) != rank or operator_of(weights) in MOVED:
            return
        for user in weights.users:
            if operator_of(user) in ("tril", "triu") and not _normalised_again(user):
                yield user
            mask = _late_mask(user, weights)
            if mask is not None and is_masking(mask) and not _is_constant(mask, back) and not _normalised_again(user):
                yield user


def _late_mask(user: fx.Node, weights: fx.Node) -> fx.Node | None:
    name, args = operator_of(user), user.args
    if name == "masked_fill" and args[0] is weights and args[2] == 0 and isinstance(args[1], fx.Node):
        return args[1]
    if name == "where" and len(args) == 3 and isinstance(args[0], fx.Node) and weights in args[1:]:
        return args[0] if 0 in args[1:] or operator_of(args[2]) in ("zeros_like", "zeros") else None
    if name in ("mul", "imul") and len(args) == 2 and weights in args:
        other = args[1] if args[0] is weights else args[0]
        return other if isinstance(other, fx.Node) and "size" not in other.meta and not is_low(other) else None
    return None


def _normalised_again(masked: fx.Node) -> bool:
    for user in masked.users:
        if operator_of(user) in ("div", "truediv", "sum", "normalize", "norm", "clamp", "add"):
            return True
        if operator_of(user) in ("masked_fill", "dropout", "nan_to_num") and _normalised_again(user):
            return True
    return False


RULES = (
    Rule(
        "SF307",
        "a mask that is constant along the softmax axis",
        "error",
        """
        A softmax does not change when all of its scores do by the same amount, and of minus infinities it is NaN. A
        mask has to vary over the axis of the softmax: the keys.

        wrong:
            s = s.masked_fill(pad[:, :, None], float("-inf"))     # s: B T S, pad: B S
            w = s.softmax(dim=-1)

        right:
            s = s.masked_fill(pad[:, None, :], float("-inf"))
            w = s.softmax(dim=-1)
        """,
        find_constant,
    ),
    Rule(
        "SF313",
        "weights masked after softmax",
        "error",
        """
        A masked key has had its share in the denominator: the weights that are left do not sum to 1, and tell how
        much was masked. Scores are masked, not weights.

        wrong:
            w = s.softmax(dim=-1).masked_fill(mask, 0.0)

        right:
            w = s.masked_fill(mask, float("-inf")).softmax(dim=-1)
        """,
        find_late,
    ),
)
