"""Multi-head latent attention: keys and values are made from one small vector per token (DeepSeek-V2; notes, 4.3.5).

>>> from models.rope import Rotary
>>> attention = LatentAttention(d_model=12, n_heads=3, d_nope=4, d_rope=2, d_v=5, d_latent=7)
>>> attention(torch.ones(1, 6, 12), Rotary(2)(torch.arange(6)[None])).shape
torch.Size([1, 6, 12])

A cache holds `d_latent + d_rope` numbers per token, however many heads there are. Rotary positions cannot pass through
the latent, as they would turn each head's keys: they get `d_rope` axes of their own, in every head's query, and in one
key that all heads share (the decoupled rotary key).
"""

import math

import torch
import torch.nn as nn
from jaxtyping import Bool, Float
from torch import Tensor

from .attention import scaled_dot_product_attention
from .cache import LayerCache
from .grouped import check_window
from .masks import decoder_allowed
from .norms import RMSNorm
from .rope import Rotation


class Queries(nn.Module):
    """Every head's query, straight from the residual stream: `d_head` axes."""

    def __init__(self, *, d_model: int, n_heads: int, d_head: int) -> None:
        super().__init__()
        self.d_model = d_model
        self.n_heads = n_heads
        self.d_head = d_head
        self.d_q = n_heads * d_head
        self.up = nn.Linear(d_model, self.d_q, bias=False)

    def forward(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T n_heads d_head"]:
        return self.packed(x).view(*x.shape[:2], self.n_heads, self.d_head)

    def packed(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_q"]:
        return self.up(x)


class LowRankQueries(nn.Module):
    """The same through a normalised latent of `d_latent_q` axes: fewer parameters; nothing of it is cached."""

    def __init__(
        self, *, d_model: int, n_heads: int, d_head: int, d_latent_q: int, norm_eps: float, bias: bool = False
    ) -> None:
        super().__init__()
        self.d_model = d_model
        self.n_heads = n_heads
        self.d_head = d_head
        self.d_latent_q = d_latent_q
        self.d_q = n_heads * d_head
        self.down = nn.Linear(d_model, d_latent_q, bias=bias)
        self.norm = RMSNorm(d_latent_q, eps=norm_eps)
        self.up = nn.Linear(d_latent_q, self.d_q, bias=False)

    def forward(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T n_heads d_head"]:
        return self.packed(self.norm(self.latent(x))).view(*x.shape[:2], self.n_heads, self.d_head)

    def latent(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_latent_q"]:
        return self.down(x)

    def packed(self, latent: Float[Tensor, "B T d_latent_q"]) -> Float[Tensor, "B T d_q"]:
        return self.up(latent)


class LatentAttention(nn.Module):
    """Causal self-attention over latents.

    A head's queries and keys have `d_nope` axes without positions and `d_rope` with. `d_latent_q` sends the queries
    through a latent of their own. `sharpness` multiplies the scores (YaRN: the square of `yarn_magnitude`). With
    `absorb` the queries go to the latents, and no head's keys and values are ever made: the same sums in another
    order, which costs less where few queries read many cached positions.
    """

    def __init__(
        self,
        *,
        d_model: int,
        n_heads: int,
        d_nope: int,
        d_rope: int,
        d_v: int,
        d_latent: int,
        d_latent_q: int | None = None,
        norm_eps: float = 1e-6,
        sharpness: float = 1.0,
        bias: bool = False,
        absorb: bool = False,
    ) -> None:
        super().__init__()
        self.d_model = d_model
        self.n_heads = n_heads
        self.d_nope = d_nope
        self.d_head = d_nope + d_rope
        self.d_rope = d_rope
        self.d_v = d_v
        self.d_latent = d_latent
        self.d_compressed = d_latent + d_rope
        self.d_kv = n_heads * (d_nope + d_v)
        self.d_mixture = n_heads * d_v
        self.sharpness = sharpness
        self.absorb = absorb
        sizes = {"d_model": d_model, "n_heads": n_heads, "d_head": self.d_head}
        if d_latent_q is None:
            self.q = Queries(**sizes)
        else:
            self.q = LowRankQueries(**sizes, d_latent_q=d_latent_q, norm_eps=norm_eps, bias=bias)
        self.down = nn.Linear(d_model, self.d_compressed, bias=bias)
        self.norm = RMSNorm(d_latent, eps=norm_eps)
        self.up = nn.Linear(d_latent, self.d_kv, bias=False)
        self.out = nn.Linear(self.d_mixture, d_model, bias=bias)

    def forward(
        self,
        x: Float[Tensor, "B T d_model"],
        rotation: Rotation,
        *,
        valid: Bool[Tensor, "B _"] | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B T d_model"]:
        """The `rotation` is that of `Rotary(d_rope)`; `valid` is False at padding, for all positions read so far."""
        latent, k_rope = self.compressed(x).split([self.d_latent, self.d_rope], dim=-1)
        latent, k_rope = self.norm(latent), rotation.turn(k_rope[:, :, None])[:, :, 0]
        query_offset = 0 if cache is None else cache.length
        if cache is not None:
            check_window(cache, None)
            latent, k_rope = cache.extend(latent, k_rope)
        allowed = decoder_allowed(x.shape[1], latent.shape[1], valid=valid, query_offset=query_offset, device=x.device)
        mixture = self.absorbed_mixture if self.absorb else self.mixture
        return self.out(self.merge_heads(mixture(self.queries(x, rotation), latent, k_rope, allowed)).to(x.dtype))

    def compressed(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_compressed"]:
        """All that a cache needs, before the norm and the rotation: the latent and, behind it, the rotary key."""
        return self.down(x)

    def queries(self, x: Float[Tensor, "B T d_model"], rotation: Rotation) -> Float[Tensor, "B n_heads T d_head"]:
        plain, rope = self.parts(self.q(x))
        return torch.cat([plain, rotation.turn(rope)], dim=-1).transpose(1, 2) * self.sharpness

    def parts(self, q: Float[Tensor, "... d_head"]) -> tuple[Float[Tensor, "... d_nope"], Float[Tensor, "... d_rope"]]:
        return q.split([self.d_nope, self.d_rope], dim=-1)

    def mixture(
        self,
        q: Float[Tensor, "B n_heads T d_head"],
        latent: Float[Tensor, "B S d_latent"],
        k_rope: Float[Tensor, "B S d_rope"],
        allowed: Bool[Tensor, "... T S"],
    ) -> Float[Tensor, "B n_heads T d_v"]:
        """The naive form: every head's own keys and values, made from what the heads share."""
        both = self.packed_kv(latent).view(*latent.shape[:2], self.n_heads, self.d_nope + self.d_v).transpose(1, 2)
        k_plain, v = both.split([self.d_nope, self.d_v], dim=-1)
        k = torch.cat([k_plain, k_rope[:, None].expand(-1, self.n_heads, -1, -1)], dim=-1)
        return scaled_dot_product_attention(q, k, v, allowed)[0]

    def absorbed_mixture(
        self,
        q: Float[Tensor, "B n_heads T d_head"],
        latent: Float[Tensor, "B S d_latent"],
        k_rope: Float[Tensor, "B S d_rope"],
        allowed: Bool[Tensor, "... T S"],
    ) -> Float[Tensor, "B n_heads T d_v"]:
        """Multi-query attention over the latents: `(W_k c) . q = c . (W_k^T q)`, and W_v goes behind the mixture."""
        to_keys_and_values = self.up.weight.view(self.n_heads, self.d_nope + self.d_v, self.d_latent)
        to_key, to_value = to_keys_and_values.split([self.d_nope, self.d_v], dim=1)
        plain, rope = self.parts(q)
        q = torch.cat([plain @ to_key, rope], dim=-1) * math.sqrt(self.d_compressed / self.d_head)
        k = torch.cat([latent, k_rope], dim=-1)
        mixture, _ = scaled_dot_product_attention(q, k[:, None], latent[:, None], allowed)
        return mixture.to(to_value.dtype) @ to_value.transpose(1, 2)

    def packed_kv(self, latent: Float[Tensor, "B S d_latent"]) -> Float[Tensor, "B S d_kv"]:
        return self.up(latent)

    def merge_heads(self, z: Float[Tensor, "B n_heads T d_v"]) -> Float[Tensor, "B T d_mixture"]:
        return z.transpose(1, 2).flatten(2)
