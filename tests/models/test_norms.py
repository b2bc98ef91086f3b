"""RMSNorm against torch's own, and what it leaves as it was."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from models.norms import RMSNorm


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("eps", [1e-6, 1e-1])
def test_output_and_gradient_are_those_of_torch(eps):
    norm = RMSNorm(7, eps=eps)
    torch.nn.init.normal_(norm.weight)
    x = torch.randn(2, 5, 7, requires_grad=True)
    ours, theirs = norm(x), F.rms_norm(x, (7,), norm.weight, eps)
    assert_close(ours, theirs)
    direction = torch.randn_like(ours)
    inputs = (x, norm.weight)
    assert_close(torch.autograd.grad(ours, inputs, direction), torch.autograd.grad(theirs, inputs, direction))


def test_the_root_mean_square_becomes_1_and_the_mean_stays_what_it_is():
    x = torch.randn(3, 1009) + 5
    y = RMSNorm(1009)(x)
    assert_close(y.square().mean(dim=-1), torch.ones(3))
    assert_close(y.mean(dim=-1), x.mean(dim=-1) / x.square().mean(dim=-1).sqrt())
    assert y.mean(dim=-1).min() > 0.9


def test_half_precision_is_normalised_in_float32_and_comes_back():
    x = torch.full((1, 7), 300.0, dtype=torch.float16)  # its square is above the largest float16
    y = RMSNorm(7).half()(x)
    assert y.dtype is torch.float16
    assert_close(y, torch.ones(1, 7, dtype=torch.float16))
