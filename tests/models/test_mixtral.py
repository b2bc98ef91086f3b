"""What Mixtral, Qwen3-MoE, gpt-oss and DeepSeek share: the cache, padding, who sees whom, traces, what is refused."""

import pytest
import torch
import torch.nn as nn
from jaxtyping import TypeCheckError
from torch.testing import assert_close

import shapeflow as sf
from models import deepseek, gpt_oss, grouped, latent, mixtral, qwen3_moe
from models.cache import Cache
from models.experts import MixtureOfExperts, recorded_routings
from models.properties import batch_leaks, changed_positions, future_leaks
from models.routing import Groups, balancing_loss, loads
from models.swiglu import SwiGLU
from tests.models.checks import one_by_one, unnamed_axes

B, T, VOCAB = 2, 11, 97
MODULES = [mixtral, qwen3_moe, gpt_oss, deepseek]
KINDS = [mixtral.toy, qwen3_moe.toy, gpt_oss.toy, deepseek.toy, deepseek.toy_v3]
TOYS = [
    *(pytest.param(toy, {}, id=f"{toy.__module__.rpartition('.')[2]}-{toy.__name__}") for toy in KINDS),
    pytest.param(mixtral.toy, {"window": 3, "top_k": 1, "tied": True}, id="mixtral-window"),
    pytest.param(qwen3_moe.toy, {"renormalised": False, "dense_layers": (0,)}, id="qwen3_moe-dense"),
    pytest.param(gpt_oss.toy, {"windows": (None, 3, 2), "biased": False}, id="gpt_oss-windows"),
    pytest.param(deepseek.toy, {"groups": None, "d_latent_q": None, "tied": True}, id="deepseek-ungrouped"),
]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def made(toy, changes=None):
    """With larger weights than at the start, so that positions, neighbours and experts matter."""
    model = toy(**(changes or {})).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    for name, buffer in model.named_buffers():
        assert name.endswith("choice_bias")
        nn.init.normal_(buffer, std=0.3)
    return model


def ids(b=B, t=T):
    return torch.randint(VOCAB, (b, t))


def caches(model):
    """Everything is kept, or what the window needs where all blocks have the same."""
    window = getattr(model.config, "window", None)
    return [Cache(len(model.blocks), window) for window in {None, window}]


@pytest.mark.parametrize(("toy", "changes"), TOYS)
@pytest.mark.parametrize("prompt", [1, 5])
def test_token_by_token_through_a_cache_is_all_at_once(toy, changes, prompt):
    model, tokens = made(toy, changes), ids()
    for cache in caches(model):
        cached = one_by_one(lambda part, valid, cache=cache: model(part, cache=cache), tokens, prompt=prompt)
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
    for cache in caches(model):
        cached = one_by_one(lambda part, valid, c=cache: model(part, valid=valid, cache=c), tokens, valid, prompt=5)
        assert_close(cached[valid], together[valid], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("toy", [deepseek.toy, deepseek.toy_v3])
def test_the_cache_of_deepseek_holds_latents_and_rotary_keys(toy):
    cache = Cache(3)
    made(toy)(ids(), cache=cache)
    assert [part.shape for part in cache.layers[2].held] == [(B, T, 23), (B, T, 6)]


@pytest.mark.parametrize(("toy", "changes"), TOYS)
def test_no_position_sees_a_later_one_and_no_sequence_another(toy, changes):
    model = made(toy, changes)
    assert future_leaks(model, ids()) == ()
    assert batch_leaks(model, ids(), tolerance=1e-4) == ()


@pytest.mark.parametrize("toy", KINDS)
def test_without_the_mask_every_position_sees_later_ones(monkeypatch, toy):
    for module in (grouped, latent):
        monkeypatch.setattr(module, "decoder_allowed", lambda t, s, **_: torch.ones(t, s, dtype=torch.bool))
    assert future_leaks(made(toy), ids()) == tuple(range(T - 1))


@pytest.mark.parametrize("toy", KINDS)
def test_experts_that_look_at_the_whole_batch_are_found(monkeypatch, toy):
    """The control of batch independence: experts that take out what their tokens have in common."""
    forward = MixtureOfExperts.forward
    monkeypatch.setattr(MixtureOfExperts, "forward", lambda self, x: forward(self, x - x.mean(dim=(0, 1))))
    assert batch_leaks(made(toy), ids(), tolerance=1e-3) == (0, 1)


def test_only_the_blocks_of_gpt_oss_with_a_window_are_short_sighted():
    """Two windows of 3 and 2 carry a token 3 positions on; one block that reads everything carries it to the end."""
    short, far = made(gpt_oss.toy, {"windows": (3, 2)}), made(gpt_oss.toy, {"windows": (3, None)})
    assert changed_positions(short, ids(), 0, tolerance=1e-6) == (0, 1, 2, 3)
    assert changed_positions(far, ids(), 0, tolerance=1e-6) == tuple(range(T))


def test_a_cache_with_a_window_is_too_short_for_gpt_oss():
    with pytest.raises(ValueError, match=r"attention reads all positions, but the cache keeps a window of 4"):
        made(gpt_oss.toy)(ids(), cache=Cache(2, 4))


@pytest.mark.parametrize("toy", KINDS)
def test_every_axis_has_its_name_each_expert_its_number_of_tokens_and_the_graph_replays(toy):
    model = made(toy)
    trace = sf.trace(model)
    assert unnamed_axes(trace) == []
    layers = [block.ffn for block in model.blocks if isinstance(block.ffn, MixtureOfExperts)]
    assert list(trace.fresh.values()) == ["nonzero"] * sum(layer.n_experts for layer in layers)
    assert {f"{name} d_model" for name in trace.fresh} <= {str(edge.shape) for edge in trace.edges}
    for tokens in [ids(3, 17), ids(), torch.full((2, 5), 7), ids(1, 1)]:
        with torch.no_grad():
            assert_close(trace.graph_module(tokens), model(tokens))
    with recorded_routings(model) as routings:
        model(ids(1, 1))  # which leaves experts without any token, as in the last replay
    assert all((loads(routing.chosen, routing.scores.shape[-1]) == 0).any() for routing in routings)


@pytest.mark.parametrize(
    ("toy", "changes", "sparse"),
    [
        (mixtral.toy, {}, [True, True]),
        (gpt_oss.toy, {}, [True, True]),
        (qwen3_moe.toy, {"n_layers": 3, "dense_layers": (1,)}, [True, False, True]),
        (deepseek.toy, {"n_layers": 4, "n_dense_layers": 2}, [False, False, True, True]),
    ],
)
def test_the_blocks_that_should_have_experts_have_them(toy, changes, sparse):
    ffns = [block.ffn for block in toy(**changes).blocks]
    assert [isinstance(ffn, MixtureOfExperts) for ffn in ffns] == sparse
    assert all(isinstance(ffn, SwiGLU) for ffn, has_experts in zip(ffns, sparse, strict=True) if not has_experts)


def test_the_two_versions_of_deepseek_differ_in_the_router():
    v2, v3 = (toy().blocks[1].ffn.router for toy in (deepseek.toy, deepseek.toy_v3))
    assert (v2.scoring, v2.renormalised, v2.choice_bias) == ("softmax", False, None)
    assert (v3.scoring, v3.renormalised) == ("sigmoid", True)
    assert v3.choice_bias.shape == (8,)
    assert deepseek.DEEPSEEK_V2.groups == Groups(n_groups=8, top_groups=3, n_best=1)
    assert deepseek.DEEPSEEK_V3.groups == Groups(n_groups=8, top_groups=4, n_best=2)
    assert deepseek.toy().blocks[1].ffn.shared.d_ff == 2 * 29


@pytest.mark.parametrize("toy", KINDS)
def test_the_balance_of_every_layer_can_be_trained(toy):
    model = made(toy)
    with recorded_routings(model) as routings:
        model(ids())
    losses = torch.stack([balancing_loss(routing) for routing in routings])
    assert len(losses) == 2
    assert (losses > 0.5).all()
    losses.sum().backward()
    routers = [block.ffn.router for block in model.blocks if isinstance(block.ffn, MixtureOfExperts)]
    assert all(router.scorer.weight.grad.abs().max() > 1e-4 for router in routers)


@pytest.mark.parametrize("toy", KINDS)
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: model(ids()[0]), r"'ids'[\s\S]*i64\[11\][\s\S]*'B T'"),
        (lambda model: model(ids().float()), r"'ids'[\s\S]*f32\[2,11\][\s\S]*Int\[Tensor"),
        (lambda model: model(ids(), valid=ids()), r"'valid'[\s\S]*i64\[2,11\][\s\S]*Bool\[Tensor"),
        (lambda model: model(ids(), valid=ids(3) > 0), r"'valid'[\s\S]*bool\[3,11\][\s\S]*^B=2$"),
        (lambda model: model(ids(), cache=[]), r"'cache'"),
        (lambda model: model.blocks[1].ffn(torch.ones(B, 42)), r"'x'[\s\S]*f32\[2,42\][\s\S]*'B T d_model'"),
    ],
)
def test_wrong_shapes_and_dtypes_are_refused_by_name(toy, call, message):
    with pytest.raises(TypeCheckError, match=f"(?m){message}"):
        call(toy())


@pytest.mark.parametrize("module", MODULES)
def test_a_transpose_too_many_is_caught(mutant, module):
    broken = mutant(module, "return self.head(self.norm(x))", "return self.head(self.norm(x)).transpose(0, 1)")
    with pytest.raises(TypeCheckError, match=r"return value of [\s\S]*\.forward[\s\S]*B T vocab[\s\S]*T=11"):
        broken.toy()(ids())


@pytest.mark.parametrize("module", MODULES)
def test_experts_of_another_width_are_refused_by_name(module):
    model = module.toy()
    experts = model.blocks[-1].ffn.experts
    for name, parameter in experts.named_parameters():
        if name.startswith("down"):
            setattr(experts, name, nn.Parameter(parameter[..., :-1].detach()))
    with pytest.raises(TypeCheckError, match=r"(?m)return value of[\s\S]*Experts[\s\S]*d_model[\s\S]*^d_model=42"):
        model(ids())
