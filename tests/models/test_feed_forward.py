"""The feed-forward layer: its formula, its number of weights, and that no position sees another."""

import math

import pytest
import torch
import torch.nn as nn
from jaxtyping import TypeCheckError
from torch.testing import assert_close

from models.feed_forward import FeedForward

B, T, D_MODEL, D_FF = 2, 5, 7, 11


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def normal_cdf(x):
    return (1 + torch.erf(x / math.sqrt(2))) / 2


@pytest.mark.parametrize(
    ("activation", "formula"),
    [
        ("relu", lambda u: u.clamp(min=0)),
        ("gelu", lambda u: u * normal_cdf(u)),
        ("gelu_tanh", lambda u: u / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3)))),
    ],
)
@pytest.mark.parametrize("bias", [True, False])
def test_the_formula_of_section_7(activation, formula, bias):
    ffn = FeedForward(D_MODEL, D_FF, activation=activation, bias=bias)
    x = torch.randn(B, T, D_MODEL)
    w1, w2 = ffn.up.weight.T, ffn.down.weight.T
    b1, b2 = (ffn.up.bias, ffn.down.bias) if bias else (0, 0)
    assert w1.shape == (D_MODEL, D_FF)
    assert w2.shape == (D_FF, D_MODEL)
    assert_close(ffn(x), formula(x @ w1 + b1) @ w2 + b2)


def test_the_number_of_weights_of_section_7_2():
    ffn = FeedForward(512, 2048, bias=False)
    assert sum(p.numel() for p in ffn.parameters()) == 2 * 512 * 2048 == 2_097_152 == 2 * (4 * 512**2)


def test_no_position_sees_another():
    ffn = FeedForward(D_MODEL, D_FF)
    x = torch.randn(B, T, D_MODEL)
    one_by_one = torch.stack([ffn(x[:, t : t + 1])[:, 0] for t in range(T)], dim=1)
    assert_close(ffn(x), one_by_one)


def test_without_the_nonlinearity_two_linear_maps_are_one():
    ffn = FeedForward(D_MODEL, D_FF)
    ffn.activation = nn.Identity()
    x = torch.randn(B, T, D_MODEL)
    weight = ffn.up.weight.T @ ffn.down.weight.T
    bias = ffn.up.bias @ ffn.down.weight.T + ffn.down.bias
    assert_close(ffn(x), x @ weight + bias)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: FeedForward(7, 11, activation="swish"), r"parameter 'activation'[\s\S]*'swish'"),
        (lambda: FeedForward(7, 11)(torch.zeros(B, 7)), r"parameter 'x'[\s\S]*B T d_model"),
        (lambda: FeedForward(7, 11)(torch.zeros(B, T, 7, dtype=torch.int64)), r"parameter 'x'[\s\S]*Float\[Tensor"),
    ],
)
def test_what_the_signature_does_not_allow_is_refused(call, message):
    with pytest.raises(TypeCheckError, match=message):
        call()


def test_a_layer_that_does_not_give_its_width_back_is_refused_by_name():
    ffn = FeedForward(D_MODEL, D_FF)
    ffn.down = nn.Linear(D_FF, D_FF)
    with pytest.raises(TypeCheckError, match=r"return value of [\s\S]*B T d_model[\s\S]*d_model=7"):
        ffn(torch.zeros(B, T, D_MODEL))
