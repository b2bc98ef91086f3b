"""A map that is halved and doubled, beside one that is not: an odd size loses a row on the way.

up is B 8 2*(H//2) 2*(W//2), skip is B 8 H W: halving an odd H or W rounds down, doubling does not bring the row back
fix: resize up to skip.shape[-2:]
"""

from __future__ import annotations

from shapeflow.check.cause.call import Call, Operand, names_in
from shapeflow.check.cause.chain import chain
from shapeflow.check.cause.result import Cause, Repair
from shapeflow.check.cause.suspects import TRANSPOSED, lacking, layers_behind, mends_behind

GROWING = frozenset("interpolate upsample conv_transpose1d conv_transpose2d conv_transpose3d pixel_shuffle".split())
Named = tuple[str, Operand]
"""A tensor with its source text."""


def rounded(call: Call, message: str, axes: list[int], left: Named, right: Named) -> Cause | None:
    """The cause where one of two maps was halved and doubled and the other was not; None where neither was."""
    (grown, up), (skip, whole) = (left, right) if _grows(left[1]) or not _grows(right[1]) else (right, left)
    dims = names_in(*(size for axis in axes for size in (up.dims[axis], whole.dims[axis])))
    names = [name for name in dims if not name.isdigit()]
    target = {axis - up.rank: whole.dims[axis] for axis in axes}
    back = {axis: up.dims[axis] for axis in target}
    repairs = _inexact(call, up, message)
    for resizing in (True, False):
        repairs += mends_behind(call.root, up, target, message, resizing=resizing)
        repairs += mends_behind(call.root, whole, back, message, resizing=resizing)
    if repairs and (not names or not _grows(up) or _inexact(call, up, message)):
        where = repairs[0].location or call.location
        return Cause(repairs[0].message, repairs[0].fix, dims, where, candidates=tuple(dict.fromkeys(repairs)))
    if not _grows(up):
        return None
    what = " or ".join(dict.fromkeys(names)) or "size"
    why = f"{message}: halving an odd {what} rounds down, and doubling does not bring the row back"
    count = up.rank - 2
    fix = f"resize {grown} to {skip}.shape[-{count}:] (F.interpolate(..., size={skip}.shape[-{count}:]))"
    if names:
        fix += ", or pad the input to a multiple"
    return Cause(why, fix, dims, call.location)


def _inexact(call: Call, up: Operand, message: str) -> list[Repair]:
    """The last transposed convolution, where its kernel, padding and output_padding do not make stride * n of n."""
    for layer, step in layers_behind(call.root, up):
        if not isinstance(layer.module, TRANSPOSED):
            continue
        missing = lacking(layer.module)
        if not 0 < missing < layer.module.stride[0]:
            return []
        now = layer.module.output_padding[0]
        told = f"{layer} makes {step.after[-1]} of {step.before[-1]} (output_padding={now})"
        return [layer.repair(f"{message}: {told}", output_padding=int(now) + missing)]
    return []


def _grows(operand: Operand) -> bool:
    """Whether the tensor was made larger on its way, or is no more than a rounded size."""
    return any(step.maker.operator in GROWING for step in chain(operand))
