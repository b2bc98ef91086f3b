"""Pooling and interpolation: nothing is left of an axis, or the ranks do not fit.

MaxPool2d 'pool': a window of 2 over H//16 x W//16 leaves nothing
fix: declare larger H and W, or leave a pooling out
"""

from __future__ import annotations

from typing import Any

from torch import nn

from shapeflow.check.cause.call import Call, Operand, names_in
from shapeflow.check.cause.layer import layer_of
from shapeflow.check.cause.result import Cause


def pool(call: Call) -> Cause | None:
    """The cause for a pooling with an output too small, or an input of the wrong rank."""
    given = call.tensor("input")
    if given is None:
        return None
    layer = layer_of(call, nn.Module) if call.path and type(call.module).__module__.startswith("torch.") else None
    name = str(layer) if layer is not None else call.operator
    count = _axes(call.operator)
    if given.rank not in (count + 1, count + 2):
        message = f"{name} takes {count + 2} axes (batch, channels, ...), gets {given.rank}: {given}"
        return Cause(message, _other_pool(call.operator, given), names_in(*given.dims), call.location)
    spatial = given.dims[-count:]
    window = _shown(call.arguments.get("kernel_size"))
    message = f"{name}: a window of {window} over {' x '.join(map(str, spatial))} leaves nothing"
    names = list(dict.fromkeys(symbol.name for dim in spatial for symbol in sorted(dim.symbols, key=str)))
    fix = (
        f"declare larger {' and '.join(names)}, or leave a pooling or a stride out"
        if names
        else "a larger input, or a pooling or stride less"
    )
    return Cause(message, fix, names_in(*spatial), call.location)


def _axes(operator: str) -> int:
    return next((int(digit) for digit in operator if digit.isdigit()), 2)


def _other_pool(operator: str, given: Operand) -> str:
    count = given.rank - 2
    return operator.replace(f"{_axes(operator)}d", f"{count}d") if 1 <= count <= 3 else ""


def _shown(size: Any) -> str:
    if isinstance(size, list | tuple):
        return "x".join(map(str, size))
    return str(size)


def interpolate(call: Call) -> Cause | None:
    """The cause for `F.interpolate`."""
    given = call.tensor("input")
    if given is None:
        return None
    mode = call.arguments.get("mode") or "nearest"
    ranks = {"linear": 3, "bilinear": 4, "bicubic": 4, "trilinear": 5}
    wanted = ranks.get(str(mode))
    if wanted is not None and given.rank != wanted:
        fits = {3: "linear", 4: "bilinear", 5: "trilinear"}.get(given.rank)
        message = f"interpolate with mode={mode!r} takes {wanted} axes, gets {given.rank}: {given}"
        return Cause(message, f"mode={fits!r}" if fits else "", names_in(*given.dims), call.location)
    size = call.arguments.get("size")
    if isinstance(size, list | tuple) and len(size) != given.rank - 2:
        message = f"interpolate of {given} takes {given.rank - 2} sizes, gets {len(size)}: {' '.join(map(str, size))}"
        fix = f"size={call.text('size', 'size')}[-{given.rank - 2}:]" if given.rank > 2 else ""
        return Cause(message, fix, names_in(*size), call.location)
    if given.rank < 3:
        message = f"interpolate takes at least 3 axes (batch, channels, ...), gets {given.rank}: {given}"
        return Cause(message, "", names_in(*given.dims), call.location)
    return None
