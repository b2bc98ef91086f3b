"""A shape that went wrong before the call that raised: an axis squeezed away, a cat along another axis, an outer sum.

Conv2d 'out' takes 8, gets 4: y is a cat along axis 2 of B 4 H W and B 4 H W; along axis 1 they add up to 8
fix: dim=1
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from shapeflow.check.cause.call import Call, Operand, names_in, number, same, valued
from shapeflow.check.cause.chain import SEVERAL, Step, chain
from shapeflow.check.cause.layer import layer_of
from shapeflow.check.cause.result import Cause
from shapeflow.dims.expr import Expr

_READS_LAST = ("linear", "embedding", "layer_norm", "rms_norm")
"""They take any axes in front, so one that is missing there is not what stops them."""


def earlier(call: Call) -> Cause | None:
    """The cause, where a line before the one that raised is at fault."""
    return _batch_squeezed(call) or _widened(call)


def _batch_squeezed(call: Call) -> Cause | None:
    """`squeeze()` without an axis, of a batch of one."""
    if call.operator in _READS_LAST:
        return None
    for given in call.tensors:
        for step in chain(given):
            if not _squeezes_all(step):
                continue
            gone = [axis for axis, dim in enumerate(step.before) if number(dim) == 1]
            meant = gone[1:]
            if not gone or gone[0] != 0:
                break
            shown = " ".join(map(str, step.before))
            named = f"{step.before[0]} = 1" if step.before[0].symbols else "which is 1"
            message = f"squeeze() of {shown} drops its batch, {named}, too: {given} is left"
            fix = f".squeeze({_axes(meant, len(step.before))})" if meant else "leave the squeeze out"
            where = step.maker.location or call.location
            return Cause(message, fix, names_in(step.before[0]), where)
    return None


def _squeezes_all(step: Step) -> bool:
    args, named = step.maker.args
    return step.maker.operator == "squeeze" and len(args) <= 1 and not named


def _axes(axes: list[int], rank: int) -> str:
    if len(axes) == 1:
        return str(axes[0] - rank if axes[0] == rank - 1 else axes[0])
    return f"({', '.join(map(str, axes))})"


def _widened(call: Call) -> Cause | None:
    """A layer gets another width, and an operator before it made the axis so."""
    wanted = _wanted(call)
    if wanted is None:
        return None
    given, axis, takes = wanted
    if given.rank <= axis or same(given.dims[axis], takes):
        return None
    layer = layer_of(call, nn.Module)
    start = f"{layer if layer is not None else call.operator} takes {takes}, gets {valued(given.dims[axis])}"
    for step in _unchanged(given):
        found = _joined_elsewhere(step, axis % given.rank, takes) or _spread(step, axis % given.rank, takes)
        if found is not None:
            message, fix = found
            where = step.maker.location or call.location
            return Cause(f"{start}: {message}", fix, names_in(given.dims[axis], takes), where)
    return None


def _wanted(call: Call) -> tuple[Operand, int, Expr] | None:
    """The tensor that a layer reads, the axis that has to be so wide, and how wide."""
    given, weight = call.tensor("input"), call.tensor("weight")
    if given is None or not given.rank:
        return None
    if call.operator == "linear" and weight is not None:
        return given, given.rank - 1, weight.dims[-1]
    if call.operator.startswith("conv") and weight is not None and weight.rank == given.rank:
        groups = call.arguments.get("groups", 1)
        transposed = "transpose" in call.operator
        return given, 1, weight.dims[0] if transposed else weight.dims[1] * (groups if isinstance(groups, int) else 1)
    width = getattr(call.module, "num_features", None)
    return (given, 1, Expr.const(width)) if isinstance(width, int) and given.rank > 1 else None


def _unchanged(given: Operand) -> Iterator[Step]:
    """The steps behind a tensor up to the one that gave it its shape."""
    for step in chain(given):
        yield step
        if step.resizes:
            return


def _joined_elsewhere(step: Step, axis: int, takes: Expr) -> tuple[str, str] | None:
    """A cat along one axis whose parts add up along another."""
    parts = step.maker.inputs
    if step.maker.operator != "cat" or not parts or any(each.rank != len(step.after) for each in parts):
        return None
    total = Expr.const(0)
    for each in parts:
        total = total + each.dims[axis]
    if not same(total, takes) or same(step.after[axis], total):
        return None
    grown = [at for at, dim in enumerate(step.after) if not same(dim, parts[0].dims[at])]
    if len(grown) != 1:
        return None
    shown = " and ".join(map(str, parts))
    message = f"it is a cat along axis {grown[0]} of {shown}; along axis {axis} they add up to {takes}"
    return message, f"dim={axis - len(step.after) if axis == len(step.after) - 1 and axis > 1 else axis}"


def _spread(step: Step, axis: int, takes: Expr) -> tuple[str, str] | None:
    """A sum or product of two tensors, none of which has the shape that came out: each was repeated for the other."""
    parts = [each for each in step.maker.inputs if each.rank]
    if step.maker.operator not in SEVERAL or len(parts) != 2:
        return None
    if any(len(each.dims) == len(step.after) and _all_same(each.dims, step.after) for each in parts):
        return None
    small, great = sorted(parts, key=lambda each: each.rank)
    if great.rank != len(step.after) or not same(great.dims[axis], takes):
        return None
    shown = f"it is {great} and {small}, which broadcast to {' '.join(map(str, step.after))}"
    missing = great.rank - small.rank
    if missing and _all_same(small.dims, great.dims[: small.rank]):
        return f"{shown}: the axes of {small} stand {missing} too far right", ".unsqueeze(-1)" * missing
    return shown, f"give both the shape {great}"


def _all_same(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> bool:
    return all(same(x, y) for x, y in zip(a, b, strict=True))
