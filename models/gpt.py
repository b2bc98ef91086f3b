"""Decoder-only language models, GPT-2 among them: token ids in, logits of the next token out (sections 13-15).

>>> toy()(torch.zeros(2, 5, dtype=torch.int64)).shape
torch.Size([2, 5, 100])

The toy is the chapter's: no bias in attention and a head of its own. `GPT2_SMALL` and its larger kin add the biases,
take the logits from the embedding table, and approximate GELU by tanh; dropout, which they train with, is left out.

In reading order: positions, attention, block, model. A linear layer knows numbers and no names, so
each one stands right behind a signature that names the width it gives.
"""

from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .attention import scaled_dot_product_attention
from .cache import Cache, LayerCache
from .embeddings import TokenEmbedding
from .feed_forward import Activation, FeedForward
from .masks import decoder_allowed, padding_allowed, real_positions


@dataclass(frozen=True, slots=True)
class GPTConfig:
    """The sizes of a model."""

    vocab: int  # token ids run from 0 to vocab - 1
    max_len: int  # the longest sequence: rows of the table of positions
    d_model: int  # width of the residual stream
    n_heads: int  # attention heads per block; divides d_model
    d_ff: int  # hidden width of the feed-forward layer
    n_layers: int  # decoder blocks
    bias: bool = False  # whether the projections of attention have biases
    tied: bool = False  # whether the logits come from the embedding table, in place of a head of their own
    activation: Activation = "gelu"  # of the feed-forward layer
    eps: float = 1e-5  # added to the variance that a norm divides by


def gpt2(*, d_model: int, n_heads: int, n_layers: int) -> GPTConfig:
    """The sizes that differ from one GPT-2 to the next; the rest is common to all."""
    common = {"vocab": 50257, "max_len": 1024, "bias": True, "tied": True, "activation": "gelu_tanh"}
    return GPTConfig(d_model=d_model, n_heads=n_heads, d_ff=4 * d_model, n_layers=n_layers, **common)


GPT2_SMALL = gpt2(d_model=768, n_heads=12, n_layers=12)
GPT2_MEDIUM = gpt2(d_model=1024, n_heads=16, n_layers=24)
GPT2_LARGE = gpt2(d_model=1280, n_heads=20, n_layers=36)
GPT2_XL = gpt2(d_model=1600, n_heads=25, n_layers=48)


class LearnedPositions(nn.Module):
    """One learned vector per position, counted over the real tokens where `valid` says which they are."""

    def __init__(self, max_len: int, d_model: int) -> None:
        super().__init__()
        self.max_len = max_len
        self.d_model = d_model
        self.table = nn.Embedding(max_len, d_model)

    def forward(
        self, ids: Int[Tensor, "B T"], *, offset: int = 0, valid: Bool[Tensor, "B S"] | None = None
    ) -> Float[Tensor, "... T d_model"]:
        end = offset + ids.shape[1]
        if end > self.max_len:
            raise ValueError(f"a sequence of {end} tokens is longer than max_len = {self.max_len}")
        if valid is None:
            return self.table(torch.arange(offset, end, device=ids.device))
        return self.table(real_positions(valid)[:, offset:])


class MultiHeadSelfAttention(nn.Module):
    """Each head projects the whole of x and mixes the positions that it may read; the mixtures are projected back."""

    def __init__(self, d_model: int, n_heads: int, *, bias: bool = False) -> None:
        super().__init__()
        if any(isinstance(n, bool) or n <= 0 for n in (d_model, n_heads)):
            raise ValueError(f"d_model and n_heads must be positive integers, got {d_model} and {n_heads}")
        if d_model % n_heads != 0:
            raise ValueError(f"d_model must be divisible by n_heads, got {d_model} and {n_heads}")
        self.d_model = d_model
        self.n_heads = n_heads
        self.d_head = d_model // n_heads
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=bias)
        self.out = nn.Linear(d_model, d_model, bias=bias)

    def forward(
        self,
        x: Float[Tensor, "B T d_model"],
        *,
        causal: bool = True,
        valid: Bool[Tensor, "B S"] | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B T d_model"]:
        q, k, v = (self.split_heads(part) for part in self.packed_qkv(x).chunk(3, dim=-1))
        offset = 0
        if cache is not None:
            offset = cache.length
            k, v = cache.extend(k, v)
        if causal:
            allowed = decoder_allowed(q.shape[2], k.shape[2], valid=valid, query_offset=offset, device=x.device)
        else:
            allowed = None if valid is None else padding_allowed(valid)
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


class DecoderBlock(nn.Module):
    """Two updates of the residual stream, each of a normalised copy of it (pre-norm, section 8.3)."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_ff: int,
        *,
        bias: bool = False,
        activation: Activation = "gelu",
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        self.ln1 = nn.LayerNorm(d_model, eps=eps)
        self.attn = MultiHeadSelfAttention(d_model, n_heads, bias=bias)
        self.ln2 = nn.LayerNorm(d_model, eps=eps)
        self.ffn = FeedForward(d_model, d_ff, activation=activation)

    def forward(
        self,
        x: Float[Tensor, "B T d_model"],
        *,
        valid: Bool[Tensor, "B S"] | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B T d_model"]:
        x = x + self.attn(self.ln1(x), causal=True, valid=valid, cache=cache)
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
            DecoderBlock(
                config.d_model,
                config.n_heads,
                config.d_ff,
                bias=config.bias,
                activation=config.activation,
                eps=config.eps,
            )
            for _ in range(config.n_layers)
        )
        self.norm = nn.LayerNorm(config.d_model, eps=config.eps)
        self.head = None if config.tied else nn.Linear(config.d_model, config.vocab)
        if config.tied:  # torch's spread of 1 for a table would start the logits at a spread of sqrt(d_model)
            nn.init.normal_(self.tokens.table.weight, std=0.02)

    def forward(
        self, ids: Int[Tensor, "B T"], *, valid: Bool[Tensor, "B S"] | None = None, cache: Cache | None = None
    ) -> Float[Tensor, "B T vocab"]:
        """Logits of the token after each of `ids`, which follow on what `cache` has read.

        `valid` covers all positions read so far: True for a token, False for padding, whose own logits mean nothing.
        """
        offset = 0 if cache is None else cache.length
        layers = [None] * len(self.blocks) if cache is None else cache.layers
        x = self.tokens(ids) + self.positions(ids, offset=offset, valid=valid)
        for block, layer in zip(self.blocks, layers, strict=True):
            x = block(x, valid=valid, cache=layer)
        return self.logits(self.norm(x))

    def logits(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T vocab"]:
        """A head of its own, or the dot product with every row of the embedding table (notes, section 4.3.4)."""
        return F.linear(x, self.tokens.table.weight) if self.head is None else self.head(x)


def toy(
    *, vocab: int = 100, max_len: int = 64, d_model: int = 32, n_heads: int = 4, d_ff: int = 128, n_layers: int = 2
) -> GPT:
    """The model of section 15's shape table; a keyword changes one of its sizes."""
    return GPT(GPTConfig(vocab=vocab, max_len=max_len, d_model=d_model, n_heads=n_heads, d_ff=d_ff, n_layers=n_layers))


def toy_gpt2() -> GPT:
    """A GPT-2 in all but its sizes, which are small and differ."""
    return GPT(
        GPTConfig(
            vocab=101,
            max_len=53,
            d_model=21,
            n_heads=3,
            d_ff=37,
            n_layers=2,
            bias=True,
            tied=True,
            activation="gelu_tanh",
        )
    )
