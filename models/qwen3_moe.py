"""Qwen3 with experts: 128 small ones per block, eight per token, none of them shared (notes, section 5).

>>> import torch
>>> toy()(torch.zeros(2, 5, dtype=torch.int64)).shape
torch.Size([2, 5, 97])

The names say it: 30B-A3B has 30 billion parameters, of which 3 are active for a token.
"""

from dataclasses import dataclass, replace
from itertools import repeat

import torch.nn as nn
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .cache import Cache
from .embeddings import TokenEmbedding
from .experts import MixtureOfExperts, SwiGLUExperts
from .grouped import GroupedQueryAttention
from .llama import DecoderBlock
from .norms import RMSNorm
from .rope import Rotary, Scaling, token_positions
from .routing import Router
from .swiglu import SwiGLU


@dataclass(frozen=True, slots=True)
class Qwen3MoeConfig:
    """The sizes of a model."""

    vocab: int  # token ids run from 0 to vocab - 1
    d_model: int  # width of the residual stream
    n_heads: int  # query heads per block
    n_kv_heads: int  # key and value heads per block; divides n_heads
    d_head: int  # width of a head, even
    d_expert: int  # hidden width of an expert
    n_experts: int  # experts per block
    top_k: int  # of them for each token
    n_layers: int  # decoder blocks
    renormalised: bool = True  # the weights of a token's experts sum to 1
    dense_layers: tuple[int, ...] = ()  # blocks that have one network instead of experts
    d_ff: int = 0  # hidden width of that one
    norm_eps: float = 1e-6  # what RMSNorm adds to the mean square
    base: float = 1000000.0  # of the rotary frequencies
    scaling: Scaling | None = None  # of the same, for longer texts
    tied: bool = False  # the vocabulary head is the embedding table


QWEN3_30B_A3B = Qwen3MoeConfig(
    vocab=151936,
    d_model=2048,
    n_heads=32,
    n_kv_heads=4,
    d_head=128,
    d_expert=768,
    n_experts=128,
    top_k=8,
    n_layers=48,
)
QWEN3_235B_A22B = replace(QWEN3_30B_A3B, d_model=4096, n_heads=64, d_expert=1536, n_layers=94)
TOY = Qwen3MoeConfig(
    vocab=97, d_model=42, n_heads=6, n_kv_heads=2, d_head=10, d_expert=29, n_experts=7, top_k=3, n_layers=2, d_ff=53
)


class Qwen3Moe(nn.Module):
    """Llama's stack, with norms in every attention and experts in (nearly) every block."""

    def __init__(self, config: Qwen3MoeConfig) -> None:
        super().__init__()
        self.config = config
        self.vocab = config.vocab
        self.tokens = TokenEmbedding(config.vocab, config.d_model)
        self.rotary = Rotary(config.d_head, base=config.base, scaling=config.scaling)
        self.blocks = nn.ModuleList(self.block(layer) for layer in range(config.n_layers))
        self.norm = RMSNorm(config.d_model, eps=config.norm_eps)
        self.head = nn.Linear(config.d_model, config.vocab, bias=False)
        if config.tied:
            self.head.weight = self.tokens.table.weight

    def block(self, layer: int) -> DecoderBlock:
        config = self.config
        attn = GroupedQueryAttention(
            d_model=config.d_model,
            n_heads=config.n_heads,
            n_kv_heads=config.n_kv_heads,
            d_head=config.d_head,
            norm_eps=config.norm_eps,
        )
        ffn = SwiGLU(config.d_model, config.d_ff) if layer in config.dense_layers else self.experts()
        return DecoderBlock(attn, ffn, d_model=config.d_model, norm_eps=config.norm_eps)

    def experts(self) -> MixtureOfExperts:
        config = self.config
        router = Router(
            d_model=config.d_model,
            n_experts=config.n_experts,
            top_k=config.top_k,
            renormalised=config.renormalised,
        )
        experts = SwiGLUExperts(n_experts=config.n_experts, d_model=config.d_model, d_expert=config.d_expert)
        return MixtureOfExperts(router, experts)

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


def toy(**changes: object) -> Qwen3Moe:
    """A tiny instance; a keyword changes one field of its config."""
    return Qwen3Moe(replace(TOY, **changes))
