"""Which part of a model takes the most at which size, and where one overtakes another.

>>> print(scaling(cost, "T"))
T up to 3,072: GPT2MLP takes the most
T from 3,073: GPT2Attention, scores takes the most
GPT2Attention, scores overtakes GPT2MLP at T > 3072
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import gcd
from typing import TYPE_CHECKING

from shapeflow.cost.domain import check_sizes
from shapeflow.cost.parts import Part
from shapeflow.dims.expr import Expr
from shapeflow.dims.polynomial import common_monomial, divide_out
from shapeflow.errors import InputError

if TYPE_CHECKING:
    from shapeflow.cost.cost import Cost
    from shapeflow.dims.atoms import Symbol

FARTHEST = 2**24
"""No size is looked at beyond this."""


@dataclass(frozen=True, slots=True)
class Reign:
    """From `low` to `high` (None: from there on) this part takes the most."""

    part: str
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Overtaking:
    """`greater` takes more than `lesser` as soon as the size is above `above`: a formula, or a number."""

    greater: str
    lesser: str
    above: Expr


@dataclass(frozen=True, slots=True)
class Scaling:
    """Along one size, the others fixed: who reigns where, who overtakes whom, and up to where the model itself goes."""

    dim: str
    fixed: Mapping[str, int]
    reigns: tuple[Reign, ...]
    overtakings: tuple[Overtaking, ...]
    highest: int | None

    def __str__(self) -> str:
        return "\n".join([*map(self._reign, self.reigns), *map(self._overtaking, self.overtakings)])

    def _reign(self, reign: Reign) -> str:
        span = f"from {reign.low:,}" if reign.high is None else f"{reign.low:,} to {reign.high:,}"
        return f"{self.dim} {span}: {reign.part} takes the most{self._beyond(reign.low)}"

    def _overtaking(self, each: Overtaking) -> str:
        known = each.above.constant
        beyond = "" if known is None else self._beyond(known + 1)
        return f"{each.greater} overtakes {each.lesser} at {self.dim} > {each.above}{beyond}"

    def _beyond(self, size: int) -> str:
        outside = self.highest is not None and size > self.highest
        return f" (the model takes {self.dim} <= {self.highest:,} only)" if outside else ""


def scaling(cost: Cost, dim: str, sizes: Mapping[str, int] | None = None) -> Scaling:
    """What happens along `dim`. Sizes that are not given, and do not cancel, are those of the traced run.

    Raises InputError for a name that no formula has.
    """
    given = {name: size for name, size in (sizes or {}).items() if name != dim}
    check_sizes(cost.trace, given)
    symbols = {symbol.name: symbol for symbol in cost.flops.symbols}
    if dim not in symbols:
        raise InputError(f"no operation depends on {dim}; sizes that some do: {', '.join(sorted(symbols)) or 'none'}")
    fixed = {name: given.get(name, cost.trace.sizes[name]) for name in symbols if name != dim}
    bounds = {name: (low, high) for name, low, high in cost.trace.domain.bounds}
    _, highest = bounds.get(dim, (1, None))
    reigns = _reigns(cost.parts, dim, fixed)
    return Scaling(dim, fixed, reigns, _overtakings(cost.parts, symbols[dim], fixed), highest)


def _reigns(parts: tuple[Part, ...], dim: str, fixed: Mapping[str, int]) -> tuple[Reign, ...]:
    def first(size: int) -> str:
        return max(parts, key=lambda part: part.flops.at(**fixed, **{dim: size})).name

    steps = [2**power for power in range(FARTHEST.bit_length())]
    starts = [(1, first(1))]
    for low, high in pairwise(steps):
        while first(high) != starts[-1][1]:
            since = _first_where(lambda size: first(size) != starts[-1][1], max(low, starts[-1][0]), high)
            starts.append((since, first(since)))
    ends = [low - 1 for low, _ in starts[1:]]
    return tuple(Reign(name, low, high) for (low, name), high in zip(starts, [*ends, None], strict=True))


def _first_where(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The first size above `low` for which it holds, as it does at `high`."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _overtakings(parts: tuple[Part, ...], dim: Symbol, fixed: Mapping[str, int]) -> tuple[Overtaking, ...]:
    found = [
        Overtaking(a.name, b.name, above)
        for a in parts
        for b in parts
        if a is not b and (above := overtakes(a.flops, b.flops, dim, fixed)) is not None
    ]
    return tuple(sorted(found, key=lambda each: (each.above.at(**fixed), each.greater, each.lesser)))


def overtakes(a: Expr, b: Expr, dim: Symbol, fixed: Mapping[str, int]) -> Expr | None:
    """The size above which `a` is greater than `b`, while it is not at 1; None where it is so nowhere, or always."""

    def greater(size: int) -> bool:
        return a.at(**fixed, **{dim.name: size}) > b.at(**fixed, **{dim.name: size})

    if greater(1) or not greater(FARTHEST):
        return None
    exact = _linear(a - b, dim)
    return Expr.const(_first_where(greater, 1, FARTHEST) - 1) if exact is None else exact


def _linear(difference: Expr, dim: Symbol) -> Expr | None:
    """`4*d` of `4*B*T^2*d - 16*B*T*d^2`: where a difference turns positive, if it is linear but for a shared factor."""
    shared = common_monomial(monomial for monomial, _ in difference.terms)
    left = Expr.from_terms(divide_out(dict(difference.terms), shared, 1))
    divisor = gcd(*(times for _, times in left.terms))
    left = Expr.from_terms({monomial: times // divisor for monomial, times in left.terms})
    slope = dict(left.terms).get(((dim, 1),), 0)
    rest = left - Expr.from_atom(dim) * slope
    return None if slope <= 0 or dim in rest.symbols else -rest // slope
