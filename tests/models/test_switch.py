"""Switch: T5 with experts. Its capacity, decoding with a cache, who sees whom, names, and what it refuses."""

import pytest
import torch
import torch.nn as nn
from jaxtyping import TypeCheckError
from torch.testing import assert_close

from models import experts, switch, t5
from models.cache import Cache
from models.decoding import generate
from models.experts import MixtureOfExperts, recorded_routings
from models.properties import batch_leaks, future_leaks
from models.routing import balancing_loss
from models.switch import SWITCH_BASE_8, has_experts, toy
from tests.models.checks import assert_traces, one_by_one

B, S, T, VOCAB = 2, 13, 11, 103
CAPACITIES = [None, 64, 1]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def made(**options):
    """With larger weights than at the start, so that routing matters."""
    model = toy(**options).eval()
    for name, parameter in model.named_parameters():
        if "ffn" in name:
            nn.init.normal_(parameter, std=0.3)
    return model


def ids(t, b=B):
    return torch.randint(1, VOCAB, (b, t))


def test_every_other_block_of_the_base_model_has_experts():
    config = SWITCH_BASE_8
    sparse = [layer for layer in range(config.t5.n_encoder_layers) if has_experts(layer, config.encoder_step)]
    assert sparse == [1, 3, 5, 7, 9, 11]
    assert [layer for layer in range(6) if has_experts(layer, step=3)] == [1, 4]
    assert [layer for layer in range(3) if has_experts(layer, step=1)] == [0, 1, 2]
    for stack in (toy().encoder, toy().decoder):
        assert [isinstance(block.ffn, MixtureOfExperts) for block in stack.blocks] == [False, True]


def test_with_one_expert_it_is_t5():
    """A single expert has probability 1, and without a capacity takes every token."""
    model, plain = made(n_experts=1, capacity=None), t5.toy()
    weights = model.state_dict()
    theirs = {}
    for name in plain.state_dict():
        stacked = name.replace("ffn.", "ffn.experts.").removesuffix(".weight")
        theirs[name] = weights[name] if name in weights else weights[stacked][0].T
    plain.load_state_dict(theirs)
    source, target = ids(S), ids(T)
    assert_close(model(source, target), plain(source, target))


@pytest.mark.parametrize("capacity", [None, 64])
def test_cached_decoding_gives_what_the_whole_target_gives(capacity):
    model, source, target = made(capacity=capacity), ids(S), ids(T)
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
    close = {"atol": 1e-4, "rtol": 1e-4}
    assert_close(steps, model(source, target, source_valid=source_valid, valid=valid), **close)
    assert_close(steps[1:, 2:], model(source[1:], target[1:, 2:]), **close)
    assert_close(steps[:1], model(source[:1, 3:], target[:1]), **close)


def test_with_a_capacity_tokens_interact_so_that_a_cache_and_padding_change_results():
    """Why the tests above leave it out: a new token knows no one who came before, and padding takes places."""
    model, source, target = made(capacity=1), ids(S), ids(T)
    decode, cache = model.reading(source), Cache(2)
    steps = one_by_one(lambda new, _: decode(new, cache=cache), target)
    assert (steps - model(source, target)).abs().max() > 1e-2
    valid = torch.arange(S).expand(B, -1) >= 3
    padded, alone = model(source, target, source_valid=valid), model(source[:, 3:], target)
    assert (padded - alone).abs().max() > 1e-2


def test_the_loop_that_decodes_takes_it():
    model, source, start = made(), ids(S), torch.zeros(B, 1, dtype=torch.int64)
    whole = start
    for _ in range(5):
        whole = torch.cat([whole, model(source, whole)[:, -1:].argmax(dim=-1)], dim=1)
    assert torch.equal(generate(model.reading(source), start, max_new_tokens=5, cache=Cache(2)).ids, whole)


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_a_later_token_of_the_target_changes_nothing_before_it(capacity):
    model, source = made(capacity=capacity), ids(S, b=1)
    assert future_leaks(lambda target: model(source.expand(target.shape[0], -1), target), ids(T)) == ()


def test_without_the_mask_a_later_token_leaks(monkeypatch):
    monkeypatch.setattr(t5, "decoder_allowed", lambda *_, **__: torch.ones(T, T, dtype=torch.bool))
    model, source = made(), ids(S, b=1)
    leaks = future_leaks(lambda target: model(source.expand(target.shape[0], -1), target), ids(T), tolerance=1e-6)
    assert leaks == tuple(range(T - 1))


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_a_sequence_does_not_see_the_others_of_its_batch(capacity):
    model, target = made(capacity=capacity), ids(T, b=1)
    assert batch_leaks(lambda source: model(source, target.expand(source.shape[0], -1)), ids(S)) == ()


def test_places_shared_by_the_batch_would_leak(monkeypatch):
    limit = experts.within_capacity

    def shared(chosen, **options):
        return limit(chosen.reshape(1, -1, 1), **options).view_as(chosen)

    monkeypatch.setattr(experts, "within_capacity", shared)
    model, target = made(capacity=2), ids(T, b=1)
    assert batch_leaks(lambda source: model(source, target.expand(source.shape[0], -1)), ids(S, b=3)) == (1, 2)


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_it_traces_in_its_own_names_and_replays(capacity):
    assert_traces(made(capacity=capacity), ids(17, b=3), ids(5, b=3))


def test_the_balance_of_both_stacks_can_be_trained():
    model = made()
    with recorded_routings(model) as routings:
        model(ids(S), ids(T))
    assert [routing.chosen.shape for routing in routings] == [(B, S, 1), (B, T, 1)]
    sum(balancing_loss(routing) for routing in routings).backward()
    assert model.encoder.blocks[1].ffn.router.scorer.weight.grad.abs().max() > 1e-4


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m(torch.ones(B, S), ids(T)), r"'source'[\s\S]*f32\[2,13\][\s\S]*'B S'"),
        (lambda m: m(ids(S), ids(T, b=3)), r"'ids'[\s\S]*i64\[3,11\][\s\S]*B=2"),
        (lambda m: m.decode(ids(T), torch.randn(B, S, 28)), r"d_model"),
        (lambda m: m(ids(S), ids(T), source_valid=torch.ones(B, S)), r"'source_valid'[\s\S]*Bool"),
        (lambda m: m(ids(S), ids(T), source_valid=torch.ones(B, T, dtype=torch.bool)), r"'source_valid'[\s\S]*S=13"),
    ],
)
def test_wrong_inputs_are_refused_by_name(call, message):
    with pytest.raises(TypeCheckError, match=message):
        call(toy())


def test_experts_whose_matrices_are_transposed_are_refused_by_name(mutant):
    broken = mutant(switch, "return self.up[expert], self.down[expert]", "return self.up[expert], self.down[expert].T")
    message = r"return value of \S*matrices[\s\S]*'d_ff d_model'[\s\S]*d_model=29"
    with pytest.raises(TypeCheckError, match=message):
        broken.toy()(ids(S), ids(T))
