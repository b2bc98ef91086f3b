"""A map that is halved and doubled, beside one that is not: an odd size loses a row on the way.

up is B 8 2*(H//2) 2*(W//2), skip is B 8 H W: halving an odd H or W rounds down, doubling does not bring the row back
fix: resize up to skip.shape[-2:]
"""

from __future__ import annotations

from shapeflow.check.cause.call import Call, Operand, names_in
from shapeflow.check.cause.chain import chain
from shapeflow.check.cause.result import Cause
from shapeflow.check.cause.suspects import mends_behind
from shapeflow.dims.atoms import FloorDiv
from shapeflow.dims.expr import Expr

GROWING = frozenset("interpolate upsample conv_transpose1d conv_transpose2d conv_transpose3d pixel_shuffle".split())
Named = tuple[str, Operand]
"""A tensor with its source text."""


def rounded(call: Call, message: str, axes: list[int], left: Named, right: Named) -> Cause | None:
    """The cause where one of two maps was halved and doubled and the other was not; None where neither was."""
    (grown, up), (skip, whole) = (left, right) if _grows(left[1]) or not _grows(right[1]) else (right, left)
    dims = names_in(*(size for axis in axes for size in (up.dims[axis], whole.dims[axis])))
    names = [name for name in dims if not name.isdigit()]
    target = {axis - up.rank: whole.dims[axis] for axis in axes}
    if not any(_floors(up.dims[axis]) or _floors(whole.dims[axis]) for axis in axes) and not names:
        repairs = mends_behind(call.root, up, target, message)
        if repairs:
            where = repairs[0].location or call.location
            return Cause(repairs[0].message, repairs[0].fix, dims, where, candidates=tuple(repairs))
    if not _grows(up):
        return None
    what = " or ".join(dict.fromkeys(names)) or "size"
    why = f"{message}: halving an odd {what} rounds down, and doubling does not bring the row back"
    count = up.rank - 2
    fix = f"resize {grown} to {skip}.shape[-{count}:] (F.interpolate(..., size={skip}.shape[-{count}:]))"
    if names:
        fix += ", or pad the input to a multiple"
    return Cause(why, fix, dims, call.location)


def _grows(operand: Operand) -> bool:
    """Whether the tensor was made larger on its way, or is no more than a rounded size."""
    return any(step.maker.operator in GROWING for step in chain(operand))


def _floors(size: Expr) -> bool:
    return any(isinstance(atom, FloorDiv) for monomial in size.coefficients for atom, _ in monomial)
