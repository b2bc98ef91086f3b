"""Multi-head attention: several mixtures of the same positions, each with its own view of the vectors (section 6).

>>> attention = MultiHeadAttention(d_model=8, n_heads=2)
>>> import torch
>>> x, memory = torch.zeros(3, 5, 8), torch.zeros(3, 7, 8)
>>> attention(x).shape, attention(x, memory).shape
(torch.Size([3, 5, 8]), torch.Size([3, 5, 8]))
"""

import torch.nn as nn
from jaxtyping import Bool, Float
from torch import Tensor

from .attention import scaled_dot_product_attention
from .cache import LayerCache


class MultiHeadAttention(nn.Module):
    """Queries from x; keys and values from x itself, or from `memory` in cross-attention: 4 d_model^2 weights.

    Every head projects the whole of a vector; what is split among the heads is the result (section 17.5). Keys and
    values always have one source, so their projections are packed into one linear layer.
    """

    def __init__(self, d_model: int, n_heads: int, *, bias: bool = True) -> None:
        super().__init__()
        if any(isinstance(n, bool) or n <= 0 for n in (d_model, n_heads)):
            raise ValueError(f"d_model and n_heads must be positive integers, got {d_model} and {n_heads}")
        if d_model % n_heads != 0:
            raise ValueError(f"d_model must be divisible by n_heads, got {d_model} and {n_heads}")
        self.d_model = d_model
        self.n_heads = n_heads
        self.d_head = d_model // n_heads
        self.q = nn.Linear(d_model, d_model, bias=bias)
        self.kv = nn.Linear(d_model, 2 * d_model, bias=bias)
        self.out = nn.Linear(d_model, d_model, bias=bias)

    def forward(
        self,
        x: Float[Tensor, "B T d_model"],
        memory: Float[Tensor, "B S d_model"] | None = None,
        *,
        allowed: Bool[Tensor, "... #T #S"] | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B T d_model"]:
        """Mix; with a cache, x is read after what the cache holds, while a memory is projected once and kept."""
        q = self.split_heads(self.queries(x))
        if memory is None:
            k, v = self.keys_and_values(x)
            k, v = (k, v) if cache is None else cache.extend(k, v)
        elif cache is None:
            k, v = self.keys_and_values(memory)
        else:
            k, v = cache.keep(lambda: self.keys_and_values(memory))
        mixture, _ = scaled_dot_product_attention(q, k, v, allowed)
        return self.out(self.merge_heads(mixture).to(x.dtype))

    def keys_and_values(
        self, source: Float[Tensor, "B S d_model"]
    ) -> tuple[Float[Tensor, "B n_heads S d_head"], Float[Tensor, "B n_heads S d_head"]]:
        k, v = self.packed_kv(source).chunk(2, dim=-1)
        return self.split_heads(k), self.split_heads(v)

    def queries(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_model"]:
        return self.q(x)

    def packed_kv(self, source: Float[Tensor, "B S d_model"]) -> Float[Tensor, "B S 2*d_model"]:
        return self.kv(source)

    def split_heads(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B n_heads T d_head"]:
        b, t, _ = x.shape
        return x.reshape(b, t, self.n_heads, self.d_head).transpose(1, 2)

    def merge_heads(self, z: Float[Tensor, "B n_heads T d_head"]) -> Float[Tensor, "B T d_model"]:
        b, _, t, _ = z.shape
        return z.transpose(1, 2).reshape(b, t, self.d_model)
