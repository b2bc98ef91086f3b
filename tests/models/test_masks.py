"""Who may read whom: causal, padding, cross and window masks, torch's two conventions, and what is refused."""

import math

import pytest
import torch
import torch.nn.functional as F
from jaxtyping import TypeCheckError
from torch.testing import assert_close

from models.attention import scaled_dot_product_attention
from models.masks import (
    blocked,
    causal_allowed,
    cross_allowed,
    decoder_allowed,
    padding_allowed,
    real_positions,
    score_bias,
)

B, T, S, N_HEADS, D_HEAD = 2, 5, 7, 3, 11


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def mask(*rows):
    return torch.tensor([[bool(int(cell)) for cell in row] for row in rows])


def test_a_query_reads_keys_up_to_its_own_position():
    assert torch.equal(causal_allowed(T, T), torch.ones(T, T, dtype=torch.bool).tril())
    assert causal_allowed(T, S).shape == (T, S)


def test_query_offset_is_the_position_of_the_first_query():
    whole = causal_allowed(S, S)
    assert torch.equal(causal_allowed(2, S, query_offset=S - 2), whole[-2:])
    assert causal_allowed(1, S, query_offset=S - 1).all()
    assert causal_allowed(1, S).sum() == 1


def test_key_offset_is_the_position_of_the_first_key():
    whole = causal_allowed(S, S, window=3)
    assert torch.equal(causal_allowed(2, 4, query_offset=5, key_offset=3, window=3), whole[5:, 3:])


def test_a_window_holds_the_query_and_the_keys_before_it():
    assert torch.equal(causal_allowed(4, 4, window=2), mask("1000", "1100", "0110", "0011"))
    assert torch.equal(causal_allowed(4, 4, window=1), torch.eye(4, dtype=torch.bool))
    assert torch.equal(causal_allowed(T, T, window=T), causal_allowed(T, T))


@pytest.mark.parametrize(
    ("arguments", "changes", "error", "message"),
    [
        ((0, 5), {}, ValueError, r"positive .* got 0, 5, query_offset = 0"),
        ((5, -1), {}, ValueError, r"positive .* got 5, -1, query_offset = 0"),
        ((5, 5), {"query_offset": -1}, ValueError, r"not negative, got 5, 5, query_offset = -1"),
        ((5, 5), {"key_offset": -1}, ValueError, r"not negative, got .* key_offset = -1"),
        ((5, 5), {"window": 0}, ValueError, r"a window holds at least .* got 0"),
        ((True, 5), {}, TypeError, r"not truth values"),
        ((5, 5), {"query_offset": False}, TypeError, r"not truth values"),
        ((5, 5), {"window": True}, TypeError, r"not truth values"),
        ((5.0, 5), {}, TypeCheckError, r"parameter 't_q'"),
        ((5, 5), {"query_offset": 1.0}, TypeCheckError, r"parameter 'query_offset'"),
    ],
)
def test_bad_lengths_of_a_mask_are_refused(arguments, changes, error, message):
    with pytest.raises(error, match=message):
        causal_allowed(*arguments, **changes)


def test_padding_is_read_by_no_query_of_any_head():
    valid = mask("1111100", "1111111")
    scores = torch.randn(B, N_HEADS, T, S)
    allowed = padding_allowed(valid).expand_as(scores)
    assert torch.equal(allowed, valid[:, None, None].expand(B, N_HEADS, T, S))
    q, k, v = torch.randn(B, N_HEADS, T, D_HEAD), *torch.randn(2, B, N_HEADS, S, D_HEAD)
    _, weights = scaled_dot_product_attention(q, k, v, padding_allowed(valid))
    assert not weights[0, :, :, 5:].any()
    assert (weights[0, :, :, :5] > 0).all()


def test_target_queries_read_the_whole_source_but_its_padding():
    valid = mask("1111100", "1111111")
    allowed = cross_allowed(valid, T)
    assert allowed.shape == (B, 1, T, S)
    assert torch.equal(allowed[0, 0], mask(*["1111100"] * T))
    assert allowed[1].all()


def test_a_decoder_reads_neither_what_follows_nor_padding():
    valid = mask("11110", "11111")
    allowed = decoder_allowed(T, T, valid=valid)
    assert torch.equal(allowed[0, 0], mask("10000", "11000", "11100", "11110", "11111"))
    assert torch.equal(allowed[1, 0], causal_allowed(T, T))
    assert torch.equal(decoder_allowed(T, T), causal_allowed(T, T))


def test_a_padded_query_reads_itself_so_that_no_row_is_empty():
    valid = mask("00111", "11111")
    allowed = decoder_allowed(T, T, valid=valid)
    assert torch.equal(allowed[0, 0], mask("10000", "01000", "00100", "00110", "00111"))
    assert not (causal_allowed(T, T) & padding_allowed(valid)).any(dim=-1).all()


@pytest.mark.parametrize("window", [None, 3])
def test_with_a_cache_a_decoder_sees_the_last_rows_of_the_whole_mask(window):
    valid = mask("0011111", "1111111")
    whole = decoder_allowed(S, S, valid=valid, window=window)
    offset = 0 if window is None else S - 2 - (window - 1)
    rows = decoder_allowed(2, S - offset, valid=valid, query_offset=S - 2, key_offset=offset, window=window)
    assert torch.equal(rows, whole[:, :, -2:, offset:])
    assert not whole[:, :, -2:, :offset].any()


def test_valid_must_cover_every_position_read():
    with pytest.raises(ValueError, match=r"valid covers 1 positions, but 5 have been read"):
        decoder_allowed(1, T, valid=torch.ones(B, 1, dtype=torch.bool), query_offset=4)


def test_positions_are_counted_over_the_real_tokens():
    valid = mask("0001111", "1111111", "1111000")
    assert real_positions(valid).tolist() == [[0, 0, 0, 0, 1, 2, 3], [0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 3, 3, 3]]


def identity_attention():
    """torch's module with one head and projections that change nothing: what is left of it is the attention."""
    module = torch.nn.MultiheadAttention(D_HEAD, 1, bias=False, batch_first=True)
    with torch.no_grad():
        module.in_proj_weight.copy_(torch.eye(D_HEAD).repeat(3, 1))
        module.out_proj.weight.copy_(torch.eye(D_HEAD))
    return module


def test_the_two_conventions_of_torch_are_opposite_and_blocked_leads_from_one_to_the_other():
    allowed = causal_allowed(T, S)
    q, k, v = torch.randn(B, T, D_HEAD), *torch.randn(2, B, S, D_HEAD)
    ours, weights = scaled_dot_product_attention(q, k, v, allowed)
    assert not weights[:, ~allowed].any()

    module = identity_attention()
    assert_close(F.scaled_dot_product_attention(q, k, v, attn_mask=allowed), ours)
    assert_close(module(q, k, v, attn_mask=blocked(allowed))[0], ours)
    assert torch.equal(blocked(blocked(allowed)), allowed)
    # The control: the same mask in the wrong convention gives something else.
    assert (module(q, k, v, attn_mask=allowed)[0] - ours).abs().max() > 0.1


def test_key_padding_follows_the_convention_of_the_module():
    valid = mask("1111100", "1111111")
    q, k, v = torch.randn(B, T, D_HEAD), *torch.randn(2, B, S, D_HEAD)
    ours, _ = scaled_dot_product_attention(q, k, v, cross_allowed(valid, T)[:, 0])
    assert_close(identity_attention()(q, k, v, key_padding_mask=blocked(valid))[0], ours)


def test_a_mask_of_numbers_is_added_to_the_scores():
    allowed = causal_allowed(T, S)
    bias = score_bias(allowed)
    assert torch.equal(bias == 0, allowed)
    assert torch.equal(bias == -math.inf, ~allowed)
    q, k, v = torch.randn(B, T, D_HEAD), *torch.randn(2, B, S, D_HEAD)
    ours, _ = scaled_dot_product_attention(q, k, v, allowed)
    assert_close(F.scaled_dot_product_attention(q, k, v, attn_mask=bias), ours)
    assert_close(identity_attention()(q, k, v, attn_mask=bias)[0], ours)


def test_a_row_without_allowed_keys_has_no_softmax_and_a_large_number_only_hides_it():
    nothing = torch.zeros(1, 2, dtype=torch.bool)
    assert torch.softmax(score_bias(nothing), dim=-1).isnan().all()
    scores = torch.tensor([[1.0, 2.0]])
    assert_close((scores - 1e9).softmax(dim=-1), torch.tensor([[0.5, 0.5]]))
