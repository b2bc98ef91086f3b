"""Sequence to sequence before the Transformer: one recurrent network reads, another writes (notes, section 1.3).

>>> toy()(torch.zeros(2, 7, dtype=torch.int64), torch.zeros(2, 5, dtype=torch.int64)).shape
torch.Size([2, 5, 103])

Without attention all of the source must fit into the last state of the reader, however long it is. With attention each
step of the writer looks at every state of the reader and takes a mixture of them.
"""

from dataclasses import dataclass

import torch
import torch.nn as nn
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .attention import attention_weights
from .embeddings import TokenEmbedding


@dataclass(frozen=True, slots=True)
class RecurrentConfig:
    """The sizes of a model."""

    vocab: int  # token ids run from 0 to vocab - 1
    d_model: int  # width of embeddings and of states
    attention: bool = True  # whether the writer looks at all states of the reader, or at the last alone


class Reader(nn.Module):
    """Source ids to one state per position; a state knows what came before it and nothing after."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.d_model = config.d_model
        self.tokens = TokenEmbedding(config.vocab, config.d_model)
        self.recurrence = nn.GRU(config.d_model, config.d_model, batch_first=True)

    def forward(self, source: Int[Tensor, "B S"]) -> Float[Tensor, "B S d_model"]:
        x = self.tokens(source)
        states, _ = self.recurrence(x, x.new_zeros(1, x.shape[0], self.d_model))
        return states


class Glance(nn.Module):
    """A mixture of the reader's states for each of the writer's, weighted by how well the two match."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model
        self.match = nn.Linear(d_model, d_model, bias=False)

    def forward(
        self,
        states: Float[Tensor, "B T d_model"],
        memory: Float[Tensor, "B S d_model"],
        allowed: Bool[Tensor, "... #T #S"] | None = None,
    ) -> Float[Tensor, "B T d_model"]:
        return attention_weights(self.scores(states, memory), allowed) @ memory

    def scores(
        self, states: Float[Tensor, "B T d_model"], memory: Float[Tensor, "B S d_model"]
    ) -> Float[Tensor, "B T S"]:
        return self.matched(states) @ memory.transpose(1, 2)

    def matched(self, states: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_model"]:
        return self.match(states)


class Writer(nn.Module):
    """The target so far to one vector per position, from its own state and what it takes from the source."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.d_model = config.d_model
        self.tokens = TokenEmbedding(config.vocab, config.d_model)
        self.recurrence = nn.GRU(config.d_model, config.d_model, batch_first=True)
        self.glance = Glance(config.d_model) if config.attention else None
        self.join = nn.Linear(2 * config.d_model, config.d_model)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        memory: Float[Tensor, "B S d_model"],
        last: Float[Tensor, "B d_model"],
        state: Float[Tensor, "B d_model"],
        allowed: Bool[Tensor, "B 1 #S"] | None = None,
    ) -> tuple[Float[Tensor, "B T d_model"], Float[Tensor, "B d_model"]]:
        """`last` is what the reader ended in, `state` what the writer starts from; its new state is returned too."""
        states, state = self.run(ids, state)
        context = last[:, None].expand_as(states) if self.glance is None else self.glance(states, memory, allowed)
        return torch.tanh(self.joined(states, context)), state

    def run(
        self, ids: Int[Tensor, "B T"], state: Float[Tensor, "B d_model"]
    ) -> tuple[Float[Tensor, "B T d_model"], Float[Tensor, "B d_model"]]:
        states, new = self.recurrence(self.tokens(ids), state[None])
        return states, new[0]

    def joined(
        self, states: Float[Tensor, "B T d_model"], context: Float[Tensor, "B T d_model"]
    ) -> Float[Tensor, "B T d_model"]:
        return self.join(torch.cat([states, context], dim=-1))


class RecurrentSeq2Seq(nn.Module):
    """Source ids and the target's ids so far in, logits of the target's next ids out."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.config = config
        self.vocab = config.vocab
        self.reader = Reader(config)
        self.writer = Writer(config)
        self.head = nn.Linear(config.d_model, config.vocab)

    def forward(
        self,
        source: Int[Tensor, "B S"],
        ids: Int[Tensor, "B T"],
        *,
        source_valid: Bool[Tensor, "B S"] | None = None,
    ) -> Float[Tensor, "B T vocab"]:
        """Teacher forcing: all target positions at once. Padding of `source` stands on its right."""
        logits, _ = self.decode(ids, self.reader(source), source_valid=source_valid)
        return logits

    def decode(
        self,
        ids: Int[Tensor, "B T"],
        memory: Float[Tensor, "B S d_model"],
        *,
        source_valid: Bool[Tensor, "B S"] | None = None,
        state: Float[Tensor, "B d_model"] | None = None,
    ) -> tuple[Float[Tensor, "B T vocab"], Float[Tensor, "B d_model"]]:
        """Logits after each of `ids`, and the state to go on from: all that a recurrent decoder has to keep."""
        last = last_state(memory, source_valid)
        allowed = None if source_valid is None else source_valid[:, None]
        x, state = self.writer(ids, memory, last, last if state is None else state, allowed)
        return self.head(x), state


def last_state(
    memory: Float[Tensor, "B S d_model"], valid: Bool[Tensor, "B S"] | None = None
) -> Float[Tensor, "B d_model"]:
    """The state after the last real token of each source."""
    if valid is None:
        return memory[:, -1]
    last = valid.sum(dim=1) - 1
    return memory[torch.arange(memory.shape[0], device=memory.device), last]


def toy(*, attention: bool = True) -> RecurrentSeq2Seq:
    """A tiny model; without `attention` the last state of the reader is all that the writer gets."""
    return RecurrentSeq2Seq(RecurrentConfig(vocab=103, d_model=29, attention=attention))
