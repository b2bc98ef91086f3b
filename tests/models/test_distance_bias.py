"""Buckets of distances: one each for near ones, wider and wider for far ones, a last one for the rest."""

import pytest
import torch

from models.distance_bias import DistanceBias, distance_buckets


@pytest.mark.parametrize("causal", [True, False])
def test_every_bucket_is_used_and_farther_never_comes_before_nearer(causal):
    distances = -torch.arange(200)[None]
    buckets = distance_buckets(distances, n_buckets=32, max_distance=128, causal=causal)[0]
    n = 32 if causal else 16
    assert buckets[: n // 2].tolist() == list(range(n // 2))
    assert sorted(set(buckets.tolist())) == list(range(n))
    assert (buckets.diff() >= 0).all()
    assert (buckets[128:] == n - 1).all()


def test_keys_ahead_have_half_of_the_buckets_or_none():
    ahead = torch.arange(1, 200)[None]
    both = distance_buckets(ahead, n_buckets=32, max_distance=128, causal=False)
    behind = distance_buckets(-ahead, n_buckets=32, max_distance=128, causal=False)
    assert torch.equal(both, behind + 16)
    assert not distance_buckets(ahead, n_buckets=32, max_distance=128, causal=True).any()


def test_only_the_distance_counts():
    torch.manual_seed(0)
    bias = DistanceBias(n_buckets=14, max_distance=19, n_heads=3, causal=True)
    positions = torch.arange(11)
    here, there = bias(positions, positions), bias(positions + 90, positions + 90)
    assert torch.equal(here, there)
    assert torch.equal(here[:, 4, 2], here[:, 9, 7])
    assert not torch.equal(here[:, 4, 2], here[:, 4, 3])
