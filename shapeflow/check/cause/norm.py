"""Batch, instance, layer and group norm: a wrong width, or the axis that they normalise at the wrong place.

BatchNorm1d 'bn' takes 24 channels on axis 1, gets T: B T 24 has them last, a transpose is missing
fix: self.bn(x.transpose(1, 2)).transpose(1, 2)
"""

from __future__ import annotations

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from shapeflow.check.cause.call import Call, Operand, factors_text, names_in, number, same, valued
from shapeflow.check.cause.layer import layer_of
from shapeflow.check.cause.result import Cause
from shapeflow.check.cause.suspects import widths_behind
from shapeflow.check.cause.swapping import move_last, move_second, other_axis, rewritten
from shapeflow.dims.expr import Expr, product


def channel_norm(call: Call) -> Cause | None:
    """The cause for batch, instance and group norm: they read channels on axis 1."""
    given = call.tensor("input")
    layer = layer_of(call, _NormBase, nn.GroupNorm)
    if given is None:
        return None
    attribute = "num_channels" if layer is not None and isinstance(layer.module, nn.GroupNorm) else "num_features"
    size = layer.attribute(attribute) if layer is not None else _vector(call)
    name = str(layer) if layer is not None else call.operator
    if "D input" in call.error or given.rank < 2:
        return _wrong_rank(call, name, given, size)
    gets = given.dims[1]
    if size is None or same(gets, size):
        return _groups(call, name, given)
    message = f"{name} takes {size} channels on axis 1, gets {valued(gets)}"
    dims = names_in(gets, size)
    if given.rank > 2 and same(given.dims[-1], size):
        back = ".transpose(1, 2)" if given.rank == 3 else move_last(given.rank, 1)
        fix = rewritten(call, "input", move_second(given.rank, given.rank - 1), back)
        how = "transpose" if given.rank == 3 else "permute"
        return Cause(f"{message}: {given} has them last, a {how} is missing", fix, dims, call.location)
    known = number(gets)
    if layer is None or known is None:
        return Cause(f"{message} of {given}", "", dims, call.location)
    changes = {attribute: known}
    if attribute == "num_channels" and known % layer.attribute("num_groups"):
        changes = {"num_groups": nearest_divisor(known, layer.attribute("num_groups")), **changes}
    right = layer.repair(f"{message} of {given}: {attribute} is wrong", **changes)
    repairs = (right, *widths_behind(layer.root, given, 1, Expr.const(size), message))
    return Cause(right.message, right.fix, dims, right.location or call.location, candidates=repairs)


def _vector(call: Call) -> int | None:
    """The width that the weight or the running mean tells."""
    for name in ("running_mean", "weight", "bias"):
        vector = call.tensor(name)
        if vector is not None:
            return number(vector.dims[0])
    return None


def _wrong_rank(call: Call, name: str, given: Operand, size: int | None) -> Cause:
    message = f"{name} does not take {given.rank} axes: {given}"
    kind = type(call.module).__name__
    if given.rank in (3, 4, 5) and kind[:-2] in ("BatchNorm", "InstanceNorm"):
        fix = f"nn.{kind[:-2]}{given.rank - 2}d({size})"
        layer = layer_of(call, nn.Module)
        where = layer.location if layer is not None else None
        return Cause(
            f"{message}; {kind[:-2]}{given.rank - 2}d does", fix, names_in(*given.dims), where or call.location
        )
    return Cause(message, "", names_in(*given.dims), call.location)


def _groups(call: Call, name: str, given: Operand) -> Cause | None:
    groups, channels = call.arguments.get("num_groups"), given.dims[1]
    if groups is None or number(groups) is None or same(channels % groups, 0):
        return None
    message = f"{name} splits {channels} channels into {groups} groups: they do not divide"
    fix = ""
    if (known := number(channels)) is not None:
        fix = f"num_groups={nearest_divisor(known, int(groups))}"
    return Cause(message, fix, names_in(channels, groups), call.location)


def nearest_divisor(size: int, wanted: int) -> int:
    """The divisor of `size` next to `wanted`; of two at the same distance the greater one."""
    divisors = [each for each in range(1, size + 1) if size % each == 0]
    return min(divisors, key=lambda each: (abs(each - wanted), -each))


def layer_norm(call: Call) -> Cause | None:
    """The cause for layer and RMS norm: they read the last axes."""
    given, shape = call.tensor("input"), call.arguments.get("normalized_shape")
    if given is None or not isinstance(shape, list | tuple) or not shape:
        return None
    layer = layer_of(call, nn.LayerNorm, nn.RMSNorm)
    name = str(layer) if layer is not None else call.operator
    gets = given.dims[-len(shape) :]
    shown = f"{factors_text(shape, ' x ')}"
    message = f"{name} takes {shown} on the last {'axis' if len(shape) == 1 else f'{len(shape)} axes'}"
    message += f", gets {factors_text(gets, ' x ')} of {given}"
    dims = names_in(*gets, *shape)
    axis = other_axis(given, shape[0], given.rank - 1) if len(shape) == 1 else None
    if axis is not None:
        after = ".transpose(1, 2)" if given.rank == 3 else move_second(given.rank, given.rank - 1)
        fix = rewritten(call, "input", move_last(given.rank, axis), after if given.rank > 2 else "")
        return Cause(f"{message}: axis {axis} has the {shape[0]}, a transpose is missing", fix, dims, call.location)
    sizes = [number(dim) for dim in gets]
    if layer is None or None in sizes or len(sizes) != len(shape):
        return Cause(message, "", dims, call.location)
    value = sizes[0] if len(sizes) == 1 else tuple(sizes)
    right = layer.repair(f"{message}: normalized_shape is wrong", normalized_shape=value)
    behind = widths_behind(layer.root, given, -1, product(shape), message) if len(shape) == 1 else []
    return Cause(right.message, right.fix, dims, right.location or call.location, candidates=(right, *behind))
