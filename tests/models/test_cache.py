"""What a cache holds, what it gives back, and where its positions are."""

import pytest
import torch
from jaxtyping import TypeCheckError

from models.cache import Cache, LayerCache

B, N_HEADS, D_HEAD, D_V = 2, 3, 5, 7


def keys_and_values(first, t):
    """The position of each key and value, written into it."""
    positions = torch.arange(first, first + t, dtype=torch.float32)[:, None]
    return positions.expand(B, N_HEADS, t, D_HEAD), positions.expand(B, N_HEADS, t, D_V)


def positions(tensor):
    return tensor[0, 0, :, 0].int().tolist()


def test_without_a_window_every_position_is_held():
    cache = LayerCache()
    assert (cache.length, cache.offset) == (0, 0)
    for first, t in [(0, 5), (5, 1), (6, 3)]:
        k, v = cache.extend(*keys_and_values(first, t))
        assert positions(k) == positions(v) == list(range(first + t))
        assert k.shape == (B, N_HEADS, first + t, D_HEAD)
        assert v.shape == (B, N_HEADS, first + t, D_V)
        assert (cache.length, cache.offset) == (first + t, 0)


@pytest.mark.parametrize("window", [1, 2, 4, 100])
def test_a_window_holds_what_later_queries_may_read(window):
    cache = LayerCache(window)
    for first, t in [(0, 6), (6, 1), (7, 1), (8, 3), (11, 1)]:
        offset = cache.offset
        assert offset == max(first - (window - 1), 0)
        k, v = cache.extend(*keys_and_values(first, t))
        assert positions(k) == positions(v) == list(range(offset, first + t))
        assert cache.length == first + t
        assert cache.held[0].shape[-2] == min(window - 1, first + t)


def test_one_part_or_three_can_be_held():
    cache = LayerCache()
    cache.extend(torch.zeros(B, 4, 11))
    assert cache.extend(torch.zeros(B, 1, 11))[0].shape == (B, 5, 11)
    with pytest.raises(ValueError, match=r"zip\(\) argument 2 is longer"):
        cache.extend(torch.zeros(B, 1, 11), torch.zeros(B, 1, 11))


def test_parts_of_unequal_length_are_refused():
    k, _ = keys_and_values(0, 2)
    _, v = keys_and_values(0, 3)
    with pytest.raises(TypeCheckError, match=r"'\.\.\. T _'[\s\S]*T=2"):
        LayerCache().extend(k, v)


def test_what_no_token_changes_is_made_once():
    cache = LayerCache()
    made = []

    def make():
        made.append(1)
        return keys_and_values(0, 4)

    first = cache.keep(make)
    assert cache.keep(make) is first
    assert made == [1]
    assert (cache.length, cache.offset) == (0, 0)


def test_a_cache_has_a_place_per_layer():
    cache = Cache(3, window=4)
    assert len(cache.layers) == 3
    assert (cache.length, cache.offset) == (0, 0)
    for layer in cache.layers:
        layer.extend(*keys_and_values(0, 6))
    assert (cache.length, cache.offset) == (6, 3)


def test_a_window_without_the_query_itself_is_refused():
    with pytest.raises(ValueError, match=r"at least the query's own position, got 0"):
        LayerCache(0)
