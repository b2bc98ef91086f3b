"""Equations of the notes' sections 3.2 to 4.3 that hold across files: embeddings, heads, the residual stream."""

import pytest
import torch
import torch.nn as nn
from torch.testing import assert_close

from models.attention import attention_weights, scaled_dot_product_attention
from models.embeddings import InputEmbedding, LearnedPositions, SinusoidalPositions, TokenEmbedding
from models.feed_forward import FeedForward
from models.gpt import DecoderBlock, MultiHeadSelfAttention, toy
from models.masks import causal_allowed, score_bias

T, D_MODEL, N_HEADS, D_HEAD, VOCAB = 7, 15, 3, 5, 11


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def test_a_lookup_takes_rows_of_the_table_and_adds_a_vector_per_position():
    ids = torch.tensor([[3, 0, 3]])
    tokens, positions = TokenEmbedding(VOCAB, D_MODEL), LearnedPositions(T, D_MODEL)
    assert tokens.table.weight.shape == (VOCAB, D_MODEL)
    one_hot = torch.eye(VOCAB)[ids[0]]
    assert_close(tokens(ids)[0], one_hot @ tokens.table.weight)
    x = InputEmbedding(tokens, positions, dropout=0.0)(ids)
    assert_close(x[0], tokens(ids)[0] + positions.table.weight[:3])


def test_learned_positions_are_parameters_and_sinusoidal_ones_are_not():
    assert [p.shape for p in LearnedPositions(T, D_MODEL).parameters()] == [(T, D_MODEL)]
    assert list(SinusoidalPositions(D_MODEL + 1).parameters()) == []


def test_the_mask_is_added_to_the_scores_before_the_softmax():
    q, k, v = torch.randn(3, T, D_HEAD)
    allowed = causal_allowed(T, T)
    s = q @ k.T / D_HEAD**0.5 + score_bias(allowed)
    z, a = scaled_dot_product_attention(q, k, v, allowed)
    assert_close(a, s.softmax(dim=-1))
    assert_close(z, s.softmax(dim=-1) @ v)


def test_a_dot_product_grows_with_the_vectors_and_a_cosine_does_not():
    q, k = torch.randn(2, D_HEAD)
    assert_close((3 * q) @ k, 3 * (q @ k))
    assert_close(torch.cosine_similarity(3 * q, k, dim=0), torch.cosine_similarity(q, k, dim=0))


def test_heads_are_concatenated_and_mixed_by_one_matrix():
    attention, x = MultiHeadSelfAttention(D_MODEL, N_HEADS), torch.randn(1, T, D_MODEL)
    w_q, w_k, w_v = attention.qkv.weight.T.chunk(3, dim=1)
    heads = []
    for h in range(N_HEADS):
        columns = slice(h * D_HEAD, (h + 1) * D_HEAD)
        q, k, v = (x[0] @ w[:, columns] for w in (w_q, w_k, w_v))
        weights = attention_weights(q @ k.T / D_HEAD**0.5, causal_allowed(T, T))
        heads.append(weights @ v)
    assert_close(attention(x)[0], torch.cat(heads, dim=1) @ attention.out.weight.T)


def test_the_feed_forward_layer_is_its_formula():
    ffn, x = FeedForward(D_MODEL, 37, activation="relu"), torch.randn(1, T, D_MODEL)
    expected = torch.relu(x @ ffn.up.weight.T + ffn.up.bias) @ ffn.down.weight.T + ffn.down.bias
    assert_close(ffn(x), expected)


def test_the_jacobian_of_a_residual_sum_has_the_identity_in_it():
    f = nn.Sequential(nn.Linear(D_MODEL, D_MODEL), nn.Tanh())
    x = torch.randn(D_MODEL)
    of_f = torch.autograd.functional.jacobian(f, x)
    of_sum = torch.autograd.functional.jacobian(lambda x: x + f(x), x)
    assert_close(of_sum, torch.eye(D_MODEL) + of_f)


def test_the_residual_stream_is_its_start_and_the_sum_of_all_updates():
    model, ids = toy(n_layers=3), torch.randint(100, (1, T))
    stream, updates = [], []
    for block in model.blocks:
        block.register_forward_pre_hook(lambda _, args: stream.append(args[0]))
        for part in (block.attn, block.ffn):
            part.register_forward_hook(lambda *call: updates.append(call[2]))
    model.norm.register_forward_pre_hook(lambda _, args: stream.append(args[0]))
    model(ids)
    assert len(updates) == 6
    for layer in range(3):
        assert_close(stream[-1], stream[layer] + sum(updates[2 * layer :]))


@pytest.mark.parametrize("residual", [True, False])
def test_without_residual_connections_the_gradient_of_an_early_layer_vanishes(residual):
    layers = nn.ModuleList(nn.Sequential(nn.Linear(D_MODEL, D_MODEL), nn.Tanh()) for _ in range(30))
    start = x = torch.randn(T, D_MODEL, requires_grad=True)
    for layer in layers:
        x = x + layer(x) if residual else layer(x)
    x.sum().backward()
    gradient = start.grad.abs().mean()
    assert gradient > 0.1 if residual else gradient < 1e-4


def spread(x):
    """How much of the tokens' vectors is not common to all of them: 0 where they are equal."""
    return ((x - x.mean(dim=1, keepdim=True)).norm() / x.norm()).item()


@torch.no_grad()
def test_without_residual_connections_attention_makes_all_tokens_alike():
    x = mixed = torch.randn(1, T, D_MODEL)
    for _ in range(12):
        block = DecoderBlock(D_MODEL, N_HEADS, 37)
        x = block(x)
        mixed = block.attn(mixed, causal=False)
        mixed = mixed / mixed.std()  # the size is kept, so that only directions can become alike
    assert spread(x) > 0.5
    assert spread(mixed) < 1e-3
