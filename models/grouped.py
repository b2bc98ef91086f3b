"""Attention whose query heads share keys and values: MHA, GQA and MQA are one module (notes, sections 4.3.1 and 4.3.5).

>>> attention = GroupedQueryAttention(d_model=12, n_heads=6, n_kv_heads=2, d_head=4)
>>> attention(torch.ones(2, 5, 12)).shape
torch.Size([2, 5, 12])

Each of the `n_kv_heads` serves `group = n_heads / n_kv_heads` query heads: 1 in multi-head attention, all of them in
multi-query attention. A cache holds `2 * n_kv_heads * d_head` numbers per token.
"""

import math

import torch
import torch.nn as nn
from jaxtyping import Bool, Float
from torch import Tensor

from .attention import align, attention_scores, attention_weights, scaled_dot_product_attention
from .cache import LayerCache
from .masks import decoder_allowed
from .norms import RMSNorm
from .rope import Rotation


class GroupedQueryAttention(nn.Module):
    """Causal self-attention with rotary positions.

    `norm_eps` puts an RMSNorm on each head's queries and keys (Qwen3). `window` lets a query read the last so many
    positions only, itself among them (Mistral). `sinks` gives each head a learned score that takes a share of the
    softmax and mixes nothing in (gpt-oss).
    """

    def __init__(
        self,
        *,
        d_model: int,
        n_heads: int,
        n_kv_heads: int,
        d_head: int,
        norm_eps: float | None = None,
        window: int | None = None,
        bias: bool = False,
        out_bias: bool = False,
        sinks: bool = False,
    ) -> None:
        super().__init__()
        if n_heads % n_kv_heads != 0:
            raise ValueError(f"n_heads must be divisible by n_kv_heads, got {n_heads} and {n_kv_heads}")
        self.d_model = d_model
        self.n_heads = n_heads
        self.n_kv_heads = n_kv_heads
        self.group = n_heads // n_kv_heads
        self.d_head = d_head
        self.d_q = n_heads * d_head
        self.d_kv = n_kv_heads * d_head
        self.window = window
        self.q = nn.Linear(d_model, self.d_q, bias=bias)
        self.k = nn.Linear(d_model, self.d_kv, bias=bias)
        self.v = nn.Linear(d_model, self.d_kv, bias=bias)
        self.out = nn.Linear(self.d_q, d_model, bias=out_bias)
        self.q_norm = None if norm_eps is None else RMSNorm(d_head, eps=norm_eps)
        self.k_norm = None if norm_eps is None else RMSNorm(d_head, eps=norm_eps)
        self.sinks = nn.Parameter(torch.zeros(n_heads)) if sinks else None

    def forward(
        self,
        x: Float[Tensor, "B T d_model"],
        rotation: Rotation | None = None,
        *,
        valid: Bool[Tensor, "B _"] | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B T d_model"]:
        """Without a `rotation` the mask alone tells positions apart.

        `valid` is False at padding, for all positions read so far: those in the cache, then those of x.
        """
        q, k, v = self.queries(x), self.keys(x), self.values(x)
        if rotation is not None:
            q, k = rotation.turn(q), rotation.turn(k)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        query_offset, key_offset = (0, 0) if cache is None else (cache.length, cache.offset)
        if cache is not None:
            check_window(cache, self.window)
            k, v = cache.extend(k, v)
        allowed = decoder_allowed(
            q.shape[2],
            k.shape[2],
            valid=valid,
            query_offset=query_offset,
            key_offset=key_offset,
            window=self.window,
            device=x.device,
        )
        mixture = self.mixture(q, self.shared(k), self.shared(v), allowed)
        return self.out(self.merge_heads(mixture).to(x.dtype))

    def queries(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T n_heads d_head"]:
        q = self.packed_q(x).view(*x.shape[:2], self.n_heads, self.d_head)
        return q if self.q_norm is None else self.q_norm(q)

    def keys(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T n_kv_heads d_head"]:
        k = self.packed_k(x).view(*x.shape[:2], self.n_kv_heads, self.d_head)
        return k if self.k_norm is None else self.k_norm(k)

    def values(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T n_kv_heads d_head"]:
        return self.packed_v(x).view(*x.shape[:2], self.n_kv_heads, self.d_head)

    def packed_q(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_q"]:
        return self.q(x)

    def packed_k(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_kv"]:
        return self.k(x)

    def packed_v(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_kv"]:
        return self.v(x)

    def shared(self, x: Float[Tensor, "B n_kv_heads S d_head"]) -> Float[Tensor, "B n_heads S d_head"]:
        """Each key or value head repeated for the query heads of its group, which are neighbours."""
        return x if self.group == 1 else x.repeat_interleave(self.group, dim=1)

    def mixture(
        self,
        q: Float[Tensor, "B n_heads T d_head"],
        k: Float[Tensor, "B n_heads S d_head"],
        v: Float[Tensor, "B n_heads S d_head"],
        allowed: Bool[Tensor, "... T S"],
    ) -> Float[Tensor, "B n_heads T d_head"]:
        if self.sinks is None:
            return scaled_dot_product_attention(q, k, v, allowed)[0]
        q, k, v = align(q, k, v)
        return self.weights_beside_sinks(attention_scores(q, k), self.sinks, allowed) @ v

    def weights_beside_sinks(
        self,
        scores: Float[Tensor, "B n_heads T S"],
        sinks: Float[Tensor, " n_heads"],
        allowed: Bool[Tensor, "... T S"],
    ) -> Float[Tensor, "B n_heads T S"]:
        """The softmax over the keys and the sink, without the sink's part: a row sums to less than 1."""
        total = scores.masked_fill(~allowed, -math.inf).logsumexp(dim=-1, keepdim=True)
        share = torch.sigmoid(total - sinks[:, None, None])  # exp(total) / (exp(total) + exp(sink))
        return attention_weights(scores, allowed) * share

    def merge_heads(self, z: Float[Tensor, "B n_heads T d_head"]) -> Float[Tensor, "B T d_q"]:
        return z.transpose(1, 2).flatten(2)


def check_window(cache: LayerCache, window: int | None) -> None:
    """A cache may keep more than attention reads. With less, keys would be missing unnoticed."""
    if cache.window is not None and (window is None or cache.window < window):
        reads = "all positions" if window is None else f"{window} positions"
        raise ValueError(f"attention reads {reads}, but the cache keeps a window of {cache.window}")
