"""cat and stack: sizes that differ beside the axis that is joined.

cat along axis 1: up is B 8 2*(H//2) 2*(W//2), skip is B 8 H W: halving an odd H and doubling it loses a row
fix: resize up to skip.shape[-2:]
"""

from __future__ import annotations

import ast

from shapeflow.check.cause.call import Call, Operand, names_in, same
from shapeflow.check.cause.parameters import PARAMETERS
from shapeflow.check.cause.result import Cause
from shapeflow.check.cause.rounding import rounded


def join(call: Call) -> Cause | None:
    """The cause for `torch.cat` and `torch.stack`."""
    tensors = [each for each in call.arguments.get("tensors", ()) if isinstance(each, Operand)]
    names, known = _texts(call, len(tensors))
    if len(tensors) < 2:
        return None
    dim = call.arguments.get("dim", 0)
    pair = _first_pair(tensors, dim, call.operator)
    if pair is None:
        return None
    a, b = tensors[pair[0]], tensors[pair[1]]
    left, right = names[pair[0]], names[pair[1]]
    message = f"{call.operator} along axis {dim}: {left} is {a}, {right} is {b}"
    if a.rank != b.rank:
        return _ranks(call, message, (left, a), (right, b))
    axes = _differing(a, b, dim, call.operator)
    dims = names_in(*(size for axis in axes for size in (a.dims[axis], b.dims[axis])))
    if (
        all(axis >= 2 for axis in axes)
        and a.rank >= 3
        and (found := rounded(call, message, axes, (left, a), (right, b)))
    ):
        return found
    if (found := _single(call, message, axes, (left, a), (right, b))) is not None:
        return found
    if call.operator != "stack" and len(axes) == 1:
        where = axes[0] - a.rank if axes[0] == a.rank - 1 else axes[0]
        joined = f"torch.{call.operator}(({', '.join(names)}), dim={where})"
        why = f"{message}: axis {axes[0]} differs ({a.dims[axes[0]]} and {b.dims[axes[0]]}), so it is the one to join"
        return Cause(why, joined if known else f"dim={where}", dims, call.location)
    told = ", ".join(f"axis {axis} is {a.dims[axis]} and {b.dims[axis]}" for axis in axes)
    return Cause(f"{message}: {told}", "", dims, call.location)


def _single(
    call: Call, message: str, axes: list[int], left: tuple[str, Operand], right: tuple[str, Operand]
) -> Cause | None:
    """A token of batch one beside a batch: cat does not broadcast."""
    for (text, small), (other, great) in ((left, right), (right, left)):
        if all(same(small.dims[axis], 1) for axis in axes):
            sizes = [f"{other}.shape[{axis}]" if axis in axes else "-1" for axis in range(small.rank)]
            dims = names_in(*(great.dims[axis] for axis in axes))
            why = f"{message}: {call.operator} does not broadcast"
            return Cause(why, f"{text}.expand({', '.join(sizes)})", dims, call.location)
    return None


def _texts(call: Call, count: int) -> tuple[list[str], bool]:
    """The tensors as the code writes them, and whether it is known how."""
    node = None
    if call.expression is not None:
        node = call.expression.argument_node("tensors", PARAMETERS[call.operator], call.callee)
    if call.expression is not None and isinstance(node, ast.Tuple | ast.List) and len(node.elts) == count:
        return [call.expression.of(each) for each in node.elts], True
    return [f"tensor {index}" for index in range(count)], False


def _first_pair(tensors: list[Operand], dim: int, operator: str) -> tuple[int, int] | None:
    """Two that do not fit; of three or more the first is the one that fits the fewest others."""

    def fits(a: int, b: int) -> bool:
        return tensors[a].rank == tensors[b].rank and not _differing(tensors[a], tensors[b], dim, operator)

    everyone = range(len(tensors))
    friends = [sum(fits(a, b) for b in everyone if b != a) for a in everyone]
    odd = min(everyone, key=lambda at: friends[at])
    other = next((at for at in everyone if at != odd and not fits(odd, at)), None)
    return None if other is None else (odd, other)


def _differing(a: Operand, b: Operand, dim: int, operator: str) -> list[int]:
    joined = None if operator == "stack" else dim % a.rank if a.rank else None
    return [axis for axis in range(a.rank) if axis != joined and not same(a.dims[axis], b.dims[axis])]


def _ranks(call: Call, message: str, left: tuple[str, Operand], right: tuple[str, Operand]) -> Cause:
    """An axis is missing in one of them."""
    (text, small), (_, great) = sorted((left, right), key=lambda side: side[1].rank)
    for axis in range(great.rank):
        rest = [dim for at, dim in enumerate(great.dims) if at != axis]
        if len(rest) == small.rank and all(same(a, b) for a, b in zip(small.dims, rest, strict=True)):
            return Cause(
                f"{message}: {text} has no axis {axis}",
                f"{text}.unsqueeze({axis})",
                names_in(great.dims[axis]),
                call.location,
            )
    return Cause(f"{message}: they have {left[1].rank} and {right[1].rank} axes", "", names_in(), call.location)
