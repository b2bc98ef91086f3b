"""Annotations that are text when they are read: what `from __future__ import annotations` does to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from beartype import beartype
from jaxtyping import Float, Int, jaxtyped
from torch import Tensor, nn

if TYPE_CHECKING:
    from somewhere import OnlyForCheckers


def forward(ids: Int[Tensor, "B T"], scale: float = 1.0) -> Float[Tensor, "B T d"]: ...


@jaxtyped(typechecker=beartype)
def checked(ids: Int[Tensor, "B T"], scale: float = 1.0) -> Int[Tensor, "B T"]:
    return ids


class Model(nn.Module):
    @jaxtyped(typechecker=beartype)
    def forward(self, ids: Int[Tensor, "B T"], scale: float = 1.0) -> Int[Tensor, "B T"]:
        return ids


def nested():
    Ids = Int[Tensor, "B T"]

    def inner(ids: Ids, scale: float = 1.0):
        return ids, Ids  # a name that only an annotation uses is no closure's

    return inner


@dataclass
class Batch:
    ids: Int[Tensor, "B T"] | None
    pair: tuple[Int[Tensor, "B T"], Float[Tensor, "B T d"]]


class Inputs(TypedDict):
    ids: Int[Tensor, "B T"]


class Pair(NamedTuple):
    left: Float[Tensor, "B T d"]
    right: int


def with_cache(ids: Int[Tensor, "B T"], cache: OnlyForCheckers | None = None): ...


def typo(x: Flaot[Tensor, "B T"]): ...  # noqa: F821  the fault is under test


def missing_name(x: Float[OnlyForCheckers, "B T"]): ...


def bad_result(x: int) -> Float[Tensor, "B,T"]: ...  # noqa: F821, UP037  the fault is under test


def bad_inside(x: tuple[int, Float[OnlyForCheckers, "B T"]]): ...
