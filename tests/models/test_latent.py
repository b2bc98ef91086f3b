"""Latent attention: its two forms agree, its cache is small, positions go through the rotary part alone."""

import pytest
import torch
from jaxtyping import TypeCheckError
from torch.testing import assert_close

from models import latent
from models.cache import LayerCache
from models.latent import LatentAttention
from models.rope import Rotary
from tests.models.checks import one_by_one

B, T = 2, 7
SIZES = {"d_model": 41, "n_heads": 3, "d_nope": 11, "d_rope": 6, "d_v": 13, "d_latent": 23}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def attention(**options):
    made = LatentAttention(**(SIZES | options))
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return made


def rotation(start=0, end=T, b=B):
    return Rotary(SIZES["d_rope"])(torch.arange(start, end).expand(b, -1))


OPTIONS = [{}, {"d_latent_q": 19}, {"sharpness": 1.3, "bias": True, "d_latent_q": 19}]


@pytest.mark.parametrize("options", OPTIONS)
def test_the_absorbed_form_is_the_naive_one_in_output_and_gradient(options):
    made = attention(**options)
    x = torch.randn(B, T, 41, requires_grad=True)
    inputs = (x, *made.parameters())
    results = []
    for made.absorb in (False, True):
        output = made(x, rotation())
        results.append((output, torch.autograd.grad(output.square().mean(), inputs)))
    assert_close(*results, atol=1e-4, rtol=1e-4)
    assert results[0][0].abs().max() > 0.1


def test_the_absorbed_form_makes_no_keys_and_values(monkeypatch):
    made = attention(absorb=True)
    monkeypatch.setattr(made, "packed_kv", None)
    made(torch.randn(B, T, 41), rotation())
    made.absorb = False
    with pytest.raises(TypeError, match="not callable"):
        made(torch.randn(B, T, 41), rotation())


@pytest.mark.parametrize("n_heads", [1, 3, 5])
def test_the_cache_holds_the_latent_and_the_rotary_key_however_many_heads_there_are(n_heads):
    cache = LayerCache()
    attention(n_heads=n_heads)(torch.randn(B, T, 41), rotation(), cache=cache)
    assert [part.shape for part in cache.held] == [(B, T, 23), (B, T, 6)]


def test_per_token_the_cache_of_deepseek_v2_is_that_of_2_25_groups():
    d_latent, d_rope, n_heads, d_head = 512, 64, 128, 128
    numbers = {
        "MHA": 2 * n_heads * d_head,
        "GQA": 2 * 8 * d_head,
        "MQA": 2 * d_head,
        "MLA": d_latent + d_rope,
    }
    assert numbers == {"MHA": 32768, "GQA": 2048, "MQA": 256, "MLA": 576}
    assert numbers["MLA"] / numbers["MQA"] == 2.25


@pytest.mark.parametrize("prompt", [1, 4])
@pytest.mark.parametrize("options", [*OPTIONS, {"absorb": True}])
def test_token_by_token_through_a_cache_is_all_at_once(options, prompt):
    made = attention(**options)
    x = torch.randn(B, T, 41)
    cache = LayerCache()

    def step(part, valid):
        return made(part, rotation(cache.length, cache.length + part.shape[1]), cache=cache)

    assert_close(one_by_one(step, x, prompt=prompt), made(x, rotation()), atol=1e-5, rtol=1e-5)


def test_padding_on_the_left_changes_no_real_token():
    made = attention()
    x = torch.randn(B, T, 41)
    padded = torch.cat([torch.randn(B, 2, 41), x], dim=1)
    valid = torch.arange(T + 2).expand(B, -1) >= 2
    assert_close(made(padded, rotation(-2), valid=valid)[:, 2:], made(x, rotation()))
    assert not torch.allclose(made(padded, rotation(-2))[:, 2:], made(x, rotation()), atol=1e-3)


def test_scores_depend_on_the_offset_alone():
    made = attention()
    x = torch.randn(B, T, 41)
    assert_close(made(x, rotation(100, 100 + T)), made(x, rotation()), atol=1e-4, rtol=1e-4)
    stretched = Rotary(SIZES["d_rope"])(2 * torch.arange(T).expand(B, -1))
    assert not torch.allclose(made(x, stretched), made(x, rotation()), atol=1e-2)


def test_sharpness_multiplies_the_scores():
    made, x = attention(), torch.randn(B, T, 41)
    made.sharpness = 0.0  # every score is 0: the mixture is the mean of the values
    values = made.up(made.norm(made.down(x)[..., :23])).unflatten(-1, (3, 24))[..., 11:]
    means = values.cumsum(dim=1) / torch.arange(1, T + 1)[:, None, None]
    assert_close(made(x, rotation()), made.out(means.flatten(2)))


def test_a_cache_with_a_window_is_refused():
    with pytest.raises(ValueError, match=r"reads all positions, but the cache keeps a window of 3"):
        attention()(torch.randn(B, T, 41), rotation(), cache=LayerCache(3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda made: made(torch.ones(T, 41), rotation()), r"'x'[\s\S]*f32\[7,41\][\s\S]*B T d_model"),
        (lambda made: made(torch.ones(B, T, 41, dtype=torch.int64), rotation()), r"'x'[\s\S]*i64\[2,7,41\]"),
        (lambda made: made.merge_heads(torch.ones(B, T, 39)), r"'z'[\s\S]*B n_heads T d_v"),
        (lambda made: made(torch.ones(B, T, 41), rotation(), valid=torch.ones(3, T) > 0), r"'valid'[\s\S]*^B=2"),
    ],
)
def test_wrong_shapes_and_dtypes_are_refused_by_name(call, message):
    with pytest.raises(TypeCheckError, match=f"(?m){message}"):
        call(attention())


def test_a_transpose_too_few_is_caught(mutant):
    broken = mutant(latent, "rotation.turn(rope)], dim=-1).transpose(1, 2)", "rotation.turn(rope)], dim=-1)")
    with pytest.raises(TypeCheckError, match=r"LatentAttention\.queries[\s\S]*f32\[2,7,3,17\][\s\S]*n_heads T d_head"):
        broken.LatentAttention(**SIZES)(torch.randn(B, T, 41), rotation())
