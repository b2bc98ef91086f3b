"""What operators are given that is no tensor: by name, the same however it was written, defaults filled in."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import shapeflow as sf
from shapeflow.dims.expr import Expr
from shapeflow.trace.result import Node


def only(function, *inputs: str) -> dict:
    """The arguments of the last operator of a function."""
    trace = sf.trace(function, *(inputs or ["B T 8"]))
    return dict([node for node in trace.nodes if node.kind == "operator"][-1].arguments)


IMAGE, KERNEL = "B 3 H W", "5 3 3 3"
CASES = [
    (lambda x: x.softmax(-1), {"dim": -1}),
    (lambda x: F.softmax(x, dim=1), {"dim": 1}),
    (lambda x: torch.softmax(x, 1, dtype=torch.float64), {"dim": 1, "dtype": "float64"}),
    (lambda x: x.transpose(1, 2), {"dim0": 1, "dim1": 2}),
    (lambda x: torch.transpose(x, dim0=1, dim1=2), {"dim0": 1, "dim1": 2}),
    (lambda x: x.permute(0, 2, 1), {"dims": (0, 2, 1)}),
    (lambda x: x.permute((0, 2, 1)), {"dims": (0, 2, 1)}),
    (lambda x: x.mean(-1, True), {"dim": -1, "keepdim": True}),
    (lambda x: x.sum(dim=(1, 2)), {"dim": (1, 2)}),
    (lambda x: x.sum((1, 2)), {"dim": (1, 2)}),
    (lambda x: x.std(-1, False), {"dim": -1, "unbiased": False}),
    (lambda x: x.roll(1, 2), {"shifts": 1, "dims": 2}),
    (lambda x: x.flip(1, 2), {"dims": (1, 2)}),
    (lambda x: F.dropout(x, 0.3), {"p": 0.3, "training": True}),
    (lambda x: F.dropout(x), {"p": 0.5, "training": True}),
    (lambda x: F.layer_norm(x, (8,), eps=1e-6), {"normalized_shape": (8,), "eps": 1e-6}),
    (lambda x: F.gelu(x, approximate="tanh"), {"approximate": "tanh"}),
    (lambda x: x * 0.5, {"other": 0.5}),
    (lambda x: 2 - x, {"other": 2}),
    (lambda x: x + x, {}),
    (lambda x: torch.add(x, x, alpha=3), {"alpha": 3}),
    (lambda x: x.masked_fill(x > 1, float("-inf")), {"value": -math.inf}),
    (lambda x: x[:, -1:, None, ..., 0], {"index": ":, -1:, None, ..., 0"}),
    (lambda x: x[..., ::2], {"index": "..., ::2"}),
    (lambda x: x[torch.arange(2)], {"index": "tensor"}),
    (lambda x: torch.cat([x, x], 1), {"dim": 1}),
    (lambda x: torch.cat([x, x]), {"dim": 0}),
    (lambda x: x.to(torch.float16), {"dtype": "float16"}),
    (lambda x: torch.einsum("btd,bsd->bts", x, x), {"equation": "btd,bsd->bts"}),
    (lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True), {"dropout_p": 0.0, "is_causal": True}),
    (lambda x: F.scaled_dot_product_attention(x, x, x, None, 0.1), {"dropout_p": 0.1}),
    (lambda x: F.pad(x, (1, 2)), {"pad": (1, 2), "mode": "constant"}),
    (lambda x: x.clamp(min=0), {"min": 0}),
]


@pytest.mark.parametrize(("function", "arguments"), CASES, ids=[str(arguments) for _, arguments in CASES])
def test_arguments_by_name(function, arguments) -> None:
    assert only(function) == arguments


PLAIN = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
CONVOLUTIONS = [
    (lambda x, w: F.conv2d(x, w), PLAIN),
    (lambda x, w: F.conv2d(x, w, stride=2), PLAIN | {"stride": (2, 2)}),
    (lambda x, w: F.conv2d(x, w, None, 2, 1), PLAIN | {"stride": (2, 2), "padding": (1, 1)}),
    (lambda x, w: F.conv2d(x, w, padding="same"), PLAIN | {"padding": "same"}),
    (lambda x, w: F.max_pool2d(x, 2, padding=1), {"kernel_size": 2, "padding": (1, 1), "dilation": (1, 1)}),
]


@pytest.mark.parametrize(("function", "arguments"), CONVOLUTIONS, ids=[str(arguments) for _, arguments in CONVOLUTIONS])
def test_arguments_of_convolutions(function, arguments) -> None:
    assert only(function, IMAGE, KERNEL) == arguments


def test_sizes_stand_as_formulas_and_by_the_names_of_their_axes() -> None:
    B, T = Expr.symbol("B"), Expr.symbol("T")
    assert only(lambda x: x.view(x.shape[0], x.shape[1], 2, 4)) == {"size": (B, T, 2, 4)}
    assert only(lambda x: x.reshape(x.shape[0] * x.shape[1], -1)) == {"shape": (B * T, -1)}
    assert only(lambda x: x.expand(x.shape[0], -1, 8))["size"] == (B, -1, 8)
    assert only(lambda x: torch.arange(x.shape[1])) == {"end": T}
    assert only(lambda x: x[:, : x.shape[1] - 1]) == {"index": ":, :T - 1"}


def test_a_trace_at_sizes_has_numbers() -> None:
    trace = sf.trace(lambda x: x.view(x.shape[0] * x.shape[1], 8), "B T 8")
    (view,) = [node for node in trace.at(B=2, T=5).nodes if node.operator == "view"]
    assert dict(view.arguments)["size"] == (10, 8)


def test_modules_of_torch_tell_what_they_were_made_with() -> None:
    layers = nn.Sequential(nn.Conv1d(8, 4, 3, stride=2), nn.Dropout(0.25), nn.GroupNorm(2, 4, eps=1e-3), nn.Flatten())
    nodes = {node.operator: dict(node.arguments) for node in sf.trace(layers, "B 8 T").nodes}
    assert nodes["conv1d"]["stride"] == (2,) and nodes["dropout"]["p"] == 0.25
    assert nodes["group_norm"] == {"num_groups": 2, "eps": 1e-3}
    assert nodes["flatten"] == {"start_dim": 1, "end_dim": -1}


def test_inputs_and_what_nobody_can_name_have_none() -> None:
    trace = sf.trace(lambda x: x.T, "B 8")
    assert all(not node.arguments for node in trace.nodes)
    assert Node("x", "input").arguments == ()
