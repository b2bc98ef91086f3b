"""The decoders with experts, Mixtral, Qwen3-MoE, DeepSeek and gpt-oss: the cache, padding, who sees whom, traces.

No capacity limits them, so a token's experts depend on that token alone, and nothing but attention joins positions.
"""

import doctest

import pytest
import torch
import torch.nn as nn
from jaxtyping import TypeCheckError
from torch.testing import assert_close

import shapeflow as sf
from models import deepseek, gpt_oss, grouped, latent, mixtral, qwen3_moe
from models.cache import Cache
from models.experts import MixtureOfExperts, recorded_routings
from models.properties import batch_leaks, future_leaks
from models.routing import balancing_loss, loads
from models.swiglu import SwiGLU
from tests.models.checks import one_by_one, unnamed_axes

B, T, VOCAB = 2, 11, 97
MODULES = [mixtral, qwen3_moe, deepseek, gpt_oss]
TOYS = [
    pytest.param(mixtral.toy, {}, id="mixtral"),
    pytest.param(mixtral.toy, {"window": 3, "tied": True}, id="mixtral-window"),
    pytest.param(qwen3_moe.toy, {}, id="qwen3-moe"),
    pytest.param(qwen3_moe.toy, {"dense_layers": (0,), "renormalised": False}, id="qwen3-moe-dense"),
    pytest.param(deepseek.toy, {}, id="deepseek-v2"),
    pytest.param(deepseek.toy, {"d_latent_q": None, "groups": None}, id="deepseek-v2-lite"),
    pytest.param(deepseek.toy_v3, {}, id="deepseek-v3"),
    pytest.param(gpt_oss.toy, {}, id="gpt-oss"),
    pytest.param(gpt_oss.toy, {"windows": (None, 3, 5), "biased": False}, id="gpt-oss-windows"),
]
TRACED = [mixtral.toy, qwen3_moe.toy, deepseek.toy, deepseek.toy_v3, gpt_oss.toy]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def made(toy, changes):
    """With larger weights than at the start, so that positions matter and tokens go to different experts."""
    model = toy(**changes).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def ids(b=B, t=T):
    return torch.randint(VOCAB, (b, t))


def layers_with_experts(model):
    return [module for module in model.modules() if isinstance(module, MixtureOfExperts)]


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_in_the_docstrings_are_true(module):
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize(("toy", "changes"), TOYS)
@pytest.mark.parametrize("prompt", [1, 5])
def test_token_by_token_through_a_cache_is_all_at_once(toy, changes, prompt):
    model, tokens = made(toy, changes), ids()
    cache = Cache(len(model.blocks))
    cached = one_by_one(lambda part, valid: model(part, cache=cache), tokens, prompt=prompt)
    assert_close(cached, model(tokens), atol=1e-4, rtol=1e-4)
    assert cache.length == T


@pytest.mark.parametrize(("toy", "changes"), TOYS)
def test_padding_on_the_left_changes_no_real_token_with_a_cache_or_without(toy, changes):
    model, tokens = made(toy, changes), ids()
    valid = torch.arange(T).expand(B, -1) >= torch.tensor([[0], [3]])
    alone = model(tokens[1:, 3:])
    together = model(tokens, valid=valid)
    assert_close(together[:1], model(tokens[:1]), atol=1e-4, rtol=1e-4)
    assert_close(together[1:, 3:], alone, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(model(tokens)[1:, 3:], alone, atol=1e-2)
    cache = Cache(len(model.blocks))
    cached = one_by_one(lambda part, valid: model(part, valid=valid, cache=cache), tokens, valid, prompt=5)
    assert_close(cached[valid], together[valid], atol=1e-4, rtol=1e-4)


def test_a_cache_may_roll_where_every_block_has_the_same_window():
    model, tokens = made(mixtral.toy, {"window": 3}), ids()
    cache = Cache(2, 3)
    cached = one_by_one(lambda part, valid: model(part, cache=cache), tokens, prompt=5)
    assert_close(cached, model(tokens), atol=1e-4, rtol=1e-4)
    with pytest.raises(ValueError, match=r"attention reads all positions, but the cache keeps a window of 4"):
        made(gpt_oss.toy, {})(tokens, cache=Cache(2, 4))


def test_the_cache_of_deepseek_holds_latents():
    model, cache = made(deepseek.toy, {}), Cache(3)
    model(ids(), cache=cache)
    assert [part.shape for part in cache.layers[2].held] == [(B, T, 23), (B, T, 6)]


@pytest.mark.parametrize(("toy", "changes"), TOYS)
def test_no_position_sees_a_later_one_and_no_sequence_another(toy, changes):
    model = made(toy, changes)
    assert future_leaks(model, ids(), tolerance=1e-4) == ()
    assert batch_leaks(model, ids(), tolerance=1e-4) == ()


@pytest.mark.parametrize("module", MODULES)
def test_without_the_mask_both_checks_find_leaks(monkeypatch, module):
    for attention in (grouped, latent):
        monkeypatch.setattr(attention, "decoder_allowed", lambda t, s, **_: torch.ones(t, s, dtype=torch.bool))
    model = made(module.toy, {})
    assert future_leaks(model, ids(), tolerance=1e-4) == tuple(range(T - 1))
    assert batch_leaks(lambda tokens: model(tokens) + tokens.float().mean(), ids()) == (0, 1)


@pytest.mark.parametrize("toy", TRACED)
def test_every_axis_has_its_name_the_values_tell_each_experts_tokens_and_the_graph_replays(toy):
    model = made(toy, {})
    trace = sf.trace(model)
    assert unnamed_axes(trace) == []
    n_experts = sum(layer.n_experts for layer in layers_with_experts(model))
    assert list(trace.fresh.values()) == ["nonzero"] * n_experts
    shapes = {str(edge.shape) for edge in trace.edges}
    assert {f"{name} d_model" for name in trace.fresh} <= shapes
    for tokens in [ids(3, 17), ids(), torch.full((2, 5), 7), ids(1, 1)]:
        with torch.no_grad():
            assert_close(trace.graph_module(tokens), model(tokens))
    with recorded_routings(model) as routings:
        model(ids(1, 1))  # few tokens leave experts without any, which the graph has just computed
    assert all((loads(routing.chosen, routing.scores.shape[-1]) == 0).any() for routing in routings)


@pytest.mark.parametrize(("toy", "changes"), TOYS)
def test_each_layer_with_experts_can_be_asked_for_its_routing_and_its_loss_reaches_the_router(toy, changes):
    model, tokens = made(toy, changes), ids()
    with recorded_routings(model) as routings:
        model(tokens)
    layers = layers_with_experts(model)
    assert len(routings) == len(layers) > 0
    assert all(routing.chosen.shape == (B, T, layer.top_k) for layer, routing in zip(layers, routings, strict=True))
    sum(balancing_loss(routing) for routing in routings).backward()
    assert all(layer.router.scorer.weight.grad.abs().max() > 1e-4 for layer in layers)


def test_the_configs_are_the_blocks_they_say():
    kinds = [type(block.ffn) for block in deepseek.toy(n_dense_layers=2).blocks]
    assert kinds == [SwiGLU, SwiGLU, MixtureOfExperts]
    kinds = [type(block.ffn) for block in qwen3_moe.toy(n_layers=3, dense_layers=(1,)).blocks]
    assert kinds == [MixtureOfExperts, SwiGLU, MixtureOfExperts]
    assert [block.attn.window for block in gpt_oss.toy().blocks] == [4, None]
    assert gpt_oss.toy().blocks[0].attn.sinks.shape == (6,)
    tied = mixtral.toy(tied=True)
    assert tied.head.weight is tied.tokens.table.weight
    assert deepseek.toy().blocks[1].ffn.shared.d_ff == 2 * 29


def test_the_bias_of_v3_moves_the_choice_and_no_weight():
    layer, x = made(deepseek.toy_v3, {}).blocks[1].ffn, torch.randn(B, T, 42)
    before = layer.router(x)
    layer.router.choice_bias += 7.0  # the same for all: nothing changes
    assert_close(layer.router(x).weights, before.weights)
    layer.router.choice_bias[5] += 7.0  # more than any difference of sigmoids
    after = layer.router(x)
    assert (after.chosen == 5).any(dim=-1).all()
    assert not (before.chosen == 5).any(dim=-1).all()
    assert_close(after.scores, before.scores)
    assert_close(after.weights.sum(dim=-1), torch.full((B, T), 1.5))


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: model(ids()[0]), r"'ids'[\s\S]*i64\[11\][\s\S]*'B T'"),
        (lambda model: model(ids().float()), r"'ids'[\s\S]*f32\[2,11\][\s\S]*Int\[Tensor"),
        (lambda model: model(ids(), valid=ids()), r"'valid'[\s\S]*i64\[2,11\][\s\S]*Bool\[Tensor"),
        (lambda model: model(ids(), valid=ids(3) > 0), r"'valid'[\s\S]*bool\[3,11\][\s\S]*^B=2$"),
        (lambda model: model.blocks[-1].ffn(torch.ones(T, 42)), r"'x'[\s\S]*f32\[11,42\][\s\S]*B T d_model"),
        (lambda model: model.blocks[-1].ffn.experts(torch.ones(T, 42, 1), 0), r"'x'[\s\S]*n_routed d_model"),
        (lambda model: model.blocks[-1].ffn.router(torch.ones(B, T, 42) > 0), r"'x'[\s\S]*B T d_model"),
    ],
)
def test_wrong_shapes_and_dtypes_are_refused_by_name(module, call, message):
    with pytest.raises(TypeCheckError, match=f"(?m){message}"):
        call(module.toy())


@pytest.mark.parametrize("module", MODULES)
def test_experts_of_another_width_are_refused_by_name(module):
    model = module.toy()
    experts = model.blocks[-1].ffn.experts
    for name, parameter in experts.named_parameters():
        if name.startswith("down"):
            setattr(experts, name, nn.Parameter(parameter[..., :-1].detach()))
    with pytest.raises(TypeCheckError, match=r"(?m)return value of[\s\S]*Experts[\s\S]*d_model[\s\S]*^d_model=42"):
        model(ids())


@pytest.mark.parametrize("module", MODULES)
def test_a_transpose_too_many_is_caught(mutant, module):
    broken = mutant(module, "return self.head(self.norm(x))", "return self.head(self.norm(x)).transpose(0, 1)")
    with pytest.raises(TypeCheckError, match=r"return value of [\s\S]*\.forward[\s\S]*B T vocab[\s\S]*T=11"):
        broken.toy()(ids())
