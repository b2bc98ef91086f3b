"""The BERT family: its sizes, both directions, padding, names, and what it refuses."""

import pytest
import torch
from jaxtyping import TypeCheckError
from torch.testing import assert_close

from models import bert
from models.bert import BERT_BASE, BERT_LARGE, TOY, Bert, BertForMaskedTokens, BertForPretraining, toy
from models.properties import batch_leaks, changed_positions
from tests.models.checks import assert_traces

B, T = 2, 5


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def ids(b=B, t=T):
    return torch.randint(107, (b, t))


@pytest.mark.parametrize(
    ("kind", "config", "count"),
    [
        (Bert, BERT_BASE, 109_482_240),
        (Bert, BERT_LARGE, 335_141_888),
        (BertForPretraining, BERT_BASE, 110_106_428),
        (BertForPretraining, BERT_LARGE, 336_226_108),
    ],
)
def test_the_number_of_parameters(kind, config, count):
    with torch.device("meta"):
        model = kind(config)
    assert sum(p.numel() for p in model.parameters()) == count


def test_a_token_reaches_every_position_before_and_after_it():
    model = toy().eval()
    assert changed_positions(lambda x: model(x)[0], ids(), 2) == tuple(range(T))


def test_a_sequence_does_not_see_the_others_of_its_batch():
    model = toy().eval()
    assert batch_leaks(lambda x: model(x)[0], ids(b=3)) == ()


def test_padding_changes_nothing_and_without_the_mask_it_would():
    model, tokens = toy().eval(), ids()
    padded = torch.cat([tokens, torch.zeros(B, 3, dtype=torch.int64)], dim=1)
    valid = torch.arange(T + 3).expand(B, -1) < T
    hidden, pooled = model(tokens)
    found, found_pooled = model(padded, valid=valid)
    assert_close(found[:, :T], hidden)
    assert_close(found_pooled, pooled)
    assert (model(padded)[0][:, :T] - hidden).abs().max() > 1e-3


def test_a_segment_changes_what_a_token_gives():
    model, tokens = toy().eval(), ids()
    second = torch.ones(B, T, dtype=torch.int64)
    assert_close(model(tokens)[0], model(tokens, segments=torch.zeros_like(second))[0])
    assert (model(tokens)[0] - model(tokens, segments=second)[0]).abs().max() > 1e-3


def test_the_head_for_masked_tokens_learns_through_the_embedding_table():
    model = BertForMaskedTokens(TOY)
    assert sum(p.numel() for p in model.masked.parameters()) == 33 * 33 + 33 + 2 * 33 + 107
    model(torch.full((1, 1), 3)).sum().backward()
    assert (model.encoder.tokens.table.weight.grad.abs().sum(dim=1) > 0).all()


@pytest.mark.parametrize("kind", [Bert, BertForMaskedTokens, BertForPretraining])
def test_it_traces_in_its_own_names_and_replays(kind):
    assert_traces(kind(TOY).eval(), ids(b=3, t=11))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: m(torch.ones(B, T)), TypeCheckError, r"'ids'[\s\S]*f32\[2,5\][\s\S]*'B T'"),
        (lambda m: m(ids(), segments=ids(t=4)), TypeCheckError, r"'segments'[\s\S]*i64\[2,4\][\s\S]*T=5"),
        (lambda m: m(ids(), valid=torch.ones(B, T)), TypeCheckError, r"'valid'[\s\S]*Bool"),
        (lambda m: m(ids(), valid=torch.ones(B, 4, dtype=torch.bool)), TypeCheckError, r"'valid'[\s\S]*T=5"),
        (lambda m: m.pooler(torch.ones(B, 33)), TypeCheckError, r"'x'[\s\S]*'B T d_model'"),
        (lambda m: m(ids(t=42)), ValueError, r"a sequence of 42 tokens is longer than max_len = 41"),
    ],
)
def test_wrong_inputs_are_refused_by_name(call, error, message):
    with pytest.raises(error, match=message):
        call(toy())


def test_pooling_of_the_wrong_axis_is_refused_by_name(mutant):
    broken = mutant(bert, "self.dense(x[:, 0])", "self.dense(x[0])")
    with pytest.raises(TypeCheckError, match=r"return value of \S*Pooler\.forward[\s\S]*B d_model[\s\S]*B=2"):
        broken.toy()(ids())
