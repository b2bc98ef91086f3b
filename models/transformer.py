"""The Transformer of 2017: an encoder reads the source, a decoder writes the target while reading it (sections 9-10).

>>> import torch
>>> model = toy()
>>> source, ids = torch.zeros(2, 7, dtype=torch.int64), torch.zeros(2, 5, dtype=torch.int64)
>>> model(source, ids).shape
torch.Size([2, 5, 101])

Configurations: `BASE` and `BIG` of the paper's table 3. An `Encoder` alone is an encoder-only model, whose layers with
a causal mask make a decoder-only one (section 16).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch.nn as nn
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .cache import Cache, LayerCache
from .embeddings import InputEmbedding, LearnedPositions, SinusoidalPositions, TokenEmbedding
from .feed_forward import Activation, FeedForward
from .masks import cross_allowed, decoder_allowed, padding_allowed
from .multi_head import MultiHeadAttention
from .residual import RESIDUALS, NormPlace


@dataclass(frozen=True, slots=True)
class TransformerConfig:
    """The sizes of a model, and the choices that 2017 left to be made otherwise."""

    vocab: int  # token ids of source and target alike run from 0 to vocab - 1
    d_model: int  # width of the residual stream
    n_heads: int  # attention heads; divides d_model
    d_ff: int  # hidden width of the feed-forward layers
    n_layers: int  # layers of the encoder, and of the decoder
    dropout: float = 0.1  # part of the sublayers' outputs and of the embeddings that training zeroes
    norm: NormPlace = "post"  # "pre" adds a last norm to each stack, for the stream itself is never normalised
    activation: Activation = "relu"  # of the feed-forward layers
    max_len: int | None = None  # rows of a learned table of positions; None = sinusoidal, without a limit
    tied: bool = True  # one matrix embeds source and target and gives the logits, which then have no bias


BASE = TransformerConfig(vocab=37_000, d_model=512, n_heads=8, d_ff=2048, n_layers=6)
BIG = TransformerConfig(vocab=37_000, d_model=1024, n_heads=16, d_ff=4096, n_layers=6, dropout=0.3)


class EncoderLayer(nn.Module):
    """Every position reads every other, then each is transformed on its own (section 9)."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_ff: int,
        *,
        dropout: float = 0.1,
        norm: NormPlace = "post",
        activation: Activation = "relu",
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.d_model = d_model
        self.attention = MultiHeadAttention(d_model, n_heads, bias=bias)
        self.attention_residual = RESIDUALS[norm](d_model, dropout=dropout)
        self.ffn = FeedForward(d_model, d_ff, activation=activation, bias=bias)
        self.ffn_residual = RESIDUALS[norm](d_model, dropout=dropout)

    def forward(
        self, x: Float[Tensor, "B T d_model"], *, allowed: Bool[Tensor, "... #T #T"] | None = None
    ) -> Float[Tensor, "B T d_model"]:
        x = self.attention_residual(x, lambda h: self.attention(h, allowed=allowed))
        return self.ffn_residual(x, self.ffn)


class DecoderLayer(nn.Module):
    """Read the target so far, then the source, then transform each position on its own (section 10)."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_ff: int,
        *,
        dropout: float = 0.1,
        norm: NormPlace = "post",
        activation: Activation = "relu",
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.d_model = d_model
        self.attention = MultiHeadAttention(d_model, n_heads, bias=bias)
        self.attention_residual = RESIDUALS[norm](d_model, dropout=dropout)
        self.cross = MultiHeadAttention(d_model, n_heads, bias=bias)
        self.cross_residual = RESIDUALS[norm](d_model, dropout=dropout)
        self.ffn = FeedForward(d_model, d_ff, activation=activation, bias=bias)
        self.ffn_residual = RESIDUALS[norm](d_model, dropout=dropout)

    def forward(
        self,
        x: Float[Tensor, "B T d_model"],
        memory: Float[Tensor, "B S d_model"],
        *,
        allowed: Bool[Tensor, "... #T _"] | None = None,
        memory_allowed: Bool[Tensor, "... #T #S"] | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B T d_model"]:
        x = self.attention_residual(x, lambda h: self.attention(h, allowed=allowed, cache=cache))
        x = self.cross_residual(x, lambda h: self.cross(h, memory, allowed=memory_allowed, cache=cache))
        return self.ffn_residual(x, self.ffn)


class Encoder(nn.Module):
    """Source ids to one contextual vector per position: the memory that the decoder reads."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.d_model = config.d_model
        self.embedding = input_embedding(config)
        self.layers = nn.ModuleList(EncoderLayer(**layer_sizes(config)) for _ in range(config.n_layers))
        self.norm = last_norm(config)

    def forward(
        self, source: Int[Tensor, "B S"], *, source_valid: Bool[Tensor, "B S"] | None = None
    ) -> Float[Tensor, "B S d_model"]:
        """Nothing is hidden but padding, False in `source_valid` (section 5.3)."""
        allowed = None if source_valid is None else padding_allowed(source_valid)
        x = self.embedding(source, valid=source_valid)
        for layer in self.layers:
            x = layer(x, allowed=allowed)
        return self.norm(x)


class Decoder(nn.Module):
    """The target so far, and the memory, to one vector per target position."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.d_model = config.d_model
        self.embedding = input_embedding(config)
        self.layers = nn.ModuleList(DecoderLayer(**layer_sizes(config)) for _ in range(config.n_layers))
        self.norm = last_norm(config)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        memory: Float[Tensor, "B S d_model"],
        *,
        source_valid: Bool[Tensor, "B S"] | None = None,
        valid: Bool[Tensor, "B R"] | None = None,
        cache: Cache | None = None,
    ) -> Float[Tensor, "B T d_model"]:
        """`valid` covers all R target positions read so far: those that the cache holds, and `ids`."""
        t, offset = ids.shape[1], 0 if cache is None else cache.length
        allowed = decoder_allowed(t, offset + t, valid=valid, query_offset=offset, device=ids.device)
        x = self.embedding(ids, valid=valid, offset=offset)
        memory_allowed = None if source_valid is None else cross_allowed(source_valid, t)
        caches = [None] * len(self.layers) if cache is None else cache.layers
        for layer, layer_cache in zip(self.layers, caches, strict=True):
            x = layer(x, memory, allowed=allowed, memory_allowed=memory_allowed, cache=layer_cache)
        return self.norm(x)


class Transformer(nn.Module):
    """Encoder, decoder, and one logit per token of the vocabulary at every target position (section 10.2)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.vocab = config.vocab
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self.head = nn.Linear(config.d_model, config.vocab, bias=not config.tied)
        if config.tied:
            self.decoder.embedding.tokens = self.encoder.embedding.tokens
            self.head.weight = self.encoder.embedding.tokens.table.weight

    def forward(
        self,
        source: Int[Tensor, "B S"],
        ids: Int[Tensor, "B T"],
        *,
        source_valid: Bool[Tensor, "B S"] | None = None,
        valid: Bool[Tensor, "B R"] | None = None,
    ) -> Float[Tensor, "B T vocab"]:
        """Teacher forcing: all target positions at once, each with the logits of the token that follows it."""
        memory = self.encoder(source, source_valid=source_valid)
        return self.head(self.decoder(ids, memory, source_valid=source_valid, valid=valid))

    def reading(
        self, source: Int[Tensor, "B S"], *, source_valid: Bool[Tensor, "B S"] | None = None
    ) -> Callable[..., Float[Tensor, "B T vocab"]]:
        """Encode the source once; the function given back, `(ids, *, valid, cache)` to logits, decodes (section 12)."""
        memory = self.encoder(source, source_valid=source_valid)

        def decode(
            ids: Int[Tensor, "B T"], *, valid: Bool[Tensor, "B R"] | None = None, cache: Cache | None = None
        ) -> Float[Tensor, "B T vocab"]:
            return self.head(self.decoder(ids, memory, source_valid=source_valid, valid=valid, cache=cache))

        return decode


def layer_sizes(config: TransformerConfig) -> dict[str, int | float | str]:
    """The arguments of one layer of either stack."""
    names = ("d_model", "n_heads", "d_ff", "dropout", "norm", "activation")
    return {name: getattr(config, name) for name in names}


def input_embedding(config: TransformerConfig) -> InputEmbedding:
    """Scaled tokens plus sinusoidal positions as in 2017, or plus a learned table."""
    tokens = TokenEmbedding(config.vocab, config.d_model, scaled=True)
    if config.max_len is None:
        return InputEmbedding(tokens, SinusoidalPositions(config.d_model), config.dropout)
    return InputEmbedding(tokens, LearnedPositions(config.max_len, config.d_model), config.dropout)


def last_norm(config: TransformerConfig) -> nn.Module:
    """Post-norm layers end in a norm; after pre-norm ones the stack needs it."""
    return nn.LayerNorm(config.d_model) if config.norm == "pre" else nn.Identity()


def toy(
    *,
    vocab: int = 101,
    d_model: int = 22,
    n_heads: int = 2,
    d_ff: int = 37,
    n_layers: int = 2,
    norm: NormPlace = "post",
    max_len: int | None = None,
    tied: bool = True,
) -> Transformer:
    """A tiny model without dropout; a keyword changes one of its sizes or choices."""
    config = TransformerConfig(
        vocab, d_model, n_heads, d_ff, n_layers, dropout=0.0, norm=norm, max_len=max_len, tied=tied
    )
    return Transformer(config)
