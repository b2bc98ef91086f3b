"""The T5 family: its size, who sees whom, decoding with a cache, names, and what it refuses."""

import pytest
import torch
import torch.nn as nn
from jaxtyping import TypeCheckError
from torch.testing import assert_close

from models import t5
from models.cache import Cache
from models.decoding import generate
from models.properties import batch_leaks, changed_positions, future_leaks
from models.t5 import T5, T5_SMALL, toy
from tests.models.checks import assert_traces, one_by_one

B, S, T, VOCAB = 2, 7, 5, 103


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def ids(t, b=B):
    return torch.randint(1, VOCAB, (b, t))


def test_the_number_of_parameters_of_t5_small():
    with torch.device("meta"):
        model = T5(T5_SMALL)
    assert sum(p.numel() for p in model.parameters()) == 60_506_624


@pytest.mark.parametrize("gated", [False, True])
def test_cached_decoding_gives_what_the_whole_target_gives(gated):
    model, source, target = toy(gated=gated), ids(S), ids(T)
    decode, cache = model.reading(source), Cache(2)
    with torch.no_grad():
        steps = one_by_one(lambda new, _: decode(new, cache=cache), target, prompt=2)
        assert_close(steps, model(source, target))
    assert cache.length == T


def test_cached_decoding_with_padding_on_the_left_of_both_sides():
    model, source, target = toy(), ids(S), ids(T)
    source_valid, valid = torch.ones(B, S, dtype=torch.bool), torch.ones(B, T, dtype=torch.bool)
    source_valid[0, :3] = valid[1, :2] = False
    decode, cache = model.reading(source, source_valid=source_valid), Cache(2)
    with torch.no_grad():
        steps = one_by_one(lambda new, valid: decode(new, valid=valid, cache=cache), target, valid)
        assert_close(steps, model(source, target, source_valid=source_valid, valid=valid))
        assert_close(steps[1:, 2:], model(source[1:], target[1:, 2:]))
        assert_close(steps[:1], model(source[:1, 3:], target[:1]))


def test_the_loop_that_decodes_takes_it():
    model, source, start = toy(), ids(S), torch.zeros(B, 1, dtype=torch.int64)
    whole = start
    for _ in range(T):
        whole = torch.cat([whole, model(source, whole)[:, -1:].argmax(dim=-1)], dim=1)
    generated = generate(model.reading(source), start, max_new_tokens=T, cache=Cache(2))
    assert torch.equal(generated.ids, whole)


def test_the_keys_of_the_source_are_projected_once():
    model, memory, cache = toy(), torch.randn(B, S, 29), Cache(2)
    calls = []
    model.decoder.blocks[0].cross.k.register_forward_hook(lambda *_: calls.append(1))
    for _ in range(3):
        model.decode(ids(1), memory, cache=cache)
    assert len(calls) == 1


def test_a_later_token_of_the_target_changes_nothing_before_it():
    model, source = toy().eval(), ids(S, b=1)
    assert future_leaks(lambda target: model(source.expand(target.shape[0], -1), target), ids(T)) == ()


def test_without_the_mask_a_later_token_leaks(monkeypatch):
    everything = torch.ones(T, T, dtype=torch.bool)
    monkeypatch.setattr(t5, "decoder_allowed", lambda *_, **__: everything)
    model, source = toy().eval(), ids(S, b=1)
    leaks = future_leaks(lambda target: model(source.expand(target.shape[0], -1), target), ids(T), tolerance=1e-6)
    assert leaks == tuple(range(T - 1))


def test_every_token_of_the_source_reaches_the_whole_target():
    model, target = toy().eval(), ids(T)
    assert changed_positions(lambda source: model(source, target), ids(S), S - 1, tolerance=1e-7) == tuple(range(T))


def test_a_sequence_does_not_see_the_others_of_its_batch():
    model, target = toy().eval(), ids(T, b=1)
    assert batch_leaks(lambda source: model(source, target.expand(source.shape[0], -1)), ids(S)) == ()


def test_the_bias_alone_tells_the_order_of_the_source():
    model, source = toy().eval(), ids(S)
    order = torch.randperm(S)
    assert (model.encode(source[:, order]) - model.encode(source)[:, order]).abs().max() > 1e-3
    nn.init.zeros_(model.encoder.bias.table.weight)
    assert_close(model.encode(source[:, order]), model.encode(source)[:, order])


@pytest.mark.parametrize("gated", [False, True])
def test_it_traces_in_its_own_names_and_replays(gated):
    assert_traces(toy(gated=gated).eval(), ids(11, b=3), ids(4, b=3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m(torch.ones(B, S), ids(T)), r"'source'[\s\S]*f32\[2,7\][\s\S]*'B S'"),
        (lambda m: m(ids(S), ids(T, b=3)), r"'ids'[\s\S]*i64\[3,5\][\s\S]*B=2"),
        (lambda m: m.decode(ids(T), torch.randn(B, S, 28)), r"d_model"),
        (lambda m: m(ids(S), ids(T), source_valid=torch.ones(B, S)), r"'source_valid'[\s\S]*Bool"),
        (lambda m: m(ids(S), ids(T), source_valid=torch.ones(B, T, dtype=torch.bool)), r"'source_valid'[\s\S]*S=7"),
    ],
)
def test_wrong_inputs_are_refused_by_name(call, message):
    with pytest.raises(TypeCheckError, match=message):
        call(toy())


def test_heads_that_are_not_transposed_are_refused_by_name(mutant):
    right = "view(b, t, self.n_heads, self.d_head).transpose(1, 2)"
    broken = mutant(t5, right, right.removesuffix(".transpose(1, 2)"))
    with pytest.raises(TypeCheckError, match=r"return value of \S*heads[\s\S]*B n_heads T d_head[\s\S]*T=7"):
        broken.toy()(ids(S), ids(T))
