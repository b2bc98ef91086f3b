"""Embeddings and positions against section 3: lookup, scale, the sinusoidal formula, and order without positions."""

import math

import pytest
import torch
from jaxtyping import TypeCheckError
from torch.testing import assert_close

from models.attention import scaled_dot_product_attention
from models.embeddings import InputEmbedding, LearnedPositions, SinusoidalPositions, TokenEmbedding
from models.masks import causal_allowed

B, T, VOCAB, D_MODEL = 2, 5, 101, 8


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def test_the_shapes_of_section_3_3():
    ids = torch.randint(VOCAB, (B, T))
    tokens, positions = TokenEmbedding(VOCAB, D_MODEL)(ids), SinusoidalPositions(D_MODEL)(torch.arange(T))
    assert tokens.shape == (2, 5, 8)
    assert positions.shape == (5, 8)
    assert (tokens + positions).shape == (2, 5, 8)


def test_a_token_has_the_same_vector_wherever_it_stands():
    embedding = TokenEmbedding(VOCAB, D_MODEL)
    ids = torch.randint(VOCAB, (B, T))
    vectors = embedding(ids)
    for b in range(B):
        for t in range(T):
            assert torch.equal(vectors[b, t], embedding.table.weight[ids[b, t]])


def test_the_scale_of_2017_is_the_square_root_of_the_width():
    plain, scaled = TokenEmbedding(VOCAB, D_MODEL), TokenEmbedding(VOCAB, D_MODEL, scaled=True)
    scaled.load_state_dict(plain.state_dict())
    ids = torch.randint(VOCAB, (B, T))
    assert_close(scaled(ids), math.sqrt(D_MODEL) * plain(ids))


def test_a_scaled_table_starts_small_and_gives_vectors_of_the_size_of_a_position_s_code():
    embedding = TokenEmbedding(1009, 64, scaled=True)
    assert embedding.table.weight.std().item() == pytest.approx(1 / 8, rel=0.05)
    assert embedding(torch.randint(1009, (B, T))).std().item() == pytest.approx(1, rel=0.2)


def test_dropout_falls_on_the_sum_of_token_and_position():
    embedding = InputEmbedding(TokenEmbedding(VOCAB, 256), SinusoidalPositions(256), dropout=0.25)
    ids = torch.randint(VOCAB, (B, T))
    whole, thinned = embedding.eval()(ids), embedding.train()(ids)
    dropped = thinned == 0
    assert dropped.float().mean().item() == pytest.approx(0.25, abs=0.05)
    assert_close(thinned[~dropped], whole[~dropped] / 0.75)


def test_positions_are_counted_from_the_offset_and_over_the_real_tokens():
    tokens, positions = TokenEmbedding(VOCAB, D_MODEL), SinusoidalPositions(D_MODEL)
    embedding = InputEmbedding(tokens, positions, dropout=0.0)
    ids = torch.randint(VOCAB, (B, 2))
    assert_close(embedding(ids, offset=3), tokens(ids) + positions(torch.tensor([3, 4])))
    valid = torch.tensor([[False, False, True, True, True], [True] * 5])
    assert_close(embedding(ids, valid=valid, offset=3), tokens(ids) + positions(torch.tensor([[1, 2], [3, 4]])))


def test_the_sinusoidal_formula_of_section_3_2():
    code = SinusoidalPositions(D_MODEL)(torch.arange(T))
    for pos in range(T):
        for i in range(D_MODEL // 2):
            angle = pos / 10000 ** (2 * i / D_MODEL)
            assert math.isclose(code[pos, 2 * i], math.sin(angle), abs_tol=1e-6)
            assert math.isclose(code[pos, 2 * i + 1], math.cos(angle), abs_tol=1e-6)


def test_the_first_pair_turns_fastest_and_the_last_slowest():
    code = SinusoidalPositions(512)(torch.arange(100))
    steps = (code[1:] - code[:-1]).abs().mean(dim=0).reshape(256, 2).mean(dim=1)
    assert (steps[1:] < steps[:-1]).float().mean() > 0.95
    assert steps[0] > 1000 * steps[-1]


def test_a_position_beyond_any_training_length_has_its_code():
    far = SinusoidalPositions(D_MODEL)(torch.tensor([1_000_000]))
    assert far.isfinite().all()
    assert_close(far[:, 0::2] ** 2 + far[:, 1::2] ** 2, torch.ones(1, D_MODEL // 2))


@pytest.mark.parametrize("positions", [SinusoidalPositions(D_MODEL), LearnedPositions(11, D_MODEL)])
def test_positions_may_differ_between_the_sequences_of_a_batch(positions):
    numbers = torch.tensor([[0, 0, 1, 2], [0, 1, 2, 3]])
    code = positions(numbers)
    assert code.shape == (2, 4, D_MODEL)
    assert_close(code[0, 1:], code[1, :3])
    assert_close(code[1], positions(torch.arange(4)))


def attend(x, allowed=None):
    return scaled_dot_product_attention(x, x, x, allowed)[0]


def test_without_positions_a_permutation_of_the_inputs_permutes_the_outputs():
    x = TokenEmbedding(VOCAB, D_MODEL)(torch.tensor([[7, 3, 91]]))  # dog bites person
    order = [2, 1, 0]
    assert_close(attend(x[:, order]), attend(x)[:, order])
    assert not torch.allclose(attend(x[:, order]), attend(x), atol=1e-3)


@pytest.mark.parametrize("breaker", ["positions", "mask"])
def test_positions_or_a_causal_mask_break_that_symmetry(breaker):
    x = TokenEmbedding(VOCAB, D_MODEL)(torch.tensor([[7, 3, 91]]))
    order = [2, 1, 0]
    if breaker == "positions":
        code = SinusoidalPositions(D_MODEL)(torch.arange(3))
        before, after = attend(x + code), attend(x[:, order] + code)
    else:
        before, after = attend(x, causal_allowed(3, 3)), attend(x[:, order], causal_allowed(3, 3))
    assert not torch.allclose(after, before[:, order], atol=1e-3)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: SinusoidalPositions(7), ValueError, r"d_model must be even, got 7"),
        (lambda: SinusoidalPositions(8)(torch.arange(5.0)), TypeCheckError, r"parameter 'positions'[\s\S]*f32\[5\]"),
        (lambda: LearnedPositions(11, 8)(torch.tensor([11])), IndexError, r"index out of range"),
        (lambda: TokenEmbedding(11, 8)(torch.tensor([[11]])), IndexError, r"index out of range"),
        (lambda: TokenEmbedding(11, 8)(torch.arange(5)), TypeCheckError, r"parameter 'ids'[\s\S]*'B T'"),
        (lambda: TokenEmbedding(11, 8)(torch.zeros(B, T)), TypeCheckError, r"parameter 'ids'[\s\S]*Int\[Tensor"),
    ],
)
def test_what_has_no_vector_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
