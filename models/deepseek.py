"""DeepSeek-V2 and V3: latent attention, and many small experts beside some that every token shares (notes, section 5).

>>> import torch
>>> toy()(torch.zeros(2, 5, dtype=torch.int64)).shape
torch.Size([2, 5, 97])

The two differ in the router. V2: a softmax, the weights as they are, a group counts by its best expert, and losses keep
the balance. V3: sigmoids, the weights renormalised, a group counts by its two best, and a bias keeps the balance.
V3's module that predicts a second token is left out.
"""

from dataclasses import dataclass, replace
from itertools import repeat
from typing import Literal

import torch.nn as nn
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .cache import Cache
from .embeddings import TokenEmbedding
from .experts import MixtureOfExperts, SwiGLUExperts
from .latent import LatentAttention
from .llama import DecoderBlock
from .norms import RMSNorm
from .rope import Rotary, Scaling, YarnScaling, token_positions, yarn_magnitude
from .routing import Groups, Router
from .swiglu import SwiGLU


@dataclass(frozen=True, slots=True)
class DeepSeekConfig:
    """The sizes of a model."""

    vocab: int  # token ids run from 0 to vocab - 1
    d_model: int  # width of the residual stream
    n_heads: int  # attention heads per block
    d_nope: int  # width of a head's queries and keys without positions
    d_rope: int  # width of those with rotary positions, even
    d_v: int  # width of a head's values
    d_latent: int  # width of what keys and values are made from
    d_latent_q: int | None  # width of what queries are made from; None: the residual stream itself
    d_ff: int  # hidden width of the network in the first blocks, which have no experts
    d_expert: int  # hidden width of an expert
    n_experts: int  # experts per block that a router chooses from
    top_k: int  # of them for each token
    n_shared: int  # experts for every token; they are one network, so many times as wide
    n_dense_layers: int  # blocks without experts, which come first
    n_layers: int  # blocks in all
    groups: Groups | None = None  # of experts; a token may go to few groups
    scoring: Literal["softmax", "sigmoid"] = "softmax"  # V3: sigmoid
    renormalised: bool = False  # the weights of a token's experts sum to 1 (V3) before they are scaled
    balanced: bool = False  # whether a bias per expert helps in the choice (V3)
    scale: float = 1.0  # of the weights
    sharpness: float = 1.0  # of attention, where the text is longer than in training
    attention_bias: bool = False  # in the projections down to the latents and out of attention
    norm_eps: float = 1e-6  # what RMSNorm adds to the mean square
    base: float = 10000.0  # of the rotary frequencies
    scaling: Scaling | None = None  # of the same, for longer texts
    tied: bool = False  # the vocabulary head is the embedding table


LONG = YarnScaling(factor=40.0, original_max_len=4096)
DEEPSEEK_V2 = DeepSeekConfig(
    vocab=102400,
    d_model=5120,
    n_heads=128,
    d_nope=128,
    d_rope=64,
    d_v=128,
    d_latent=512,
    d_latent_q=1536,
    d_ff=12288,
    d_expert=1536,
    n_experts=160,
    top_k=6,
    n_shared=2,
    n_dense_layers=1,
    n_layers=60,
    groups=Groups(n_groups=8, top_groups=3, n_best=1),
    scale=16.0,
    sharpness=yarn_magnitude(40.0, 0.707) ** 2,
    scaling=LONG,
)
DEEPSEEK_V3 = replace(
    DEEPSEEK_V2,
    vocab=129280,
    d_model=7168,
    d_ff=18432,
    d_expert=2048,
    n_experts=256,
    top_k=8,
    n_shared=1,
    n_dense_layers=3,
    n_layers=61,
    groups=Groups(n_groups=8, top_groups=4, n_best=2),
    scoring="sigmoid",
    renormalised=True,
    balanced=True,
    scale=2.5,
    sharpness=yarn_magnitude(40.0) ** 2,
)
TOY = DeepSeekConfig(
    vocab=97,
    d_model=42,
    n_heads=5,
    d_nope=11,
    d_rope=6,
    d_v=13,
    d_latent=23,
    d_latent_q=19,
    d_ff=53,
    d_expert=29,
    n_experts=8,
    top_k=3,
    n_shared=2,
    n_dense_layers=1,
    n_layers=3,
    groups=Groups(n_groups=4, top_groups=2, n_best=1),
    scale=1.5,
)
TOY_V3 = replace(
    TOY,
    groups=Groups(n_groups=4, top_groups=3, n_best=2),
    scoring="sigmoid",
    renormalised=True,
    balanced=True,
)


class DeepSeek(nn.Module):
    """Llama's stack, with latent attention in every block and experts in all but the first."""

    def __init__(self, config: DeepSeekConfig) -> None:
        super().__init__()
        self.config = config
        self.vocab = config.vocab
        self.tokens = TokenEmbedding(config.vocab, config.d_model)
        self.rotary = Rotary(config.d_rope, base=config.base, scaling=config.scaling)
        self.blocks = nn.ModuleList(self.block(layer) for layer in range(config.n_layers))
        self.norm = RMSNorm(config.d_model, eps=config.norm_eps)
        self.head = nn.Linear(config.d_model, config.vocab, bias=False)
        if config.tied:
            self.head.weight = self.tokens.table.weight

    def block(self, layer: int) -> DecoderBlock:
        config = self.config
        attn = LatentAttention(
            d_model=config.d_model,
            n_heads=config.n_heads,
            d_nope=config.d_nope,
            d_rope=config.d_rope,
            d_v=config.d_v,
            d_latent=config.d_latent,
            d_latent_q=config.d_latent_q,
            sharpness=config.sharpness,
            bias=config.attention_bias,
        )
        ffn = SwiGLU(config.d_model, config.d_ff) if layer < config.n_dense_layers else self.experts()
        return DecoderBlock(attn, ffn, d_model=config.d_model, norm_eps=config.norm_eps)

    def experts(self) -> MixtureOfExperts:
        config = self.config
        router = Router(
            d_model=config.d_model,
            n_experts=config.n_experts,
            top_k=config.top_k,
            scoring=config.scoring,
            renormalised=config.renormalised,
            scale=config.scale,
            balanced=config.balanced,
            groups=config.groups,
        )
        experts = SwiGLUExperts(n_experts=config.n_experts, d_model=config.d_model, d_expert=config.d_expert)
        shared = SwiGLU(config.d_model, config.n_shared * config.d_expert)
        return MixtureOfExperts(router, experts, shared=shared)

    def forward(
        self, ids: Int[Tensor, "B T"], *, valid: Bool[Tensor, "B _"] | None = None, cache: Cache | None = None
    ) -> Float[Tensor, "B T vocab"]:
        """`valid` is False at padding, for every position read so far; `cache` holds those before `ids`."""
        offset = 0 if cache is None else cache.length
        rotation = self.rotary(token_positions(ids, valid=valid, offset=offset))
        x = self.tokens(ids)
        for block, layer in zip(self.blocks, repeat(None) if cache is None else cache.layers, strict=False):
            x = block(x, rotation, valid=valid, cache=layer)
        return self.head(self.norm(x))


def toy(**changes: object) -> DeepSeek:
    """A tiny V2; a keyword changes one field of its config."""
    return DeepSeek(replace(TOY, **changes))


def toy_v3(**changes: object) -> DeepSeek:
    """A tiny V3; a keyword changes one field of its config."""
    return DeepSeek(replace(TOY_V3, **changes))
