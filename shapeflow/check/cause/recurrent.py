"""RNN, LSTM, GRU: the width of the input, batch_first, the shape of the hidden state.

LSTM 'rnn' takes 10 features, gets 20, the last axis of B T 20: input_size is wrong
fix: nn.LSTM(20, 32, batch_first=True)
"""

from __future__ import annotations

from typing import Any

from torch import nn

from shapeflow.check.cause.call import Call, Operand, names_in, number, same, valued
from shapeflow.check.cause.layer import Layer, layer_of
from shapeflow.check.cause.result import Cause, Repair
from shapeflow.check.cause.suspects import widths_behind
from shapeflow.check.cause.swapping import move_last, other_axis, rewritten
from shapeflow.dims.expr import Expr


def recurrent(call: Call) -> Cause | None:
    """The cause for a recurrent module or cell."""
    given, layer = call.tensor("input"), layer_of(call, nn.RNNBase, nn.RNNCellBase)
    if given is None or layer is None or not given.rank:
        return None
    takes, gets = layer.attribute("input_size"), given.dims[-1]
    if same(gets, takes):
        return _hidden(call, layer, given)
    message = f"{layer} takes {takes} features, gets {valued(gets)}, the last axis of {given}"
    dims = names_in(gets, takes)
    axis = other_axis(given, takes, given.rank - 1)
    if axis is not None:
        fix = rewritten(call, "input", move_last(given.rank, axis))
        return Cause(f"{message}: axis {axis} has the {takes}, a transpose is missing", fix, dims, call.location)
    if given.rank == 2 and isinstance(layer.module, nn.RNNBase) and takes == 1:
        fix = rewritten(call, "input", ".unsqueeze(-1)")
        return Cause(f"{message}: the axis of its one feature is missing", fix, dims, call.location)
    size = number(gets)
    if size is None:
        return Cause(message, "", dims, call.location)
    right = layer.repair(f"{message}: input_size is wrong", input_size=size)
    repairs = [right, *widths_behind(layer.root, given, -1, Expr.const(takes), message)]
    return Cause(right.message, right.fix, dims, right.location or call.location, candidates=tuple(repairs))


def _hidden(call: Call, layer: Layer, given: Operand) -> Cause | None:
    """The state: (layers * directions, batch, hidden) for a module, (batch, hidden) for a cell."""
    state = call.arguments.get("hx")
    parts = state if isinstance(state, list) else [state]
    for at, part in enumerate(each for each in parts if isinstance(each, Operand)):
        expected = _expected(layer, given, cell=at == 1)
        wrong = [(axis, a) for axis, a in enumerate(expected) if axis >= part.rank or not same(part.dims[axis], a)]
        if part.rank != len(expected) or wrong:
            return _state(call, layer, given, part, expected, wrong)
    return None


def _expected(layer: Layer, given: Operand, *, cell: bool) -> list[Any]:
    hidden = layer.attribute("hidden_size")
    if isinstance(layer.module, nn.RNNCellBase):
        return [*given.dims[:-1], hidden]
    width = hidden if cell or not layer.attribute("proj_size") else layer.attribute("proj_size")
    directions = 2 if layer.attribute("bidirectional") else 1
    batch = given.dims[0 if layer.attribute("batch_first") else 1 : None][:1] if given.rank == 3 else ()
    return [layer.attribute("num_layers") * directions, *batch, width]


def _state(
    call: Call, layer: Layer, given: Operand, part: Operand, expected: list[Any], wrong: list[tuple[int, Any]]
) -> Cause:
    shown = " ".join(map(str, expected))
    message = f"{layer} takes a state of {shown}, gets {part}"
    dims = names_in(*(part.dims[axis] for axis, _ in wrong if axis < part.rank), *(size for _, size in wrong))
    repairs: list[Repair] = []
    axes = [axis for axis, _ in wrong]
    if axes == [1] and part.rank == 3 and given.rank == 3:
        first = layer.attribute("batch_first")
        batch = given.dims[1 if first else 0]
        if same(part.dims[1], batch):
            told = f"{message}: it reads axis {0 if first else 1} of {given} as the batch"
            repairs.append(layer.repair(told, batch_first=not first))
    if axes == [len(expected) - 1] and (size := number(part.dims[-1])) is not None:
        repairs.append(layer.repair(f"{message}: hidden_size is not {size}", hidden_size=size))
    if axes == [0] and len(expected) == 3 and (count := number(part.dims[0])) is not None:
        directions = 2 if layer.attribute("bidirectional") else 1
        return Cause(
            f"{message}: num_layers * directions is {layer.attribute('num_layers')} * {directions}, not {count}",
            f"a state of {shown}",
            dims,
            call.location,
        )
    if repairs:
        right = repairs[0]
        return Cause(right.message, right.fix, dims, right.location or call.location, candidates=tuple(repairs))
    return Cause(message, f"a state of {shown}", dims, call.location)
