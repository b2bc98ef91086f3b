"""Switch Transformer: T5 in which every other feed-forward layer is one of many experts, chosen by token (notes, 5).

>>> import torch
>>> source, ids = torch.zeros(2, 7, dtype=torch.int64), torch.zeros(2, 5, dtype=torch.int64)
>>> toy()(source, ids).shape
torch.Size([2, 5, 103])

One expert per token is enough to learn a router: its output is multiplied by its probability, which has a gradient. An
expert takes no more than `capacity` tokens of a sequence, the first ones; the others skip the layer. Dropout and the
noise that training puts on the router's input are left out.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn as nn
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .cache import Cache
from .embeddings import TokenEmbedding
from .experts import MixtureOfExperts, packed
from .routing import Router
from .t5 import Decoder, Encoder, T5Config, feed_forward


@dataclass(frozen=True, slots=True)
class SwitchConfig:
    """The sizes of a model."""

    t5: T5Config  # everything but the experts
    n_experts: int  # experts in a layer that has them, each as large as the layer it replaces
    capacity: int | None = 64  # tokens of a sequence that an expert takes; None: all that come
    encoder_step: int = 2  # the second of so many encoder blocks has experts; 1: all of them
    decoder_step: int = 2  # the same for the decoder
    router_bias: bool = False  # whether the router's scores have one

    @property
    def tied(self) -> bool:
        """Whether the logits come from the embedding table."""
        return self.t5.tied


SWITCH_BASE_8 = SwitchConfig(
    T5Config(vocab=32128, d_model=768, d_head=64, d_ff=3072, n_heads=12, n_encoder_layers=12, n_decoder_layers=12),
    n_experts=8,
)


class ReLUExperts(nn.Module):
    """Two-layer networks without biases, all of them in two parameters."""

    def __init__(self, *, n_experts: int, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.n_experts = n_experts
        self.d_model = d_model
        self.d_ff = d_ff
        self.up = packed(n_experts, d_model, d_ff)
        self.down = packed(n_experts, d_ff, d_model)

    def forward(self, x: Float[Tensor, "n_routed d_model"], expert: int) -> Float[Tensor, "n_routed d_model"]:
        up, down = self.matrices(expert)
        return torch.relu(x @ up) @ down

    def matrices(self, expert: int) -> tuple[Float[Tensor, "d_model d_ff"], Float[Tensor, "d_ff d_model"]]:
        return self.up[expert], self.down[expert]


def has_experts(layer: int, step: int) -> bool:
    """Whether the block of this number has experts.

    >>> [layer for layer in range(8) if has_experts(layer, step=2)]
    [1, 3, 5, 7]
    """
    return step == 1 or layer % step == 1


def networks(config: SwitchConfig, n_layers: int, step: int) -> list[nn.Module]:
    """The feed-forward layers of one stack."""
    return [experts(config) if has_experts(layer, step) else feed_forward(config.t5) for layer in range(n_layers)]


def experts(config: SwitchConfig) -> MixtureOfExperts:
    d_model = config.t5.d_model
    router = Router(d_model=d_model, n_experts=config.n_experts, top_k=1, renormalised=False, bias=config.router_bias)
    return MixtureOfExperts(
        router, ReLUExperts(n_experts=config.n_experts, d_model=d_model, d_ff=config.t5.d_ff), capacity=config.capacity
    )


class Switch(nn.Module):
    """Source ids and the target's ids so far in, logits of the target's next ids out."""

    def __init__(self, config: SwitchConfig) -> None:
        super().__init__()
        t5 = config.t5
        self.config = config
        self.d_model = t5.d_model
        self.vocab = t5.vocab
        self.tokens = TokenEmbedding(t5.vocab, t5.d_model)
        self.encoder = Encoder(t5, networks(config, t5.n_encoder_layers, config.encoder_step))
        self.decoder = Decoder(t5, networks(config, t5.n_decoder_layers, config.decoder_step))
        self.head = None if t5.tied else nn.Linear(t5.d_model, t5.vocab, bias=False)

    def forward(
        self,
        source: Int[Tensor, "B S"],
        ids: Int[Tensor, "B T"],
        *,
        source_valid: Bool[Tensor, "B S"] | None = None,
        valid: Bool[Tensor, "B R"] | None = None,
    ) -> Float[Tensor, "B T vocab"]:
        """Both at once, as in training; `ids` starts with a token that begins a sequence."""
        return self.reading(source, source_valid=source_valid)(ids, valid=valid)

    def reading(
        self, source: Int[Tensor, "B S"], *, source_valid: Bool[Tensor, "B S"] | None = None
    ) -> Callable[..., Float[Tensor, "B T vocab"]]:
        """Encode the source once; the function given back, `(ids, *, valid, cache)` to logits, decodes."""
        memory = self.encoder(self.tokens(source), valid=source_valid)
        return partial(self.decode, memory=memory, source_valid=source_valid)

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
        if self.config.t5.scaled:
            x = x / math.sqrt(self.d_model)
        return F.linear(x, self.tokens.table.weight) if self.head is None else self.head(x)


def toy(*, capacity: int | None = 64, n_experts: int = 4) -> Switch:
    """A tiny Switch whose sizes differ."""
    sizes = {"vocab": 103, "d_model": 29, "d_head": 5, "d_ff": 37, "n_heads": 3, "n_buckets": 14, "max_distance": 19}
    t5 = T5Config(**sizes, n_encoder_layers=2, n_decoder_layers=2)
    return Switch(SwitchConfig(t5, n_experts=n_experts, capacity=capacity))
