"""A small decoder-only language model: token ids in, logits of the next token out (sections 13-15).

>>> toy()(torch.zeros(2, 5, dtype=torch.int64)).shape
torch.Size([2, 5, 100])

In reading order: embeddings, attention, feed-forward layer, block, model. A linear layer knows numbers and no names, so
each one stands right behind a signature that names the width it gives.
"""

from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from .attention import scaled_dot_product_attention
from .masks import causal_allowed


@dataclass(frozen=True, slots=True)
class GPTConfig:
    """The sizes of a model."""

    vocab: int  # token ids run from 0 to vocab - 1
    max_len: int  # the longest sequence: rows of the table of positions
    d_model: int  # width of the residual stream
    n_heads: int  # attention heads per block; divides d_model
    d_ff: int  # hidden width of the feed-forward layer
    n_layers: int  # decoder blocks


class TokenEmbedding(nn.Module):
    """One learned vector per token id."""

    def __init__(self, vocab: int, d_model: int) -> None:
        super().__init__()
        self.vocab = vocab
        self.d_model = d_model
        self.table = nn.Embedding(vocab, d_model)

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T d_model"]:
        return self.table(ids)


class LearnedPositions(nn.Module):
    """One learned vector per position, the same for every sequence of the batch."""

    def __init__(self, max_len: int, d_model: int) -> None:
        super().__init__()
        self.max_len = max_len
        self.d_model = d_model
        self.table = nn.Embedding(max_len, d_model)

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "T d_model"]:
        t = ids.shape[1]
        if t > self.max_len:
            raise ValueError(f"a sequence of {t} tokens is longer than max_len = {self.max_len}")
        return self.table(torch.arange(t, device=ids.device))


class MultiHeadSelfAttention(nn.Module):
    """Each head projects the whole of x and mixes the positions that it may read; the mixtures are projected back."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        if any(isinstance(n, bool) or n <= 0 for n in (d_model, n_heads)):
            raise ValueError(f"d_model and n_heads must be positive integers, got {d_model} and {n_heads}")
        if d_model % n_heads != 0:
            raise ValueError(f"d_model must be divisible by n_heads, got {d_model} and {n_heads}")
        self.d_model = d_model
        self.n_heads = n_heads
        self.d_head = d_model // n_heads
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.out = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x: Float[Tensor, "B T d_model"], *, causal: bool = True) -> Float[Tensor, "B T d_model"]:
        t = x.shape[1]
        q, k, v = (self.split_heads(part) for part in self.packed_qkv(x).chunk(3, dim=-1))
        allowed = causal_allowed(t, t, device=x.device) if causal else None
        mixture, _ = scaled_dot_product_attention(q, k, v, allowed)
        return self.out(self.merge_heads(mixture).to(x.dtype))

    def packed_qkv(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T 3*d_model"]:
        return self.qkv(x)

    def split_heads(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B n_heads T d_head"]:
        b, t, _ = x.shape
        return x.view(b, t, self.n_heads, self.d_head).transpose(1, 2)

    def merge_heads(self, z: Float[Tensor, "B n_heads T d_head"]) -> Float[Tensor, "B T d_model"]:
        b, _, t, _ = z.shape
        return z.transpose(1, 2).reshape(b, t, self.d_model)


class FeedForward(nn.Module):
    """The same two-layer network at every position: no position sees another."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.d_model = d_model
        self.d_ff = d_ff
        self.up = nn.Linear(d_model, d_ff)
        self.down = nn.Linear(d_ff, d_model)

    def forward(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_model"]:
        return self.down(F.gelu(self.hidden(x)))

    def hidden(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_ff"]:
        return self.up(x)


class DecoderBlock(nn.Module):
    """Two updates of the residual stream, each of a normalised copy of it (pre-norm, section 8.3)."""

    def __init__(self, d_model: int, n_heads: int, d_ff: int) -> None:
        super().__init__()
        self.ln1 = nn.LayerNorm(d_model)
        self.attn = MultiHeadSelfAttention(d_model, n_heads)
        self.ln2 = nn.LayerNorm(d_model)
        self.ffn = FeedForward(d_model, d_ff)

    def forward(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_model"]:
        x = x + self.attn(self.ln1(x), causal=True)
        x = x + self.ffn(self.ln2(x))
        return x


class GPT(nn.Module):
    """Embeddings, a stack of decoder blocks, a last norm, and one logit per token of the vocabulary (section 10.2)."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.vocab = config.vocab
        self.tokens = TokenEmbedding(config.vocab, config.d_model)
        self.positions = LearnedPositions(config.max_len, config.d_model)
        self.blocks = nn.ModuleList(
            DecoderBlock(config.d_model, config.n_heads, config.d_ff) for _ in range(config.n_layers)
        )
        self.norm = nn.LayerNorm(config.d_model)
        self.head = nn.Linear(config.d_model, config.vocab)

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T vocab"]:
        x = self.tokens(ids) + self.positions(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def toy(
    *, vocab: int = 100, max_len: int = 64, d_model: int = 32, n_heads: int = 4, d_ff: int = 128, n_layers: int = 2
) -> GPT:
    """The model of section 15's shape table; a keyword changes one of its sizes."""
    return GPT(GPTConfig(vocab=vocab, max_len=max_len, d_model=d_model, n_heads=n_heads, d_ff=d_ff, n_layers=n_layers))
