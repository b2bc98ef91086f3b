"""A batch, and what a task gives to the loop.

A batch is a dataclass of tensors whose first axis is the sequence, so that a rank's share is a slice of each.
"""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Protocol, TypeVar, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

Logits = Callable[..., Float[Tensor, "B T vocab"]]


@runtime_checkable
class Batch(Protocol):
    """Sequences for one step; `n_scored` of their tokens are predicted."""

    __dataclass_fields__: Any

    @property
    def n_scored(self) -> int: ...


B = TypeVar("B", bound=Batch)


@runtime_checkable
class Task(Protocol[B]):
    """A model to train, and the sequences that it learns from."""

    data: str  # tells one set of data from another: a checkpoint goes with it
    n_items: int  # sequences to learn from
    n_held_out: int  # sequences to test with
    blocks: tuple[type[nn.Module], ...]  # the modules that FSDP gathers one at a time

    def model(self) -> nn.Module:
        """A new model, its weights drawn from torch's generator."""
        ...

    def batch(self, items: list[int], *, held_out: bool = False) -> B: ...

    def nll_sum(self, model: Logits, batch: B) -> Float[Tensor, ""]:
        """The negative log-likelihood of all scored tokens, in nats."""
        ...

    def sample(self, model: Any, seed: int) -> str:
        """What the model writes, to be looked at."""
        ...


def share(batch: B, rank: int, world: int) -> B:
    """Every `world`-th sequence, from that with the number `rank` on."""
    return type(batch)(*(getattr(batch, each.name)[rank::world] for each in fields(batch)))
