"""Llama 2 and 3: the decoder that most open models are variations of (notes, section 4.3.5).

>>> import torch
>>> toy()(torch.zeros(2, 5, dtype=torch.int64)).shape
torch.Size([2, 5, 97])

What changed since GPT-2: RMSNorm for LayerNorm, rotary positions for a table of them, SwiGLU for the two-layer network,
shared key heads (in the larger models), and no biases.
"""

from dataclasses import dataclass, replace
from itertools import repeat

import torch.nn as nn
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .cache import Cache, LayerCache
from .embeddings import TokenEmbedding
from .grouped import GroupedQueryAttention
from .norms import RMSNorm
from .rope import Rotary, Rotation, Scaling, token_positions
from .swiglu import SwiGLU


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """The sizes of a model."""

    vocab: int  # token ids run from 0 to vocab - 1
    d_model: int  # width of the residual stream
    n_heads: int  # query heads per block
    n_kv_heads: int  # key and value heads per block; divides n_heads
    d_head: int  # width of a head, even
    d_ff: int  # hidden width of the feed-forward layer
    n_layers: int  # decoder blocks
    norm_eps: float = 1e-5  # what RMSNorm adds to the mean square
    base: float = 10000.0  # of the rotary frequencies
    scaling: Scaling | None = None  # of the same, for longer texts
    tied: bool = False  # the vocabulary head is the embedding table


LLAMA_2_7B = LlamaConfig(vocab=32000, d_model=4096, n_heads=32, n_kv_heads=32, d_head=128, d_ff=11008, n_layers=32)
LLAMA_3_8B = LlamaConfig(
    vocab=128256, d_model=4096, n_heads=32, n_kv_heads=8, d_head=128, d_ff=14336, n_layers=32, base=500000.0
)
LLAMA_3_70B = replace(LLAMA_3_8B, d_model=8192, n_heads=64, d_ff=28672, n_layers=80)
TOY = LlamaConfig(vocab=97, d_model=42, n_heads=6, n_kv_heads=3, d_head=10, d_ff=53, n_layers=2)


class DecoderBlock(nn.Module):
    """Two updates of the residual stream, each of a normalised copy of it; attention and network are the caller's."""

    def __init__(self, attn: nn.Module, ffn: nn.Module, *, d_model: int, norm_eps: float) -> None:
        super().__init__()
        self.d_model = d_model
        self.norm1 = RMSNorm(d_model, eps=norm_eps)
        self.attn = attn
        self.norm2 = RMSNorm(d_model, eps=norm_eps)
        self.ffn = ffn

    def forward(
        self,
        x: Float[Tensor, "B T d_model"],
        rotation: Rotation,
        *,
        valid: Bool[Tensor, "B _"] | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B T d_model"]:
        x = x + self.attn(self.norm1(x), rotation, valid=valid, cache=cache)
        x = x + self.ffn(self.norm2(x))
        return x


class Llama(nn.Module):
    """Embedding, decoder blocks, a last norm, and one logit per token of the vocabulary."""

    def __init__(self, config: LlamaConfig) -> None:
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
            d_model=config.d_model, n_heads=config.n_heads, n_kv_heads=config.n_kv_heads, d_head=config.d_head
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


def toy(**changes: object) -> Llama:
    """A tiny instance; a keyword changes one field of its config."""
    return Llama(replace(TOY, **changes))
