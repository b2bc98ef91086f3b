"""What an axis is made of: factors, each with an origin of its own.

>>> Axis((Factor((0,), B), Factor((1,), T)))          # the first axis of `x.flatten(0, 1)`
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import fx

from shapeflow.dims.expr import Expr, product

Id: TypeAlias = "tuple[Any, ...]"
Dims: TypeAlias = Sequence[Expr]
ONE = Expr.const(1)


@dataclass(frozen=True, slots=True)
class Factor:
    """A part of an axis. `id` is (origin,), or (origin, part, parts) after a split; equal ids are the same axis.

    `trait` is "constant" where an axis of size one was expanded: along it all is equal; "shifted" behind padding or a
    view that re-cuts, where rows may be shifted on purpose.
    """

    id: Id
    size: Expr
    trait: str = ""

    def __str__(self) -> str:
        return str(self.size)


@dataclass(frozen=True, slots=True)
class Axis:
    """Factors, the slowest first; none for an axis of size one.

    That is `implicit` when nobody asked for it, a layer of one feature; `literal` when the code itself put it there,
    with `unsqueeze` or `None`, whatever the sizes.
    """

    factors: tuple[Factor, ...]
    implicit: bool = False
    literal: bool = False

    @property
    def size(self) -> Expr:
        return product(factor.size for factor in self.factors)

    @property
    def constant(self) -> bool:
        """Whether all is equal along it."""
        return all(factor.trait == "constant" for factor in self.factors)

    def __str__(self) -> str:
        return "*".join(f"({each})" if " " in str(each) else str(each) for each in self.factors) or "1"


Shape: TypeAlias = tuple[Axis, ...]


@dataclass(frozen=True, slots=True)
class Recut:
    """A view whose axes do not nest: `source` axes are read as if they were `target`, its axes at `places`."""

    node: fx.Node
    source: tuple[Factor, ...]
    target: tuple[Expr, ...]
    places: tuple[int, ...]


def shared(one: Iterable[Factor], other: Iterable[Factor]) -> bool:
    """Whether two rows of factors have one in common, or one of them a part of the other's."""
    ids = [factor.id for factor in other]
    return any(_kin(factor.id, each) for factor in one for each in ids)


def _kin(one: Id, other: Id) -> bool:
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def split(factor: Factor, sizes: Sequence[Expr]) -> list[Factor]:
    return [Factor((*factor.id, part, len(sizes)), size, factor.trait) for part, size in enumerate(sizes)]


def whole(factors: Sequence[Factor]) -> tuple[Factor, ...]:
    """All parts of one factor, in their order, are that factor again."""
    made: list[Factor] = []
    for factor in factors:
        made.append(factor)
        while len(made[-1].id) >= 3:
            *origin, _, parts = made[-1].id
            last = made[-parts:]
            if [each.id for each in last] != [(*origin, part, parts) for part in range(parts)]:
                break
            made[-parts:] = [Factor(tuple(origin), product(each.size for each in last), factor.trait)]
    return tuple(made)


def axes_named(value: Any, rank: int) -> set[int] | None:
    """The axes that `dim=...` names, counted from the first; None where it names none."""
    given = value if isinstance(value, tuple | list) else [value]
    if not given or not all(isinstance(each, int) and -rank <= each < rank for each in given):
        return None
    return {each % rank for each in given}
