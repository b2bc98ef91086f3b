"""Qwen3, the dense models: Llama with a norm on each head's queries and keys (notes, section 4.3.5).

>>> import torch
>>> toy()(torch.zeros(2, 5, dtype=torch.int64)).shape
torch.Size([2, 5, 97])

The norms keep the scores small however the projections grow in training. The heads are as wide as one likes: together
they need not have the width of the residual stream.
"""

from dataclasses import dataclass, replace
from itertools import repeat

import torch.nn as nn
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .cache import Cache
from .embeddings import TokenEmbedding
from .grouped import GroupedQueryAttention
from .llama import DecoderBlock
from .norms import RMSNorm
from .rope import Rotary, Scaling, token_positions
from .swiglu import SwiGLU


@dataclass(frozen=True, slots=True)
class Qwen3Config:
    """The sizes of a model."""

    vocab: int  # token ids run from 0 to vocab - 1
    d_model: int  # width of the residual stream
    n_heads: int  # query heads per block
    n_kv_heads: int  # key and value heads per block; divides n_heads
    d_head: int  # width of a head, even
    d_ff: int  # hidden width of the feed-forward layer
    n_layers: int  # decoder blocks
    norm_eps: float = 1e-6  # what RMSNorm adds to the mean square
    base: float = 1000000.0  # of the rotary frequencies
    scaling: Scaling | None = None  # of the same, for longer texts
    tied: bool = False  # the vocabulary head is the embedding table


QWEN3_8B = Qwen3Config(vocab=151936, d_model=4096, n_heads=32, n_kv_heads=8, d_head=128, d_ff=12288, n_layers=36)
TOY = Qwen3Config(vocab=97, d_model=42, n_heads=6, n_kv_heads=3, d_head=10, d_ff=53, n_layers=2)


class Qwen3(nn.Module):
    """Llama's stack, with norms in every attention."""

    def __init__(self, config: Qwen3Config) -> None:
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
            norm_eps=config.norm_eps,
        )
        ffn = SwiGLU(config.d_model, config.d_ff)
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


def toy(**changes: object) -> Qwen3:
    """A tiny instance; a keyword changes one field of its config."""
    return Qwen3(replace(TOY, **changes))
