"""Section 4 of the notes: one head, its row and column arguments, and the four terms of an additive-position score."""

import math

import pytest
import torch
from jaxtyping import TypeCheckError
from torch.testing import assert_close

from models import single_head
from models.attention import scaled_dot_product_attention
from models.embeddings import SinusoidalPositions
from models.masks import blocked, causal_allowed
from models.rope import Rotary
from models.single_head import MaskedSelfAttention, score_terms, toy
from tests.models.checks import assert_traces

B, T, D_MODEL, D_HEAD = 2, 7, 5, 3


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.mark.parametrize(("shape", "rows", "columns"), [((T,), 0, 1), ((B, T), 1, 2), ((B, T), -2, -1), ((T,), -2, -1)])
def test_rows_and_columns_are_axes_of_the_input(shape, rows, columns):
    head, x = MaskedSelfAttention(D_MODEL, rows, columns), torch.randn(*shape, D_MODEL)
    expected, _ = scaled_dot_product_attention(head.q(x), head.k(x), head.v(x), causal_allowed(T, T))
    assert_close(head(x, blocked(causal_allowed(T, T))), expected)
    unmasked, _ = scaled_dot_product_attention(head.q(x), head.k(x), head.v(x))
    assert_close(head(x), unmasked)


def test_the_axes_of_one_sequence_are_wrong_for_a_batch():
    with pytest.raises(RuntimeError, match=r"size of tensor|must match|Expected size"):
        MaskedSelfAttention(D_MODEL)(torch.randn(B, T, D_MODEL))


def test_the_axes_of_one_sequence_are_wrong_without_an_error_where_all_sizes_are_equal():
    x = torch.randn(T, T, T)  # as many sequences as positions as features: why the sizes of a test should differ
    wrong, right = MaskedSelfAttention(T, 0, 1), MaskedSelfAttention(T, 1, 2)
    right.load_state_dict(wrong.state_dict())
    assert (wrong(x) - right(x)).abs().max() > 0.1


def test_the_defaults_are_two_features_of_one_sequence():
    head = MaskedSelfAttention()
    assert sum(p.numel() for p in head.parameters()) == 3 * 2 * 2
    assert head(torch.randn(T, 2)).shape == (T, 2)


def test_a_row_of_weights_sums_to_one_and_hidden_keys_weigh_nothing():
    head, x = toy(), torch.randn(B, T, D_MODEL)
    with torch.no_grad():
        head.v.weight.copy_(torch.eye(D_MODEL))
        ones = torch.ones(B, T, D_MODEL)
        scores = head.scores(x).masked_fill(blocked(causal_allowed(T, T)), single_head.HIDDEN)
        weights = scores.softmax(dim=-1)
    assert_close(weights.sum(dim=-1), torch.ones(B, T))
    assert not weights.triu(1).any()
    assert_close(weights @ ones, ones)


def test_a_query_that_may_read_nothing_reads_everything_alike():
    head, x = toy(), torch.randn(B, T, D_MODEL)
    nothing = torch.ones(T, T, dtype=torch.bool)
    assert_close(head(x, nothing), head.v(x).mean(dim=1, keepdim=True).expand(-1, T, -1))
    scores = torch.full((T, T), -math.inf)
    assert scores.softmax(dim=-1).isnan().all()  # what minus infinity in its place would give


def test_scores_of_projections_have_a_direction_and_those_without_have_none():
    x = torch.randn(T, D_MODEL)
    assert_close(x @ x.T, (x @ x.T).T)
    scores = MaskedSelfAttention(D_MODEL).scores(x)
    assert (scores - scores.T).abs().max() > 1e-2


def projections():
    return torch.randn(D_MODEL + 1, D_HEAD), torch.randn(D_MODEL + 1, D_HEAD)


def test_the_four_terms_add_up_to_the_score():
    content, position = torch.randn(2, T, D_MODEL + 1)
    w_q, w_k = projections()
    x = content + position
    terms = score_terms(content, position, w_q, w_k)
    assert_close(terms.total(), (x @ w_q) @ (x @ w_k).T)
    i, j = 4, 2
    assert_close(terms.content_position[i, j], content[i] @ w_q @ w_k.T @ position[j])
    assert_close(terms.position_content[i, j], position[i] @ w_q @ w_k.T @ content[j])


def test_sinusoidal_positions_alone_depend_on_the_offset_and_projections_break_it():
    d_model = D_MODEL + 1
    n = 101
    encode = SinusoidalPositions(d_model)
    p = encode(torch.arange(n)).double()
    frequencies = 10000.0 ** (-torch.arange(0, d_model, 2) / d_model)
    offsets = torch.arange(n)[None] - torch.arange(n)[:, None]
    formula = torch.cos(offsets[..., None] * frequencies.double()).sum(dim=-1)
    assert_close(p @ p.T, formula, atol=1e-4, rtol=0)

    w_q, w_k = projections()
    none = torch.zeros(n, d_model)
    terms = score_terms(none, p.float(), w_q, w_k).position_position
    previous = terms.diagonal(offset=-1)  # every pair (i, i - 1)
    assert previous.max() - previous.min() > 1


def test_the_cross_terms_depend_on_one_absolute_position_and_not_on_the_offset():
    n, d_model = 101, D_MODEL + 1
    word = torch.randn(d_model).expand(n, -1)  # the same word everywhere
    terms = score_terms(word, SinusoidalPositions(d_model)(torch.arange(n)), *projections())
    assert_close(terms.content_position[3], terms.content_position[99])  # where the query stands does not count
    assert_close(terms.position_content[:, 2], terms.position_content[:, 98])
    assert (terms.content_position[3, 2] - terms.content_position[7, 6]).abs() > 1e-2


PREVIOUS = [(3, 2), (7, 6), (100, 99)]  # queries and keys of the rule "attend to the previous token"


def test_the_rule_of_the_previous_token_has_one_score_with_rotary_positions_and_many_with_added_ones():
    d_model = 8
    word, (w_q, w_k) = torch.randn(d_model), torch.randn(2, d_model, d_model)
    added = score_terms(word.expand(101, -1), SinusoidalPositions(d_model)(torch.arange(101)), w_q, w_k).total()
    rotary = Rotary(d_model)

    def turned(vector, position):
        return rotary(torch.tensor([[position]])).turn(vector[None, None, None])

    rotated = torch.stack([(turned(word @ w_q, i) * turned(word @ w_k, j)).sum() for i, j in PREVIOUS])
    assert_close(rotated, rotated[:1].expand(3), atol=1e-3, rtol=1e-5)
    additive = torch.stack([added[i, j] for i, j in PREVIOUS])
    assert (additive.diff().abs() > 0.1).all()


def test_it_traces_in_its_own_names_and_replays():
    assert_traces(toy(), torch.randn(3, 11, D_MODEL))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m(torch.randn(B, T, 4), torch.ones(T, T)), r"'blocked'[\s\S]*f32\[7,7\][\s\S]*Bool"),
        (lambda m: m(torch.randn(B, T, D_MODEL), torch.ones(T, 3, dtype=torch.bool)), r"'blocked'[\s\S]*T=7"),
        (lambda m: m(torch.ones(B, T, D_MODEL, dtype=torch.int64)), r"'x'[\s\S]*i64\[2,7,5\][\s\S]*Float"),
    ],
)
def test_wrong_inputs_are_refused_by_name(call, message):
    with pytest.raises(TypeCheckError, match=message):
        call(toy())


def test_a_missing_transpose_is_refused(mutant):
    broken = mutant(single_head, "k.transpose(self.row_dim, self.col_dim)", "k.mT.mT")
    with pytest.raises(RuntimeError, match=r"size of tensor|must match|Expected size|shapes cannot be multiplied"):
        broken.toy()(torch.randn(B, T, D_MODEL))


def test_a_transposed_result_is_refused_by_name(mutant):
    broken = mutant(single_head, "return projection(x)", "return projection(x).transpose(-2, -1)")
    with pytest.raises(TypeCheckError, match=r"return value of \S*projected[\s\S]*T d_model"):
        broken.toy()(torch.randn(B, T, D_MODEL))
