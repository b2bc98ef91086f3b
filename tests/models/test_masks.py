"""The causal mask, with and without a cache, and what it refuses."""

import pytest
import torch
from jaxtyping import TypeCheckError

from models.masks import causal_allowed

T, S = 5, 7


def test_a_query_reads_keys_up_to_its_own_position():
    assert torch.equal(causal_allowed(T, T), torch.ones(T, T, dtype=torch.bool).tril())
    assert causal_allowed(T, S).shape == (T, S)


def test_query_offset_is_the_position_of_the_first_query():
    whole = causal_allowed(S, S)
    assert torch.equal(causal_allowed(2, S, query_offset=S - 2), whole[-2:])
    assert causal_allowed(1, S, query_offset=S - 1).all()
    assert causal_allowed(1, S).sum() == 1


@pytest.mark.parametrize(
    ("arguments", "offset", "error", "message"),
    [
        ((0, 5), 0, ValueError, r"positive .* got 0, 5 and 0"),
        ((5, -1), 0, ValueError, r"positive .* got 5, -1 and 0"),
        ((5, 5), -1, ValueError, r"not negative, got 5, 5 and -1"),
        ((True, 5), 0, TypeError, r"not truth values"),
        ((5, 5), False, TypeError, r"not truth values"),
        ((5.0, 5), 0, TypeCheckError, r"parameter 't_q'"),
        ((5, 5), 1.0, TypeCheckError, r"parameter 'query_offset'"),
    ],
)
def test_bad_lengths_of_a_mask_are_refused(arguments, offset, error, message):
    with pytest.raises(error, match=message):
        causal_allowed(*arguments, query_offset=offset)
