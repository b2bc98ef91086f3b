"""Mistral 7B: Llama with a sliding window, so that neither work nor cache grows with the whole text (notes, 4.3.5).

>>> import torch
>>> toy()(torch.zeros(2, 5, dtype=torch.int64)).shape
torch.Size([2, 5, 97])

A query reads the last `window` positions, itself among them. What lies further back arrives through the layers: after
n of them a position has heard of the `n * (window - 1)` before it. A cache needs `window - 1` positions of a layer:
`Cache(n_layers, window)`.
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
class MistralConfig:
    """The sizes of a model."""

    vocab: int  # token ids run from 0 to vocab - 1
    d_model: int  # width of the residual stream
    n_heads: int  # query heads per block
    n_kv_heads: int  # key and value heads per block; divides n_heads
    d_head: int  # width of a head, even
    d_ff: int  # hidden width of the feed-forward layer
    n_layers: int  # decoder blocks
    window: int | None  # positions that a query reads, its own among them; None: all before it
    norm_eps: float = 1e-5  # what RMSNorm adds to the mean square
    base: float = 10000.0  # of the rotary frequencies
    scaling: Scaling | None = None  # of the same, for longer texts
    tied: bool = False  # the vocabulary head is the embedding table


MISTRAL_7B = MistralConfig(
    vocab=32000, d_model=4096, n_heads=32, n_kv_heads=8, d_head=128, d_ff=14336, n_layers=32, window=4096
)
TOY = MistralConfig(vocab=97, d_model=42, n_heads=6, n_kv_heads=3, d_head=10, d_ff=53, n_layers=2, window=3)


class Mistral(nn.Module):
    """Llama's stack, with a window in every block."""

    def __init__(self, config: MistralConfig) -> None:
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


def toy(**changes: object) -> Mistral:
    """A tiny instance; a keyword changes one field of its config."""
    return Mistral(replace(TOY, **changes))
