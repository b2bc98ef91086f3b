"""Operators one by one: against torch's counter where it knows them, by their definition where it does not."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

import shapeflow as sf
from tests.cost.counters import counted


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(shape, requires_grad=True)


SAME = {
    "linear": (lambda x: functional.linear(x, x.new_ones(5, 6), x.new_ones(5)), "B T 6"),
    "matmul": (lambda x: x @ x.transpose(-1, -2), "B 4 T 6"),
    "matmul_broadcast": (lambda x: torch.matmul(x, x.new_ones(6, 5)), "B 4 T 6"),
    "matmul_of_unlike_ranks": (lambda x: x[:, None] @ x.new_ones(3, 6, 5), "B T 6"),
    "einsum": (lambda x: torch.einsum("bthd,bshd->bhts", x, x), "B T 4 6"),
    "bmm": (lambda x: torch.bmm(x, x.transpose(1, 2)), "B T 6"),
    "baddbmm": (lambda x: torch.baddbmm(x.new_zeros(1), x, x.transpose(1, 2)), "B T 6"),
    "addmm": (lambda x: torch.addmm(x.new_zeros(5), x, x.new_ones(6, 5)), "B 6"),
    "conv1d": (lambda x: functional.conv1d(x, x.new_ones(8, 6, 3), padding=1), "B 6 T"),
    "conv2d_strided": (lambda x: functional.conv2d(x, x.new_ones(8, 6, 3, 3), stride=2), "B 6 H W"),
    "conv2d_groups": (lambda x: functional.conv2d(x, x.new_ones(8, 3, 3, 3), groups=2, padding=1), "B 6 H W"),
    "conv2d_dilated": (lambda x: functional.conv2d(x, x.new_ones(8, 6, 3, 3), dilation=2), "B 6 H W"),
    "conv2d_depthwise": (lambda x: functional.conv2d(x, x.new_ones(6, 1, 3, 3), groups=6, padding="same"), "B 6 H W"),
    "conv3d": (lambda x: functional.conv3d(x, x.new_ones(4, 2, 2, 2, 2)), "B 2 D H W"),
    "conv_transpose2d": (lambda x: functional.conv_transpose2d(x, x.new_ones(6, 4, 3, 3), stride=2), "B 6 H W"),
    "conv_transpose1d_groups": (lambda x: functional.conv_transpose1d(x, x.new_ones(6, 4, 3), groups=2), "B 6 T"),
    "attention": (lambda x: functional.scaled_dot_product_attention(x, x, x), "B 4 T 6"),
    "attention_causal": (lambda x: functional.scaled_dot_product_attention(x, x, x, is_causal=True), "B 4 T 6"),
    "attention_grouped": (
        lambda x: functional.scaled_dot_product_attention(x, x[:, :2], x[:, :2], enable_gqa=True),
        "B 4 T 6",
    ),
    "attention_masked": (
        lambda x: functional.scaled_dot_product_attention(x, x, x, attn_mask=x.new_zeros(x.shape[2], x.shape[2])),
        "B 4 T 6",
    ),
    "attention_without_heads": (lambda x: functional.scaled_dot_product_attention(x, x, x), "B T 6"),
    "embedding": (lambda x: functional.embedding(x.long() % 5, x.new_ones(5, 7)) * x[..., None], "B T"),
    "softmax_and_norm": (lambda x: functional.layer_norm(x.softmax(-1), (6,)), "B T 6"),
}
SIZES = {"B": 2, "T": 5, "D": 5, "H": 7, "W": 11}


def sizes_in(spec: str) -> dict[str, int]:
    return {name: SIZES[name] for name in spec.split() if name in SIZES}


def shape_of(spec: str) -> list[int]:
    return [SIZES[name] if name in SIZES else int(name) for name in spec.split()]


@pytest.mark.parametrize("name", SAME)
def test_forward_and_backward_are_those_of_torchs_counter(name: str) -> None:
    function, spec = SAME[name]

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return function(x * self.scale)

    model = Model()
    cost = sf.cost(model, spec)
    inputs = torch.randn(shape_of(spec))
    assert (cost.flops.at(**SIZES), cost.backward_flops.at(**SIZES)) == counted(lambda: model(inputs))
    assert cost.unknown == ()


@pytest.mark.parametrize(
    ("function", "specs", "formula"),
    [
        (lambda x: x @ x.new_ones(6), ["B T 6"], "12*B*T"),
        (lambda x: torch.mv(x, x.new_ones(6)), ["B 6"], "12*B"),
        (lambda x: torch.dot(x, x), ["n"], "2*n"),
        (lambda x: torch.addbmm(x.new_zeros(1), x, x.new_ones(x.shape[0], 6, 5)), ["B T 6"], "60*B*T"),
        (nn.Bilinear(3, 4, 5), ["B 3", "B 4"], "160*B"),
        (lambda x: torch._grouped_mm(x, x.new_ones(3, 6, 5), offs=torch.zeros(3, dtype=torch.int32)), ["n 6"], "60*n"),
        (lambda x: x * 2 + x.mean(), ["B T"], "0"),
    ],
)
def test_what_torchs_counter_leaves_out(function: Any, specs: list[str], formula: str) -> None:
    cost = sf.cost(function, *specs)
    assert str(cost.flops) == formula
    assert cost.unknown == ()


@pytest.mark.parametrize(
    ("layer", "per_token"),
    [
        (nn.LSTM(8, 16), 2 * 4 * 16 * (8 + 16)),
        (nn.LSTM(8, 16, num_layers=2), 2 * 4 * 16 * (8 + 16 + 16 + 16)),
        (nn.LSTM(8, 16, bidirectional=True), 2 * 2 * 4 * 16 * (8 + 16)),
        (nn.LSTM(8, 16, num_layers=2, bidirectional=True), 2 * 2 * 4 * 16 * (8 + 16 + 32 + 16)),
        (nn.LSTM(8, 16, proj_size=5), 2 * (4 * 16 * (8 + 5) + 16 * 5)),
        (nn.LSTM(8, 16, bias=False), 2 * 4 * 16 * (8 + 16)),
        (nn.GRU(8, 16), 2 * 3 * 16 * (8 + 16)),
        (nn.RNN(8, 16, nonlinearity="relu"), 2 * 16 * (8 + 16)),
    ],
)
def test_recurrent_layers_by_their_closed_form(layer: nn.Module, per_token: int) -> None:
    cost = sf.cost(layer, "T B 8")
    assert str(cost.flops) == f"{per_token}*B*T"
    # no gradient for the input: nothing is handed on through the matrices that meet it
    first = [each for name, each in layer.named_parameters() if name.startswith("weight_ih_l0")]
    handed_back = 2 * sum(each.numel() for each in first)
    assert str(cost.backward_flops) == f"{2 * per_token - handed_back}*B*T"


@pytest.mark.parametrize("layer", [nn.GRU(8, 16, num_layers=2), nn.RNN(8, 16, bidirectional=True)])
def test_the_closed_form_is_what_the_counter_finds_in_the_loop_over_time(layer: nn.Module) -> None:
    with FlopCounterMode(display=False) as counter:
        layer(torch.randn(7, 3, 8))
    assert sf.cost(layer, "T B 8").flops.at(T=7, B=3) == counter.get_total_flops()


def test_packed_sequences_count_their_tokens() -> None:
    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.GRU(8, 16, batch_first=True)

        def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            return self.rnn(packed)[0].data

    cost = sf.cost(Packed(), "B T 8", "B:int64")
    (name,) = [symbol.name for symbol in cost.flops.symbols]
    assert cost.flops.at(**{name: 11}) == 11 * 2 * 3 * 16 * (8 + 16)


def test_frozen_parameters_take_no_products_in_the_backward() -> None:
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 7))
    model[0].requires_grad_(False)
    inputs = torch.randn(11, 6)
    assert sf.cost(model, "B 6").backward_flops.at(B=11) == counted(lambda: model(inputs))[1]
    assert str(sf.cost(model, "B 6").backward_flops) == "70*B"


def test_an_input_with_a_gradient_is_handed_one() -> None:
    model = nn.Linear(6, 5)
    assert str(sf.cost(model, "B 6").backward_flops) == "60*B"
    assert sf.cost(model, leaf(11, 6)).backward_flops.at() == 2 * 660


def test_what_is_computed_for_nothing_has_no_backward() -> None:
    class Wasteful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(6, 5), nn.Linear(6, 7)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.unused(x)
            return self.used(x)

    assert str(sf.cost(Wasteful(), "B 6").backward_flops) == "60*B"


def test_a_module_that_runs_twice_counts_twice() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(self.layer(x))

    cost = sf.cost(Twice(), "B 6")
    assert str(cost.flops) == "144*B"
    assert [(row.path, row.calls, str(row.flops)) for row in cost.rows] == [("", 1, "144*B"), ("layer", 2, "144*B")]


def test_writes_in_place_have_a_backward() -> None:
    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = torch.zeros_like(x)
            out[:, :3] = self.layer(x)[:, :3]
            out.mul_(2)
            return out.relu_()

    model, inputs = InPlace(), torch.randn(11, 6)
    cost = sf.cost(model, "B 6")
    assert (cost.flops.at(B=11), cost.backward_flops.at(B=11)) == counted(lambda: model(inputs))


def test_operators_without_a_rule_are_listed() -> None:
    class Spectral(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix = nn.Linear(6, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.fft.fft(self.mix(x)).real

    cost = sf.cost(Spectral(), "B 6")
    assert str(cost.flops) == "72*B"
    assert [(each.operator, each.modules) for each in cost.unknown] == [("_fft_r2c", ("",))]
    assert "not counted, as no rule knows them: _fft_r2c (in the model itself)" in str(cost)


def test_operators_of_others_are_listed() -> None:
    torchvision = pytest.importorskip("torchvision")
    weights, offsets = torch.ones(4, 3, 3, 3), "B 18 H W"
    cost = sf.cost(lambda x, o: torchvision.ops.deform_conv2d(x, o, weights, padding=1), "B 3 H W", offsets)
    assert [each.operator for each in cost.unknown] == ["deform_conv2d"]


def test_rows_and_operators_add_up() -> None:
    model = nn.TransformerEncoderLayer(24, 4, 40, batch_first=True)
    cost = sf.cost(model, "B T 24")
    children = [row for row in cost.rows if row.depth == 1]
    attention = 4 * 24  # the two products of the attention stand inside it
    assert str(cost.flops) == f"{attention}*B*T^2 + {2 * (4 * 24 * 24 + 2 * 24 * 40)}*B*T"
    assert sum((row.flops for row in children), 0 * cost.flops) is cost.flops
    for name in ("flops", "backward_flops", "activation_bytes"):
        total = sum((getattr(operator, name) for operator in cost.operators), 0 * cost.flops)
        assert total is getattr(cost, name)


def test_formulas_hold_in_the_sizes_of_the_constructor() -> None:
    from shapeflow.trace.construct import construct

    names = {"d_model": None, "dim_feedforward": None}
    recipe = construct(nn.TransformerEncoderLayer, names, nhead=4, batch_first=True)
    cost = sf.cost(recipe, "B T d_model")
    built = sf.cost(nn.TransformerEncoderLayer(24, 4, 40, batch_first=True), "B T 24")
    assert cost.flops.at(B=2, T=5, d_model=24, dim_feedforward=40) == built.flops.at(B=2, T=5)


@pytest.mark.parametrize(
    "length", [lambda n: math.ceil(n / 4), lambda n: math.floor(n * 0.5), lambda n: math.ceil(-n / -1)]
)
def test_sizes_that_are_rounded_from_floats(length: Any) -> None:
    cost = sf.cost(lambda x: x.new_ones(length(x.shape[0]), 6) @ x.new_ones(6, 5), "n")
    assert cost.flops.at(n=11) == 60 * length(11)
    assert {symbol.name for symbol in cost.flops.symbols} == {"n"}
