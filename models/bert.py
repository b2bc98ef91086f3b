"""BERT: an encoder that reads both ways, and the two tasks that it learns from.

>>> model = toy()
>>> hidden, pooled = model(torch.zeros(2, 5, dtype=torch.int64))
>>> hidden.shape, pooled.shape
(torch.Size([2, 5, 33]), torch.Size([2, 33]))

Each position is a token, a place, and a segment (the first or the second sentence of a pair); the blocks are post-norm
with biases and GELU. `Bert` has no head. `BertForPretraining` adds both: the masked tokens, and whether the second
sentence follows the first. `BertForMaskedTokens` has the first head alone. Dropout is left out.
"""

from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .embeddings import TokenEmbedding
from .feed_forward import ACTIVATIONS, Activation, FeedForward
from .gpt import LearnedPositions, MultiHeadSelfAttention


@dataclass(frozen=True, slots=True)
class BertConfig:
    """The sizes of a model."""

    vocab: int  # token ids run from 0 to vocab - 1
    max_len: int  # the longest sequence: rows of the table of positions
    n_segments: int  # sentences that one sequence may hold
    d_model: int  # width of the residual stream
    n_heads: int  # attention heads per block; divides d_model
    d_ff: int  # hidden width of the feed-forward layer
    n_layers: int  # encoder blocks
    activation: Activation = "gelu"  # of the feed-forward layers and of the head for masked tokens
    eps: float = 1e-12  # added to the variance that a norm divides by


BERT_BASE = BertConfig(vocab=30522, max_len=512, n_segments=2, d_model=768, n_heads=12, d_ff=3072, n_layers=12)
BERT_LARGE = BertConfig(vocab=30522, max_len=512, n_segments=2, d_model=1024, n_heads=16, d_ff=4096, n_layers=24)


class SegmentEmbedding(nn.Module):
    """One learned vector for each sentence of a pair."""

    def __init__(self, n_segments: int, d_model: int) -> None:
        super().__init__()
        self.n_segments = n_segments
        self.d_model = d_model
        self.table = nn.Embedding(n_segments, d_model)

    def forward(self, segments: Int[Tensor, "B T"]) -> Float[Tensor, "B T d_model"]:
        return self.table(segments)


class EncoderBlock(nn.Module):
    """Attention both ways, then the feed-forward layer; each sum is normalised afterwards (post-norm, section 8.2)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.attn = MultiHeadSelfAttention(config.d_model, config.n_heads, bias=True)
        self.ln1 = nn.LayerNorm(config.d_model, eps=config.eps)
        self.ffn = FeedForward(config.d_model, config.d_ff, activation=config.activation)
        self.ln2 = nn.LayerNorm(config.d_model, eps=config.eps)

    def forward(
        self, x: Float[Tensor, "B T d_model"], *, valid: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T d_model"]:
        x = self.ln1(x + self.attn(x, causal=False, valid=valid))
        x = self.ln2(x + self.ffn(x))
        return x


class Encoder(nn.Module):
    """Embeddings, normalised, and a stack of encoder blocks."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = TokenEmbedding(config.vocab, config.d_model)
        self.positions = LearnedPositions(config.max_len, config.d_model)
        self.segments = SegmentEmbedding(config.n_segments, config.d_model)
        self.norm = nn.LayerNorm(config.d_model, eps=config.eps)
        self.blocks = nn.ModuleList(EncoderBlock(config) for _ in range(config.n_layers))
        for embedding in (self.tokens, self.positions, self.segments):
            nn.init.normal_(embedding.table.weight, std=0.02)  # the head for masked tokens shares the first

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        segments: Int[Tensor, "B T"] | None = None,
        valid: Bool[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T d_model"]:
        """`segments` says which sentence each token is of (all of the first by default), `valid` what is no padding."""
        if segments is None:
            segments = torch.zeros_like(ids)
        x = self.norm(self.tokens(ids) + self.positions(ids) + self.segments(segments))
        for block in self.blocks:
            x = block(x, valid=valid)
        return x


class Pooler(nn.Module):
    """The first position, which holds a token made for it, as a summary of the sequence."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model
        self.dense = nn.Linear(d_model, d_model)

    def forward(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B d_model"]:
        return torch.tanh(self.dense(x[:, 0]))


class MaskedTokenHead(nn.Module):
    """A logit per token of the vocabulary at each position; the embedding table is handed in, as its weights are it."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.vocab = config.vocab
        self.d_model = config.d_model
        self.dense = nn.Linear(config.d_model, config.d_model)
        self.activation = ACTIVATIONS[config.activation]
        self.norm = nn.LayerNorm(config.d_model, eps=config.eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab))

    def forward(
        self, x: Float[Tensor, "B T d_model"], table: Float[Tensor, "vocab d_model"]
    ) -> Float[Tensor, "B T vocab"]:
        return F.linear(self.norm(self.activation(self.hidden(x))), table, self.bias)

    def hidden(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_model"]:
        return self.dense(x)


class NextSentenceHead(nn.Module):
    """Two logits per pair of sentences: that the second follows the first, and that it is any other."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model
        self.n_answers = 2
        self.dense = nn.Linear(d_model, self.n_answers)

    def forward(self, pooled: Float[Tensor, "B d_model"]) -> Float[Tensor, "B n_answers"]:
        return self.dense(pooled)


class Bert(nn.Module):
    """A vector for each position, and one for the sequence."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.d_model = config.d_model
        self.encoder = Encoder(config)
        self.pooler = Pooler(config.d_model)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        segments: Int[Tensor, "B T"] | None = None,
        valid: Bool[Tensor, "B T"] | None = None,
    ) -> tuple[Float[Tensor, "B T d_model"], Float[Tensor, "B d_model"]]:
        x = self.encoder(ids, segments=segments, valid=valid)
        return x, self.pooler(x)


class BertForMaskedTokens(nn.Module):
    """The encoder and the head that fills in masked tokens."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.vocab = config.vocab
        self.encoder = Encoder(config)
        self.masked = MaskedTokenHead(config)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        segments: Int[Tensor, "B T"] | None = None,
        valid: Bool[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T vocab"]:
        return self.masked(self.encoder(ids, segments=segments, valid=valid), self.encoder.tokens.table.weight)


class BertForPretraining(nn.Module):
    """BERT with both heads, as it is trained."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.vocab = config.vocab
        self.bert = Bert(config)
        self.masked = MaskedTokenHead(config)
        self.following = NextSentenceHead(config.d_model)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        segments: Int[Tensor, "B T"] | None = None,
        valid: Bool[Tensor, "B T"] | None = None,
    ) -> tuple[Float[Tensor, "B T vocab"], Float[Tensor, "B n_answers"]]:
        x, pooled = self.bert(ids, segments=segments, valid=valid)
        return self.masked(x, self.bert.encoder.tokens.table.weight), self.following(pooled)


TOY = BertConfig(vocab=107, max_len=41, n_segments=2, d_model=33, n_heads=3, d_ff=59, n_layers=2)


def toy() -> Bert:
    """A tiny BERT whose sizes differ."""
    return Bert(TOY)
