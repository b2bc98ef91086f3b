"""The checks find what leaks, name it, and find nothing where nothing leaks."""

import pytest
import torch
import torch.nn as nn

from models.attention import scaled_dot_product_attention
from models.masks import causal_allowed
from models.properties import batch_leaks, changed_positions, future_leaks, with_another_token

B, T, VOCAB, WIDTH = 3, 5, 11, 7


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def attention_model(causal):
    table = nn.Embedding(VOCAB, WIDTH)

    def model(ids):
        x = table(ids)
        return scaled_dot_product_attention(x, x, x, causal_allowed(T, T) if causal else None)[0]

    return model


def ids():
    return torch.randint(VOCAB, (B, T))


def test_a_causal_model_leaks_nothing_and_an_unmasked_one_at_every_position_but_the_last():
    assert future_leaks(attention_model(causal=True), ids()) == ()
    assert future_leaks(attention_model(causal=False), ids()) == (0, 1, 2, 3)


def test_a_leak_of_one_position_is_found():
    table = nn.Embedding(VOCAB, WIDTH)

    def peeps(ids):
        x = table(ids)
        return x + torch.cat([torch.zeros(B, 2, WIDTH), x[:, 3:4], torch.zeros(B, 2, WIDTH)], dim=1)

    assert future_leaks(peeps, ids()) == (2,)
    assert changed_positions(peeps, ids(), 3) == (2, 3)


def test_a_changed_token_is_another_token_of_the_vocabulary_at_that_position_only():
    before = torch.tensor([[0, 0], [10, 5], [1, 0]])
    after = with_another_token(before, 1)
    assert torch.equal(after[:, 0], before[:, 0])
    assert (after[:, 1] != before[:, 1]).all()
    assert after.min() >= 0
    assert after.max() < VOCAB


def test_a_model_of_single_sequences_leaks_nothing_and_a_norm_over_the_batch_everywhere():
    table = nn.Embedding(VOCAB, WIDTH)
    assert batch_leaks(table, ids()) == ()
    assert batch_leaks(lambda ids: table(ids) - table(ids).mean(dim=0), ids()) == (0, 1, 2)


def test_one_sequence_that_reads_another_is_named():
    table = nn.Embedding(VOCAB, WIDTH)

    def reads_the_first(ids):
        x = table(ids)
        return torch.cat([x[:2], x[2:] + x[0]])

    assert batch_leaks(reads_the_first, ids()) == (2,)
