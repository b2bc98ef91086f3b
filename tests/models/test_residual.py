"""The wrappers of a sublayer: their formulas, LayerNorm's numbers, dropout, and the path of the gradient."""

import pytest
import torch
import torch.nn as nn
from jaxtyping import TypeCheckError
from torch.testing import assert_close

from models.residual import PostNorm, PreNorm

B, T, D_MODEL = 2, 5, 7


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def layer_norm(x, gamma, beta, eps=1e-5):
    mean = x.mean(dim=-1, keepdim=True)
    variance = (x - mean).square().mean(dim=-1, keepdim=True)
    return gamma * (x - mean) / (variance + eps).sqrt() + beta


def sublayer(x):
    return torch.tanh(2 * x) - 1


def test_the_numbers_of_section_8_1():
    x = torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert x.mean() == 2.5
    assert x.var(correction=0) == 1.25
    norm = PostNorm(4).norm
    assert_close(norm(x), torch.tensor([-1.342, -0.447, 0.447, 1.342]), atol=5e-4, rtol=0)


def test_layer_norm_looks_at_one_position_only():
    norm = PostNorm(D_MODEL).norm
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    x = torch.randn(B, T, D_MODEL)
    assert_close(norm(x), layer_norm(x, norm.weight, norm.bias))
    assert_close(norm(x)[1, 3], norm(x[1, 3]))
    assert norm(torch.ones(D_MODEL)).isfinite().all()


def test_post_norm_is_its_equation():
    wrapper = PostNorm(D_MODEL)
    x = torch.randn(B, T, D_MODEL)
    assert_close(wrapper(x, sublayer), layer_norm(x + sublayer(x), 1, 0))


def test_pre_norm_is_its_equation():
    wrapper = PreNorm(D_MODEL)
    x = torch.randn(B, T, D_MODEL)
    assert_close(wrapper(x, sublayer), x + sublayer(layer_norm(x, 1, 0)))


def test_the_place_of_the_norm_changes_the_path_of_the_gradient():
    # Through a sublayer that gives nothing, pre-norm passes a gradient on as it is; post-norm does not.
    x, direction = torch.randn(B, T, D_MODEL, requires_grad=True), torch.randn(B, T, D_MODEL)
    passed = {
        wrapper: torch.autograd.grad((wrapper(D_MODEL)(x, torch.zeros_like) * direction).sum(), x)[0]
        for wrapper in (PreNorm, PostNorm)
    }
    assert torch.equal(passed[PreNorm], direction)
    assert not torch.allclose(passed[PostNorm], direction, atol=0.1)


@pytest.mark.parametrize("wrapper", [PostNorm, PreNorm])
def test_training_drops_parts_of_the_sublayer_s_output_and_nothing_of_the_stream(wrapper):
    seen = wrapper(D_MODEL, dropout=0.25)
    updates = []
    seen.dropout.register_forward_hook(lambda module, args, output: updates.append(output))
    x = torch.zeros(100, 11, D_MODEL)
    output = seen.train()(x, torch.ones_like)
    assert_close(updates[0].unique(), torch.tensor([0.0, 4 / 3]))
    assert (updates[0] == 0).float().mean().item() == pytest.approx(0.25, abs=0.02)
    assert_close(output, seen.norm(x + updates[0]) if wrapper is PostNorm else x + updates[0])
    assert_close(seen.eval()(x, torch.ones_like), wrapper(D_MODEL)(x, torch.ones_like))


@pytest.mark.parametrize("wrapper", [PostNorm, PreNorm])
def test_a_sublayer_that_changes_the_width_is_refused(wrapper):
    with pytest.raises((TypeCheckError, RuntimeError), match=r"size of tensor a \(7\) must match .* \(3\)"):
        wrapper(D_MODEL)(torch.randn(B, T, D_MODEL), lambda x: x[..., :3])
    with pytest.raises(TypeCheckError, match=r"parameter 'x'[\s\S]*B T d_model"):
        wrapper(D_MODEL)(torch.randn(T, D_MODEL), sublayer)
