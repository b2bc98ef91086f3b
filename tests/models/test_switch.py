"""Switch: which blocks have experts, what a capacity does, decoding with a cache, names, and what it refuses."""

import doctest

import pytest
import torch
import torch.nn as nn
from jaxtyping import TypeCheckError
from torch.testing import assert_close

import shapeflow as sf
from models import switch, t5
from models.cache import Cache
from models.decoding import generate
from models.experts import MixtureOfExperts, recorded_routings
from models.feed_forward import FeedForward
from models.properties import batch_leaks, future_leaks
from models.routing import loads
from models.switch import toy
from tests.models.checks import one_by_one, unnamed_axes

B, S, T, VOCAB = 2, 7, 5, 103


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def made(**options):
    """With larger weights than at the start, so that tokens go to different experts."""
    model = toy(**options).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def ids(t, b=B):
    return torch.randint(1, VOCAB, (b, t))


def test_the_examples_in_the_docstrings_are_true():
    result = doctest.testmod(switch)
    assert result.attempted > 0
    assert result.failed == 0


def test_every_other_block_has_experts():
    model = toy()
    for stack in (model.encoder, model.decoder):
        assert [type(block.ffn) for block in stack.blocks] == [FeedForward, MixtureOfExperts]


def test_one_expert_without_a_limit_is_t5_times_the_routers_certainty():
    model = made(n_experts=1, capacity=None)  # a softmax over one expert is 1
    dense = t5.toy().eval()
    ours = model.state_dict()
    for name, parameter in dense.named_parameters():
        key = name.replace("ffn.", "ffn.experts.").removesuffix(".weight")
        tensor = ours[key][0].T if key in ours and "experts" in key else ours[name]
        parameter.data.copy_(tensor)
    source, target = ids(S), ids(T)
    assert_close(model(source, target), dense(source, target))


def test_a_token_has_one_expert_whose_output_counts_as_much_as_the_router_is_sure():
    with recorded_routings(model := made()) as routings:
        model(ids(S), ids(T))
    assert [tuple(routing.chosen.shape) for routing in routings] == [(B, S, 1), (B, T, 1)]
    for routing in routings:
        assert_close(routing.weights[..., 0], routing.scores.max(dim=-1).values)
        assert (routing.weights < 1).all()


def test_cached_decoding_gives_what_the_whole_target_gives():
    model, source, target = made(capacity=None), ids(S), ids(T)
    decode, cache = model.reading(source), Cache(2)
    steps = one_by_one(lambda new, _: decode(new, cache=cache), target, prompt=2)
    assert_close(steps, model(source, target), atol=1e-4, rtol=1e-4)
    assert cache.length == T


def test_cached_decoding_with_padding_on_the_left_of_both_sides():
    model, source, target = made(capacity=None), ids(S), ids(T)
    source_valid, valid = torch.ones(B, S, dtype=torch.bool), torch.ones(B, T, dtype=torch.bool)
    source_valid[0, :3] = valid[1, :2] = False
    decode, cache = model.reading(source, source_valid=source_valid), Cache(2)
    steps = one_by_one(lambda new, valid: decode(new, valid=valid, cache=cache), target, valid)
    whole = model(source, target, source_valid=source_valid, valid=valid)
    assert_close(steps[valid], whole[valid], atol=1e-4, rtol=1e-4)
    assert_close(steps[1:, 2:], model(source[1:], target[1:, 2:]), atol=1e-4, rtol=1e-4)
    assert_close(steps[:1], model(source[:1, 3:], target[:1]), atol=1e-4, rtol=1e-4)


def test_a_capacity_makes_tokens_interact_so_that_a_cache_changes_what_comes_out():
    model, source, target = made(capacity=1), ids(S), ids(11)
    decode, cache = model.reading(source), Cache(2)
    steps = one_by_one(lambda new, _: decode(new, cache=cache), target)
    whole = model(source, target)
    assert_close(steps[:, 0], whole[:, 0], atol=1e-4, rtol=1e-4)
    assert not torch.allclose(steps, whole, atol=1e-2)  # alone, every token finds a place
    unlimited = made(capacity=None)
    unlimited.load_state_dict(model.state_dict())
    assert_close(steps, unlimited.decode(target, model.encoder(model.tokens(source))), atol=1e-4, rtol=1e-4)


def test_the_loop_that_decodes_takes_it():
    model, source, start = made(capacity=None), ids(S), torch.zeros(B, 1, dtype=torch.int64)
    whole = start
    for _ in range(T):
        whole = torch.cat([whole, model(source, whole)[:, -1:].argmax(dim=-1)], dim=1)
    generated = generate(model.reading(source), start, max_new_tokens=T, cache=Cache(2))
    assert torch.equal(generated.ids, whole)


@pytest.mark.parametrize("capacity", [None, 1])
def test_a_later_token_of_the_target_changes_nothing_before_it_even_where_places_are_few(capacity):
    model, source = made(capacity=capacity), ids(S, b=1)
    target = ids(T)
    leaks = future_leaks(lambda target: model(source.expand(target.shape[0], -1), target), target, tolerance=1e-4)
    assert leaks == ()


def test_without_the_mask_a_later_token_leaks(monkeypatch):
    monkeypatch.setattr(t5, "decoder_allowed", lambda *_, **__: torch.ones(T, T, dtype=torch.bool))
    model, source = made(), ids(S, b=1)
    leaks = future_leaks(lambda target: model(source.expand(target.shape[0], -1), target), ids(T))
    assert leaks == tuple(range(T - 1))


@pytest.mark.parametrize("capacity", [None, 1])
def test_a_sequence_does_not_see_the_others_of_its_batch_even_where_places_are_few(capacity):
    model, target = made(capacity=capacity), ids(T, b=1)

    def logits(source):
        return model(source, target.expand(source.shape[0], -1))

    assert batch_leaks(logits, ids(S), tolerance=1e-4) == ()
    assert batch_leaks(lambda source: logits(source) + source.float().mean(), ids(S)) == (0, 1)


@pytest.mark.parametrize("capacity", [None, 2])
def test_it_traces_in_its_own_names_and_replays_with_real_routing(capacity):
    model = made(capacity=capacity)
    trace = sf.trace(model)
    assert unnamed_axes(trace) == []
    assert list(trace.fresh.values()) == ["nonzero"] * 8
    assert {f"{name} d_ff" for name in trace.fresh} <= {str(edge.shape) for edge in trace.edges}
    for b, s, t in [(3, 11, 4), (2, 5, 17), (1, 1, 1)]:
        source, target = ids(s, b), ids(t, b)
        with torch.no_grad(), recorded_routings(model) as routings:
            assert_close(trace.graph_module(source, target), model(source, target))
    assert all((loads(routing.chosen, 4) == 0).sum() == 3 for routing in routings)  # one token, three idle experts


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m(torch.ones(B, S), ids(T)), r"'source'[\s\S]*f32\[2,7\][\s\S]*'B S'"),
        (lambda m: m(ids(S), ids(T, b=3)), r"'ids'[\s\S]*i64\[3,5\][\s\S]*B=2"),
        (lambda m: m.decode(ids(T), torch.randn(B, S, 28)), r"d_model"),
        (lambda m: m(ids(S), ids(T), source_valid=torch.ones(B, S)), r"'source_valid'[\s\S]*Bool"),
        (lambda m: m(ids(S), ids(T), source_valid=torch.ones(B, T, dtype=torch.bool)), r"'source_valid'[\s\S]*S=7"),
        (lambda m: m.encoder.blocks[1].ffn.experts(torch.randn(1, T, 29), 0), r"'x'[\s\S]*n_routed d_model"),
    ],
)
def test_wrong_inputs_are_refused_by_name(call, message):
    with pytest.raises(TypeCheckError, match=message):
        call(toy())


def test_an_expert_that_is_transposed_is_refused_by_name(mutant):
    broken = mutant(switch, "self.up[expert], self.down", "self.up[expert].T, self.down")
    with pytest.raises(TypeCheckError, match=r"return value of[\s\S]*matrices[\s\S]*d_model d_ff[\s\S]*d_model=37"):
        broken.toy()(ids(S), ids(T))
