"""Mixtral 8x7B: Mistral with eight experts in the place of each feed-forward layer, two per token (notes, section 5).

>>> import torch
>>> toy()(torch.zeros(2, 5, dtype=torch.int64)).shape
torch.Size([2, 5, 97])

Only the feed-forward layers are eightfold, so it is 46.7 billion parameters and not 56, of which a token meets 12.9.
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


@dataclass(frozen=True, slots=True)
class MixtralConfig:
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
    window: int | None = None  # positions that a query reads, its own among them; None: all before it
    norm_eps: float = 1e-5  # what RMSNorm adds to the mean square
    base: float = 1000000.0  # of the rotary frequencies
    scaling: Scaling | None = None  # of the same, for longer texts
    tied: bool = False  # the vocabulary head is the embedding table


MIXTRAL_8X7B = MixtralConfig(
    vocab=32000,
    d_model=4096,
    n_heads=32,
    n_kv_heads=8,
    d_head=128,
    d_expert=14336,
    n_experts=8,
    top_k=2,
    n_layers=32,
)
TOY = MixtralConfig(
    vocab=97, d_model=42, n_heads=6, n_kv_heads=3, d_head=10, d_expert=53, n_experts=5, top_k=2, n_layers=2
)


class Mixtral(nn.Module):
    """Llama's stack, with experts in every block."""

    def __init__(self, config: MixtralConfig) -> None:
        super().__init__()
        self.config = config
        self.vocab = config.vocab
        self.tokens = TokenEmbedding(config.vocab, config.d_model)
        self.rotary = Rotary(config.d_head, base=config.base, scaling=config.scaling)
        self.blocks = nn.ModuleList(self.block() for _ in range(config.n_layers))
        self.norm = RMSNorm(config.d_model, eps=config.norm_eps)
        self.head = nn.Linear(config.d_model, config.vocab, bias=False)
        if config.tied:
            self.head.weight = self.tokens.table.weight

    def block(self) -> DecoderBlock:
        config = self.config
        attn = GroupedQueryAttention(
            d_model=config.d_model,
            n_heads=config.n_heads,
            n_kv_heads=config.n_kv_heads,
            d_head=config.d_head,
            window=config.window,
        )
        router = Router(d_model=config.d_model, n_experts=config.n_experts, top_k=config.top_k)
        experts = SwiGLUExperts(n_experts=config.n_experts, d_model=config.d_model, d_expert=config.d_expert)
        ffn = MixtureOfExperts(router, experts)
        return DecoderBlock(attn, ffn, d_model=config.d_model, norm_eps=config.norm_eps)

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


def toy(**changes: object) -> Mixtral:
    """A tiny instance; a keyword changes one field of its config."""
    return Mixtral(replace(TOY, **changes))
