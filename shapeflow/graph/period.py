"""Rows of modules that repeat in groups: which stretch does, and how many items make one group.

    >>> list(runs(row))                        # a layer with a sliding window, one with full attention, and so on
    [Run(start=0, period=2, copies=12)]

What the groups read from outside counts too: each from the one before it (a chain), or all the same tensor (branches).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

# Items of one group at most: 5 layers with a window and one without (Gemma 3), 7 of Mamba and one of attention (Jamba).
LONGEST = 12
# What a group of several items has to spare, in nodes: `linear, relu` two times is told best as it is.
SPARES = 4

SAME, OWN, OUTSIDE = "same", "own", "outside"


@dataclass(frozen=True, slots=True)
class Read:
    """A tensor (node, output) from outside an item; `place` tells the item of the row and its node that made it."""

    tensor: tuple[str, int]
    place: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Item:
    """One of a row: a module's call, or an operator between two. Those of one `key` are alike inside."""

    key: int
    reads: tuple[Read, ...]
    size: int
    is_call: bool


@dataclass(frozen=True, slots=True)
class Run:
    """`copies` groups of `period` items, from `start` on; an item has `own` tensors that its copy does not read.

    `apart` are copies of which none reads what another makes or reads.
    """

    start: int
    period: int
    copies: int
    own: float = field(default=0, compare=False)
    apart: bool = field(default=False, compare=False)

    @property
    def stop(self) -> int:
        return self.start + self.period * self.copies


def runs(row: Sequence[Item], longest: int = LONGEST, own: float = inf) -> Iterator[Run]:
    """The whole row from left to right: what repeats, and all else as runs of one copy of one item.

    Groups are of `longest` items at most, each item with `own` tensors at most that its copy does not read.
    """
    return _split(row, 0, len(row), longest, own)


def _split(row: Sequence[Item], start: int, stop: int, longest: int, own: float) -> Iterator[Run]:
    """The run that spares most, with what is left of it and right of it."""
    while (run := _best(row, start, stop, longest, own)) is not None:
        yield from _split(row, start, run.start, longest, own)
        yield run
        start = run.stop
    yield from (Run(i, 1, 1) for i in range(start, stop))


def _best(row: Sequence[Item], start: int, stop: int, longest: int, own: float) -> Run | None:
    """The run that covers most items, of those the one whose groups read most alike, then the shortest group.

    One whose groups hang together in no order (each reads some mask) counts half: it hides which reads what.
    """
    best, highest = None, (0, 0.0)
    for period in range(1, min(longest, (stop - start) // 2) + 1):
        for first, last in _stretches(row, start, stop, period):
            if 2 * (last - first) < highest[0]:
                continue
            for run, ordered in _linked(row, first, last, period):
                score = (run.copies * period * (2 if ordered else 1), -run.own if ordered else -period)
                if score > highest and run.own <= own and _spares(row, run):
                    best, highest = run, score
    return best


def _spares(row: Sequence[Item], run: Run) -> bool:
    """Whether a drawing is shorter by enough for a group to be worth its box."""
    size = sum(item.size for item in row[run.start : run.start + run.period])
    return (run.period == 1 and not run.apart) or (run.copies - 1) * size >= SPARES


def _stretches(row: Sequence[Item], start: int, stop: int, period: int) -> Iterator[tuple[int, int]]:
    """Where each item is alike to the one `period` places further on, for two groups at least."""
    first = start
    for i in range(start, stop - period + 1):
        if i < stop - period and row[i].key == row[i + period].key:
            continue
        if i - first >= period and any(item.is_call for item in row[first : first + period]):
            yield first, i + period
        first = i + 1


def _linked(row: Sequence[Item], first: int, last: int, period: int) -> Iterator[tuple[Run, bool]]:
    """The runs in a stretch, and whether their groups hang together in one way."""
    while last - first >= 2 * period:
        ordered, loose, own = _copies(row, first, last, period)
        apart = own == sum(len(item.reads) for item in row[first : first + period]) > 0
        if ordered > 1:
            yield Run(first, period, ordered, own / period, apart), True
        if loose > 1:
            yield Run(first, period, loose, own / period, apart), False
        first += max((max(ordered, loose) - 1) * period, 1)


def _copies(row: Sequence[Item], first: int, last: int, period: int) -> tuple[int, int, int]:
    """How many groups from `first` on hang together in one way, how many when it is left open which tensor of outside
    each reads, and how many tensors the second has that the first does not read.

    Of two groups that have some of their own nobody knows whether there is an order.
    """
    copies = (last - first) // period
    before = _link(row, first, first + period, period)
    if before is None:
        return 1, 1, 0
    ordered, own = copies, before.count(OWN)
    for number in range(2, copies):
        link = _link(row, first, first + number * period, period)
        if link is None or _loosely(link) != _loosely(before):
            copies = number
            break
        if link != before:
            ordered = min(ordered, number)
    ordered = min(ordered, copies)
    return (1 if ordered == 2 and own else ordered), copies, own


def _loosely(link: list[Hashable]) -> list[Hashable]:
    return [OUTSIDE if each in (SAME, OWN) else each for each in link]


def _link(row: Sequence[Item], first: int, here: int, period: int) -> list[Hashable] | None:
    """How the group at `here` hangs on the one before it, for each tensor that it reads; None when it does not fit."""
    links: list[Hashable] = []
    for i in range(here, here + period):
        for read, twin in zip(row[i].reads, row[i - period].reads, strict=True):
            made = read.place[0] if read.place else -1
            within = made >= here or (twin.place is not None and twin.place[0] >= here - period)
            if within and _from(twin, here - period) != _from(read, here):
                return None
            if made >= here - period:
                links.append(_from(read, here))
            elif made >= first:
                return None
            else:
                links.append(SAME if read.tensor == twin.tensor else OWN)
    return links


def _from(read: Read, here: int) -> Hashable:
    """Where a tensor was made, counted from the group that begins at `here`."""
    return read.place and (read.place[0] - here, read.place[1], read.tensor[1])
