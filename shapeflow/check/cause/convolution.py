"""Convolutions, transposed ones too: channels that do not fit, channels last, a missing axis, a kernel too large.

Conv2d 'stem' takes 3 channels, gets 1, axis 1 of B 1 H W: in_channels is wrong
fix: nn.Conv2d(1, 16, 3, padding=1)
"""

from __future__ import annotations

from shapeflow.check.cause.call import Call, Operand, names_in, number, same, valued
from shapeflow.check.cause.layer import Layer, layer_of
from shapeflow.check.cause.result import Cause
from shapeflow.check.cause.suspects import CONVS, TRANSPOSED, widths_behind
from shapeflow.check.cause.swapping import move_second, rewritten
from shapeflow.dims.expr import Expr


def convolution(call: Call) -> Cause | None:
    """The cause for `F.conv1d` to `F.conv_transpose3d`."""
    given, weight = call.tensor("input"), call.tensor("weight")
    if given is None or weight is None or weight.rank < 3:
        return None
    layer = layer_of(call, *CONVS, *TRANSPOSED)
    name = str(layer) if layer is not None else call.operator
    takes = _channels_taken(call, weight)
    if given.rank not in (weight.rank, weight.rank - 1):
        return _wrong_rank(call, name, given, weight.rank, takes)
    axis = 1 if given.rank == weight.rank else 0
    gets = given.dims[axis]
    if same(gets, takes):
        return _kernel_too_large(call, name, given, weight)
    if axis == 0 and (number(gets) is None or same(takes, 1)):
        return _wrong_rank(call, name, given, weight.rank, takes)
    if axis == 1 and same(given.dims[-1], takes):
        message = f"{name} takes {takes} channels on axis 1, gets {valued(gets)}: {given} has its channels last"
        fix = rewritten(call, "input", move_second(given.rank, given.rank - 1))
        return Cause(message, fix, names_in(gets, takes), call.location)
    return _wrong_channels(call, name, given, axis, takes, layer)


def _channels_taken(call: Call, weight: Operand) -> Expr:
    groups = call.arguments.get("groups", 1)
    if "transpose" in call.operator:
        return weight.dims[0]
    return weight.dims[1] * (groups if isinstance(groups, int) else 1)


def _wrong_rank(call: Call, name: str, given: Operand, rank: int, takes: Expr) -> Cause:
    """No axis for channels, or one for time or width too many."""
    message = f"{name} takes {rank} axes (batch, channels, ...), gets {given.rank}: {given}"
    if given.rank == rank - 1 and same(takes, 1):
        fix = rewritten(call, "input", ".unsqueeze(1)")
        return Cause(f"{message}: the axis of its one channel is missing", fix, names_in(*given.dims), call.location)
    if given.rank < rank:
        fix = f"give it {rank} axes, or take nn.Conv{given.rank - 2}d" if given.rank > 2 else f"give it {rank} axes"
        return Cause(message, fix, names_in(*given.dims), call.location)
    return Cause(message, f"flatten axes, or take nn.Conv{given.rank - 2}d", names_in(*given.dims), call.location)


def _wrong_channels(call: Call, name: str, given: Operand, axis: int, takes: Expr, layer: Layer | None) -> Cause:
    gets = given.dims[axis]
    message = (
        f"{name} takes {takes} channel{'' if same(takes, 1) else 's'}, gets {valued(gets)}, axis {axis} of {given}"
    )
    dims, size = names_in(gets, takes), number(gets)
    if layer is None or size is None:
        return Cause(message, "", dims, call.location)
    right = layer.repair(f"{message}: in_channels is wrong", **_taking(layer, size))
    repairs = [right, *widths_behind(layer.root, given, axis, takes, message)]
    if size == layer.attribute("out_channels"):
        swapped = f"{message}, and gives {size}: its arguments are swapped"
        repairs.insert(1, layer.repair(swapped, in_channels=size, out_channels=number(takes)))
        if given.kind != "input" and _reads_next(call, takes):
            repairs[0], repairs[1] = repairs[1], repairs[0]
    first = repairs[0]
    return Cause(first.message, first.fix, dims, first.location or call.location, candidates=tuple(repairs))


def _taking(layer: Layer, size: int) -> dict[str, int]:
    """The arguments with which it takes `size` channels: a depthwise one has as many groups."""
    channels, groups = layer.attribute("in_channels"), layer.attribute("groups")
    if groups == 1 or groups != channels:
        return {"in_channels": size}
    return {"in_channels": size, "out_channels": layer.attribute("out_channels") // channels * size, "groups": size}


def _reads_next(call: Call, takes: Expr) -> bool:
    """Whether the promised result has the channels that the layer takes now: then the arguments are swapped."""
    return call.promised is not None and len(call.promised) > 1 and same(call.promised[1], takes)


def _kernel_too_large(call: Call, name: str, given: Operand, weight: Operand) -> Cause | None:
    """The window does not fit, or nothing is left."""
    if "ernel size" not in call.error and "too small" not in call.error:
        return None
    spatial, kernel = given.dims[-(weight.rank - 2) :], weight.dims[2:]
    window = "x".join(map(str, kernel))
    message = f"{name} slides a window of {window} over {' x '.join(map(str, spatial))}: it does not fit"
    names = [name for dim in spatial for name in sorted(symbol.name for symbol in dim.symbols)]
    least = f"declare the least {' and '.join(dict.fromkeys(names))}, or " if names else ""
    fix = f"{least}pad, or leave a pooling or a stride in front out"
    return Cause(message, fix, names_in(*spatial), call.location)
