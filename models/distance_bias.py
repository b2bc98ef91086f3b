"""Positions as a bias on the scores: one number per head for each group of distances from query to key (T5).

>>> bias = DistanceBias(n_buckets=4, max_distance=8, n_heads=3, causal=True)
>>> bias(queries=torch.arange(5), keys=torch.arange(5)).shape
torch.Size([3, 5, 5])

Nothing is added to the embeddings, so that only distances count: what holds at one place holds at every other.
"""

import math

import torch
import torch.nn as nn
from jaxtyping import Float, Int
from torch import Tensor


def distance_buckets(
    distances: Int[Tensor, "T S"], *, n_buckets: int, max_distance: int, causal: bool
) -> Int[Tensor, "T S"]:
    """The bucket of each distance `key - query`: near ones have one each, farther ones share ever wider ones.

    >>> distance_buckets(torch.tensor([[0, -1, -2, -3, -9, 1]]), n_buckets=4, max_distance=8, causal=True)
    tensor([[0, 1, 2, 2, 3, 0]])

    A causal model needs no buckets for keys ahead; another keeps half of the buckets for them.
    """
    if causal:
        first, away = 0, (-distances).clamp(min=0)
    else:
        n_buckets //= 2
        first, away = n_buckets * (distances > 0), distances.abs()
    n_exact = n_buckets // 2
    growth = torch.log(away.clamp(min=1) / n_exact) / math.log(max_distance / n_exact)
    far = n_exact + (growth * (n_buckets - n_exact)).to(torch.int64)
    return first + torch.where(away < n_exact, away, far.clamp(max=n_buckets - 1))


class DistanceBias(nn.Module):
    """A learned number per head and bucket of distances, which all layers of a stack add to their scores."""

    def __init__(self, n_buckets: int, max_distance: int, n_heads: int, *, causal: bool) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.n_buckets = n_buckets
        self.max_distance = max_distance
        self.causal = causal
        self.table = nn.Embedding(n_buckets, n_heads)

    def forward(self, queries: Int[Tensor, " T"], keys: Int[Tensor, " S"]) -> Float[Tensor, "n_heads T S"]:
        buckets = distance_buckets(
            keys - queries[:, None], n_buckets=self.n_buckets, max_distance=self.max_distance, causal=self.causal
        )
        return self.looked_up(buckets).permute(2, 0, 1)

    def looked_up(self, buckets: Int[Tensor, "T S"]) -> Float[Tensor, "T S n_heads"]:
        return self.table(buckets)
