"""T5: an encoder-decoder that knows no positions but the distance from query to key, a bias on the scores.

>>> model = toy()
>>> source, ids = torch.zeros(2, 7, dtype=torch.int64), torch.zeros(2, 5, dtype=torch.int64)
>>> model(source, ids).shape
torch.Size([2, 5, 103])

What it changes of 2017: pre-norm with `RMSNorm`, no biases, scores without the division by sqrt(d_head), one table for
the tokens of both sides and for the logits. Version 1.1 has a gated GELU and a head of its own. Dropout is left out.

In reading order: attention, feed-forward layer, blocks, stacks, model.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn as nn
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .attention import attention_weights
from .cache import Cache, LayerCache
from .distance_bias import DistanceBias
from .embeddings import TokenEmbedding
from .feed_forward import FeedForward
from .masks import decoder_allowed, padding_allowed
from .norms import RMSNorm


@dataclass(frozen=True, slots=True)
class T5Config:
    """The sizes of a model."""

    vocab: int  # token ids run from 0 to vocab - 1
    d_model: int  # width of the residual stream
    d_head: int  # width of one head, whatever d_model and n_heads are
    d_ff: int  # hidden width of the feed-forward layer
    n_heads: int  # attention heads per layer
    n_encoder_layers: int  # blocks that read the source
    n_decoder_layers: int  # blocks that write the target
    n_buckets: int = 32  # groups of distances, each with one bias per head
    max_distance: int = 128  # from here on all distances share the last bucket
    gated: bool = False  # whether the feed-forward layer is the gated GELU of version 1.1, or else the first one's ReLU
    tied: bool = True  # whether the logits come from the embedding table
    scaled: bool = True  # whether the last hidden states are divided by sqrt(d_model) first, as the tied ones are
    eps: float = 1e-6  # added to the mean square that a norm divides by


T5_SMALL = T5Config(vocab=32128, d_model=512, d_head=64, d_ff=2048, n_heads=8, n_encoder_layers=6, n_decoder_layers=6)


class Attention(nn.Module):
    """Queries of x on keys and values that come from x itself or from the encoder's output."""

    def __init__(self, config: T5Config) -> None:
        super().__init__()
        self.d_model = config.d_model
        self.n_heads = config.n_heads
        self.d_head = config.d_head
        self.d_attn = config.n_heads * config.d_head
        self.q = nn.Linear(self.d_model, self.d_attn, bias=False)
        self.k = nn.Linear(self.d_model, self.d_attn, bias=False)
        self.v = nn.Linear(self.d_model, self.d_attn, bias=False)
        self.out = nn.Linear(self.d_attn, self.d_model, bias=False)
        # The scores are not divided by sqrt(d_head): the queries start smaller by as much.
        nn.init.normal_(self.q.weight, std=(self.d_model * self.d_head) ** -0.5)

    def forward(
        self,
        x: Float[Tensor, "B T d_model"],
        k: Float[Tensor, "B n_heads S d_head"],
        v: Float[Tensor, "B n_heads S d_head"],
        *,
        bias: Float[Tensor, "n_heads T S"] | None = None,
        allowed: Bool[Tensor, "... #T #S"] | None = None,
    ) -> Float[Tensor, "B T d_model"]:
        scores = self.heads(self.q, x) @ k.transpose(-2, -1)
        if bias is not None:
            scores = scores + bias
        return self.out(self.merged(attention_weights(scores, allowed) @ v))

    def keys_and_values(
        self, x: Float[Tensor, "B S d_model"]
    ) -> tuple[Float[Tensor, "B n_heads S d_head"], Float[Tensor, "B n_heads S d_head"]]:
        return self.heads(self.k, x), self.heads(self.v, x)

    def heads(self, projection: nn.Linear, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B n_heads T d_head"]:
        b, t, _ = x.shape
        return self.projected(projection, x).view(b, t, self.n_heads, self.d_head).transpose(1, 2)

    def projected(self, projection: nn.Linear, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_attn"]:
        return projection(x)

    def merged(self, z: Float[Tensor, "B n_heads T d_head"]) -> Float[Tensor, "B T d_attn"]:
        b, _, t, _ = z.shape
        return z.transpose(1, 2).reshape(b, t, self.d_attn)


class GatedGELU(nn.Module):
    """`down(gelu(gate(x)) * up(x))` without biases, GELU by its tanh approximation."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.d_model = d_model
        self.d_ff = d_ff
        self.gate = nn.Linear(d_model, d_ff, bias=False)
        self.up = nn.Linear(d_model, d_ff, bias=False)
        self.down = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_model"]:
        return self.down(F.gelu(self.gates(x), approximate="tanh") * self.hidden(x))

    def gates(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_ff"]:
        return self.gate(x)

    def hidden(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_ff"]:
        return self.up(x)


def feed_forward(config: T5Config) -> nn.Module:
    """The feed-forward layer that the config asks for."""
    if config.gated:
        return GatedGELU(config.d_model, config.d_ff)
    return FeedForward(config.d_model, config.d_ff, activation="relu", bias=False)


def distance_bias(config: T5Config, *, causal: bool) -> DistanceBias:
    """The bias of one stack; it starts as small as the scores, whose queries are drawn small."""
    bias = DistanceBias(config.n_buckets, config.max_distance, config.n_heads, causal=causal)
    nn.init.normal_(bias.table.weight, std=config.d_model**-0.5)
    return bias


class EncoderBlock(nn.Module):
    """Attention over the whole source, then `ffn`, each on a normalised copy of the residual stream."""

    def __init__(self, config: T5Config, ffn: nn.Module) -> None:
        super().__init__()
        self.norm1 = RMSNorm(config.d_model, eps=config.eps)
        self.attn = Attention(config)
        self.norm2 = RMSNorm(config.d_model, eps=config.eps)
        self.ffn = ffn

    def forward(
        self,
        x: Float[Tensor, "B T d_model"],
        *,
        bias: Float[Tensor, "n_heads T T"],
        allowed: Bool[Tensor, "... #T #T"] | None = None,
    ) -> Float[Tensor, "B T d_model"]:
        normed = self.norm1(x)
        x = x + self.attn(normed, *self.attn.keys_and_values(normed), bias=bias, allowed=allowed)
        x = x + self.ffn(self.norm2(x))
        return x


class DecoderBlock(nn.Module):
    """Causal attention over the target, attention over the source without a bias, then `ffn`."""

    def __init__(self, config: T5Config, ffn: nn.Module) -> None:
        super().__init__()
        self.norm1 = RMSNorm(config.d_model, eps=config.eps)
        self.attn = Attention(config)
        self.norm2 = RMSNorm(config.d_model, eps=config.eps)
        self.cross = Attention(config)
        self.norm3 = RMSNorm(config.d_model, eps=config.eps)
        self.ffn = ffn

    def forward(
        self,
        x: Float[Tensor, "B T d_model"],
        memory: Float[Tensor, "B S d_model"],
        *,
        bias: Float[Tensor, "n_heads T R"],
        allowed: Bool[Tensor, "... T R"],
        memory_allowed: Bool[Tensor, "... #T #S"] | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B T d_model"]:
        normed = self.norm1(x)
        k, v = self.attn.keys_and_values(normed)
        if cache is not None:
            k, v = cache.extend(k, v)
        x = x + self.attn(normed, k, v, bias=bias, allowed=allowed)
        project = partial(self.cross.keys_and_values, memory)
        k, v = project() if cache is None else cache.keep(project)
        x = x + self.cross(self.norm2(x), k, v, allowed=memory_allowed)
        x = x + self.ffn(self.norm3(x))
        return x


class Encoder(nn.Module):
    """A stack of encoder blocks, one for each of `ffns`, and a last norm."""

    def __init__(self, config: T5Config, ffns: Iterable[nn.Module]) -> None:
        super().__init__()
        self.bias = distance_bias(config, causal=False)
        self.blocks = nn.ModuleList(EncoderBlock(config, ffn) for ffn in ffns)
        self.norm = RMSNorm(config.d_model, eps=config.eps)

    def forward(
        self, x: Float[Tensor, "B T d_model"], *, valid: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T d_model"]:
        positions = torch.arange(x.shape[1], device=x.device)
        bias = self.bias(positions, positions)
        allowed = None if valid is None else padding_allowed(valid)
        for block in self.blocks:
            x = block(x, bias=bias, allowed=allowed)
        return self.norm(x)


class Decoder(nn.Module):
    """A stack of decoder blocks, one for each of `ffns`, and a last norm; R counts the target's positions so far."""

    def __init__(self, config: T5Config, ffns: Iterable[nn.Module]) -> None:
        super().__init__()
        self.bias = distance_bias(config, causal=True)
        self.blocks = nn.ModuleList(DecoderBlock(config, ffn) for ffn in ffns)
        self.norm = RMSNorm(config.d_model, eps=config.eps)

    def forward(
        self,
        x: Float[Tensor, "B T d_model"],
        memory: Float[Tensor, "B S d_model"],
        *,
        source_valid: Bool[Tensor, "B S"] | None = None,
        valid: Bool[Tensor, "B R"] | None = None,
        cache: Cache | None = None,
    ) -> Float[Tensor, "B T d_model"]:
        t = x.shape[1]
        offset = 0 if cache is None else cache.length
        layers = [None] * len(self.blocks) if cache is None else cache.layers
        bias = self.bias(torch.arange(offset, offset + t, device=x.device), torch.arange(offset + t, device=x.device))
        allowed = decoder_allowed(t, offset + t, valid=valid, query_offset=offset, device=x.device)
        memory_allowed = None if source_valid is None else padding_allowed(source_valid)
        for block, layer in zip(self.blocks, layers, strict=True):
            x = block(x, memory, bias=bias, allowed=allowed, memory_allowed=memory_allowed, cache=layer)
        return self.norm(x)


class T5(nn.Module):
    """Source ids and the target's ids so far in, logits of the target's next ids out."""

    def __init__(self, config: T5Config) -> None:
        super().__init__()
        self.config = config
        self.d_model = config.d_model
        self.vocab = config.vocab
        self.tokens = TokenEmbedding(config.vocab, config.d_model)
        self.encoder = Encoder(config, [feed_forward(config) for _ in range(config.n_encoder_layers)])
        self.decoder = Decoder(config, [feed_forward(config) for _ in range(config.n_decoder_layers)])
        self.head = None if config.tied else nn.Linear(config.d_model, config.vocab, bias=False)

    def forward(
        self,
        source: Int[Tensor, "B S"],
        ids: Int[Tensor, "B T"],
        *,
        source_valid: Bool[Tensor, "B S"] | None = None,
        valid: Bool[Tensor, "B R"] | None = None,
    ) -> Float[Tensor, "B T vocab"]:
        """Both at once, as in training; `ids` starts with a token that begins a sequence (T5 takes the padding, 0)."""
        return self.reading(source, source_valid=source_valid)(ids, valid=valid)

    def reading(
        self, source: Int[Tensor, "B S"], *, source_valid: Bool[Tensor, "B S"] | None = None
    ) -> Callable[..., Float[Tensor, "B T vocab"]]:
        """Encode the source once; the function given back, `(ids, *, valid, cache)` to logits, decodes."""
        memory = self.encode(source, source_valid=source_valid)
        return partial(self.decode, memory=memory, source_valid=source_valid)

    def encode(
        self, source: Int[Tensor, "B S"], *, source_valid: Bool[Tensor, "B S"] | None = None
    ) -> Float[Tensor, "B S d_model"]:
        """The memory, which the decoder reads: computed once, however many tokens follow."""
        return self.encoder(self.tokens(source), valid=source_valid)

    def decode(
        self,
        ids: Int[Tensor, "B T"],
        memory: Float[Tensor, "B S d_model"],
        *,
        source_valid: Bool[Tensor, "B S"] | None = None,
        valid: Bool[Tensor, "B R"] | None = None,
        cache: Cache | None = None,
    ) -> Float[Tensor, "B T vocab"]:
        """Logits after each of `ids`, which follow on what `cache` has read; `valid` covers the whole target so far."""
        x = self.tokens(ids)
        return self.logits(self.decoder(x, memory, source_valid=source_valid, valid=valid, cache=cache))

    def logits(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T vocab"]:
        if self.config.scaled:
            x = x / math.sqrt(self.d_model)
        return F.linear(x, self.tokens.table.weight) if self.head is None else self.head(x)


def toy(*, gated: bool = False) -> T5:
    """A tiny T5 whose sizes differ; `gated` gives one of version 1.1."""
    sizes = {"vocab": 103, "d_model": 29, "d_head": 5, "d_ff": 37, "n_heads": 3, "n_buckets": 14, "max_distance": 19}
    return T5(T5Config(**sizes, n_encoder_layers=2, n_decoder_layers=2, gated=gated, tied=not gated, scaled=not gated))
