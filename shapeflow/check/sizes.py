"""Sizes to try: those that flip a condition, and random ones inside a domain.

>>> violation(Relation.between(T, "<=", Expr.const(512)), {"T": 7}, ranges)     # the nearest that breaks it
{'T': 513}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from shapeflow.dims.atoms import Symbol
from shapeflow.dims.relation import Relation

FARTHEST = 2**20
"""No size beyond this is tried."""
SPREAD = 96
"""Random sizes lie within this distance of the least that is allowed."""
TRIALS = 400


@dataclass(frozen=True, slots=True)
class Range:
    """The sizes that the input's spec declares for a name, both ends included."""

    low: int = 1
    high: int | None = None

    def __contains__(self, size: int) -> bool:
        return self.low <= size and (self.high is None or size <= self.high)


Sizes = dict[str, int]
Ranges = Mapping[str, Range]


def sizes_text(sizes: Mapping[str, int]) -> str:
    """`B = 3, T = 513`."""
    return ", ".join(f"{name} = {size}" for name, size in sizes.items())


def holds(relation: Relation, sizes: Mapping[str, int]) -> bool | None:
    """Whether the relation holds at these sizes; None when it speaks of others, or divides by nothing."""
    symbols = relation.difference.symbols
    if any(symbol.value is None and symbol.name not in sizes for symbol in symbols):
        return None
    known = {symbol: sizes[symbol.name] for symbol in symbols if symbol.value is None}
    try:
        return relation.holds(relation.difference.evaluate(known))
    except ZeroDivisionError:
        return None


def violation(
    relation: Relation, sizes: Sizes, ranges: Ranges, keep: Sequence[Relation] = (), fixed: Iterable[str] = ()
) -> Sizes | None:
    """Sizes next to the given ones, in one name, that break `relation`; those that keep most of `keep` come first."""
    found: list[tuple[int, int, Sizes]] = []
    for symbol in sorted(relation.difference.symbols, key=lambda symbol: symbol.name):
        if symbol.value is not None or symbol.name not in ranges or symbol.name in fixed:
            continue
        broken = _nearest(relation, symbol, sizes, ranges[symbol.name])
        if broken is not None:
            changed = {**sizes, symbol.name: broken}
            lost = sum(holds(each, changed) is False for each in keep)
            found.append((lost, abs(broken - sizes[symbol.name]), changed))
    return min(found, key=lambda each: each[:2])[2] if found else None


def _nearest(relation: Relation, symbol: Symbol, sizes: Sizes, allowed: Range) -> int | None:
    """The size of one name, nearest to the present one, at which the relation does not hold."""
    now = sizes[symbol.name]

    def breaks(size: int) -> bool:
        return size in allowed and holds(relation, {**sizes, symbol.name: size}) is False

    last = now
    for size in _outward(now):
        if breaks(size):
            return _boundary(last, size, breaks)
        if size > now:
            last = size
    return next((size for size in range(now - 1, 0, -1) if breaks(size)), None) if now <= 4096 else None


def _outward(now: int) -> Iterator[int]:
    """The neighbours, then farther and farther up."""
    for step in range(1, 65):
        yield now + step
        if now - step >= 0:
            yield now - step
    step = 128
    while now + step <= FARTHEST:
        yield now + step
        step *= 2


def _boundary(inside: int, outside: int, breaks: Callable[[int], bool]) -> int:
    """Between a size that keeps a relation and one that breaks it, the first that breaks it."""
    if outside < inside:
        return outside
    while outside - inside > 1:
        middle = (inside + outside) // 2
        inside, outside = (inside, middle) if breaks(middle) else (middle, outside)
    return outside


def samples(count: int, names: Iterable[str], ranges: Ranges, relations: Sequence[Relation], seed: int) -> list[Sizes]:
    """Up to `count` random choices of sizes at which every relation holds."""
    random, found = Random(seed), []
    for _ in range(TRIALS):
        if len(found) == count:
            break
        sizes = {name: _random(random, ranges[name]) for name in names}
        for _ in relations:
            wrong = next((each for each in relations if holds(each, sizes) is False), None)
            if wrong is None:
                break
            sizes = violation(wrong.negated, sizes, ranges) or sizes
        if all(holds(relation, sizes) is not False for relation in relations) and sizes not in found:
            found.append(sizes)
    return found


def _random(random: Random, allowed: Range) -> int:
    high = allowed.low + SPREAD if allowed.high is None else min(allowed.high, allowed.low + SPREAD)
    return random.randint(allowed.low, high)
