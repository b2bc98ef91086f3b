"""Recurrent layers by their closed form: torch's counter finds nothing in the fused kernels, or loops over time.

Every weight matrix meets every token once: `2 * tokens * (numbers in the matrices)`, for `nn.LSTM`, `nn.GRU` and
`nn.RNN`, of any depth and direction, packed sequences and projections included.
"""

from __future__ import annotations

from typing import Any

import torch

from shapeflow.cost.calls import Call, numbers
from shapeflow.cost.probe import Gradient, Work
from shapeflow.dims.expr import Expr, maximum
from shapeflow.torch_private import lstm_functions
from shapeflow.trace.traced import traced

RECURRENT = frozenset(lstm_functions().values())

KEPT = {"lstm": 16, "gru": 7, "rnn_tanh": 1, "rnn_relu": 1}
"""Numbers kept for the backward, for each token and unit of a layer: gates, states, and what is made of them.

Measured on the CPU with `torch.autograd.graph.saved_tensors_hooks`. The LSTM's are its output (1) and oneDNN's
workspace (15), which comes in pages of 4 KiB: tiny layers keep more.
"""

WIDER = 6
"""How much more that workspace holds for each number by which a layer's input is wider than the layer."""


def forward(call: Call) -> Expr:
    """Operations of all layers and directions."""
    return 2 * _tokens(call) * _total(_matrices(call))


def gradient(call: Call, required: tuple[bool, ...]) -> Gradient:
    """A product for each matrix that is trained, and one for each whose input has a gradient."""
    followed = {id(tensor): need for tensor, need in zip(call.reads, required, strict=True)}
    first = _on_the_input(call)
    trained = [each for each in _matrices(call) if followed[id(each)]]
    handed_on = [each for each in _matrices(call) if required[0] or not any(each is other for other in first)]
    flops = 2 * _tokens(call) * (_total(trained) + _total(handed_on))
    return Gradient(Work(flops), (0,), (), _kept(call), (True,) * len(call.makes))


def _kept(call: Call) -> Expr:
    """Bytes besides the input: what each layer makes, its states, and the inputs of the layers above the first."""
    layers, directions = _layers(call), _directions(call)
    units, width = _last(_hidden(call)[0]), _last(call.reads[0])
    above = (layers - 1) * directions * units
    per_token = layers * directions * KEPT[call.function.__name__] * units + above
    if call.function.__name__ == "lstm":
        widths = [width] + [units * directions] * (layers - 1)
        per_token = per_token + sum((directions * WIDER * maximum(each - units, 0) for each in widths), Expr.const(0))
        states = 2 * _total(_hidden(call))
    else:
        per_token = per_token + (width if directions == 2 and _batch_first(call) else 0)  # the input is copied
        states = _total(_hidden(call))
    return (_tokens(call) * per_token + states) * call.reads[0].dtype.itemsize


def _last(tensor: torch.Tensor) -> Expr:
    return numbers(_sizes(tensor)[-1:])


def _shift(call: Call) -> int:
    """Packed sequences come with the sizes of their batches before the hidden state."""
    return 1 if isinstance(call.args[3], list | tuple) else 0


def _hidden(call: Call) -> list[torch.Tensor]:
    hidden = call.args[1 + _shift(call)]
    return list(hidden) if isinstance(hidden, list | tuple) else [hidden]


def _weights(call: Call) -> list[torch.Tensor]:
    return list(call.args[2 + _shift(call)])


def _layers(call: Call) -> int:
    return int(call.args[4 + _shift(call)])


def _directions(call: Call) -> int:
    return 2 if call.args[7 + _shift(call)] else 1


def _batch_first(call: Call) -> bool:
    return not _shift(call) and bool(call.args[8])


def _matrices(call: Call) -> list[torch.Tensor]:
    return [each for each in _weights(call) if each.dim() == 2]


def _on_the_input(call: Call) -> list[torch.Tensor]:
    """The first layer's matrices that meet the input, one for each direction."""
    weights = _weights(call)
    step = len(weights) // (_layers(call) * _directions(call))
    return [weights[number * step] for number in range(_directions(call))]


def _tokens(call: Call) -> Expr:
    return numbers(_sizes(call.reads[0])[:-1])


def _total(tensors: list[torch.Tensor]) -> Expr:
    return sum((numbers(_sizes(each)) for each in tensors), Expr.const(0))


def _sizes(tensor: torch.Tensor) -> tuple[Any, ...]:
    known = traced(tensor)
    assert known is not None
    return known.signature.sizes
