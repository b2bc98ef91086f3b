"""Which module call and which node of one graph is which of another, though names and places may have changed.

>>> pair = align(call_tree(before), call_tree(after))
>>> [(part.before and part.before.name, part.after and part.after.name) for part in pair.parts]
[('ids', 'ids'), ('blocks.0', 'blocks.0'), (None, 'blocks.1'), ('output', 'output')]

Level by level of the module tree, in the order of running, by the pairs that together have most in common: name, class,
and what runs inside. What then has no partner and stands, by its path or by all it does, elsewhere, has moved.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from shapeflow.graph.calls import Call, Item, Leaf

# Cells of the table that finds the best pairs; beyond, long stretches of equal items are taken first.
LARGE = 300_000

NAME, CLASS, SAME, INSIDE = 2.0, 1.0, 3.0, 2.0
ALIKE, VERY_ALIKE = 0.5, 0.8


@dataclass(slots=True, eq=False)
class Pair:
    """An item before and the same one after; one of them is None where it was added or removed. `parts` are inside."""

    before: Item | None
    after: Item | None
    parts: list[Pair] = field(default_factory=list)
    moved: bool = False

    def walk(self) -> Iterator[Pair]:
        """This pair and all inside, in the order of running."""
        yield self
        for part in self.parts:
            yield from part.walk()

    @property
    def item(self) -> Item:
        found = self.after or self.before
        assert found is not None
        return found


def align(before: Call, after: Call) -> Pair:
    """The two trees as one tree of pairs."""
    root = _paired(before, after)
    _find_moved(root)
    return root


def _paired(before: Item, after: Item) -> Pair:
    pair = Pair(before, after)
    if isinstance(before, Call) and isinstance(after, Call):
        pair.parts = [_part(a, b) for a, b in _best(before.items, after.items)]
    return pair


def _part(before: Item | None, after: Item | None) -> Pair:
    return _paired(before, after) if before and after else Pair(before, after)


def _best(old: Sequence[Item], new: Sequence[Item]) -> list[tuple[Item | None, Item | None]]:
    """The items of both in order, paired. What is the same at both ends is the same."""
    start = _common(old, new)
    end = _common(old[start:][::-1], new[start:][::-1])
    middle = _middle(old[start : len(old) - end], new[start : len(new) - end])
    tail = zip(old[len(old) - end :], new[len(new) - end :], strict=True)
    return [*zip(old[:start], new[:start], strict=True), *middle, *tail]


def _common(old: Sequence[Item], new: Sequence[Item]) -> int:
    pairs = zip(old, new, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if _key(a) != _key(b)), min(len(old), len(new)))


def _key(item: Item) -> tuple[str, int]:
    return item.name, item.signature


def _middle(old: Sequence[Item], new: Sequence[Item]) -> Iterator[tuple[Item | None, Item | None]]:
    if len(old) * len(new) <= LARGE:
        yield from _by_table(old, new)
        return
    a, b = [_key(item) for item in old], [_key(item) for item in new]
    i = j = 0
    for block in SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks():
        yield from _rough(old[i : block.a], new[j : block.b])
        i, j = block.a + block.size, block.b + block.size
        yield from zip(old[block.a : i], new[block.b : j], strict=True)


def _rough(old: Sequence[Item], new: Sequence[Item]) -> Iterator[tuple[Item | None, Item | None]]:
    """A stretch without equal items: by the table where it is small enough, else as it stands, one by one."""
    if len(old) * len(new) <= LARGE:
        yield from _by_table(old, new)
        return
    for i in range(max(len(old), len(new))):
        a, b = old[i] if i < len(old) else None, new[i] if i < len(new) else None
        if a and b and not _score(a, b):
            yield from ((a, None), (None, b))
        else:
            yield a, b


def _by_table(old: Sequence[Item], new: Sequence[Item]) -> Iterator[tuple[Item | None, Item | None]]:
    """The pairs with the highest sum of scores that keep the order (Needleman and Wunsch 1970, gaps at no cost)."""
    scores = [[_score(a, b) for b in new] for a in old]
    best = [[0.0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for i in range(len(old) - 1, -1, -1):
        row, below = best[i], best[i + 1]
        for j in range(len(new) - 1, -1, -1):
            row[j] = max(below[j], row[j + 1], scores[i][j] + below[j + 1] if scores[i][j] else 0.0)
    i = j = 0
    while i < len(old) or j < len(new):
        both = i < len(old) and j < len(new)
        if both and scores[i][j] and best[i][j] == scores[i][j] + best[i + 1][j + 1]:
            yield old[i], new[j]
            i, j = i + 1, j + 1
        elif i < len(old) and (j == len(new) or best[i][j] == best[i + 1][j]):
            yield old[i], None
            i += 1
        else:
            yield None, new[j]
            j += 1


def _score(a: Item, b: Item) -> float:
    """How much speaks for the two being the same; 0 where too little does."""
    if isinstance(a, Leaf) and isinstance(b, Leaf):
        return _score_leaves(a, b)
    if isinstance(a, Call) and isinstance(b, Call):
        return _score_calls(a, b)
    return 0.0


def _score_leaves(a: Leaf, b: Leaf) -> float:
    if a.node.kind != b.node.kind:
        return 0.0
    if a.name == b.name:
        return NAME + SAME * (a.signature == b.signature) + (a.node.outputs == b.node.outputs)
    renamed = a.node.kind in ("input", "module") and a.node.outputs == b.node.outputs
    return CLASS if renamed else 0.0


def _score_calls(a: Call, b: Call) -> float:
    alike = 1.0 if a.signature == b.signature else likeness(a, b)
    named, of_class = a.name == b.name, a.kind == b.kind
    if not (named or alike >= VERY_ALIKE or (of_class and alike >= ALIKE)):
        return 0.0
    return NAME * named + CLASS * of_class + SAME * (a.signature == b.signature) + INSIDE * alike


def likeness(a: Item, b: Item) -> float:
    """From 0 to 1: the part of the operators and of their results that two calls share (Dice's coefficient)."""
    shared: Counter[object] = a.operators & b.operators
    return 2 * shared.total() / ((a.operators.total() + b.operators.total()) or 1)


def _find_moved(root: Pair) -> None:
    """Pair what was removed in one place and added in another: the module of the same path, else one that is equal."""
    removed = [pair for pair in root.walk() if isinstance(pair.before, Call) and pair.after is None]
    added = [pair for pair in root.walk() if isinstance(pair.after, Call) and pair.before is None]
    gone: set[int] = set()
    for is_moved in (_same_path, _same_name, _same_work):
        for new in added:
            left = [old for old in removed if id(old) not in gone and is_moved(old.before, new.after)]
            if left and new.before is None:
                assert left[0].before is not None and new.after is not None
                gone.add(id(left[0]))
                new.before, new.parts, new.moved = left[0].before, _paired(left[0].before, new.after).parts, True
    _drop(root, gone)


def _same_path(a: Item | None, b: Item | None) -> bool:
    if not isinstance(a, Call) or not isinstance(b, Call):
        return False
    return a.kind == b.kind and (a.path, a.scopes[-1].call) == (b.path, b.scopes[-1].call)


def _same_name(a: Item | None, b: Item | None) -> bool:
    return _same_work(a, b) and a is not None and b is not None and a.name == b.name


def _same_work(a: Item | None, b: Item | None) -> bool:
    """Equal inside, under the same kind of name: `blocks.3` for `blocks.1`."""
    if not isinstance(a, Call) or not isinstance(b, Call) or a.signature != b.signature:
        return False
    learns = any(leaf.node.parameters for leaf in a.leaves())  # of two equal dropouts nobody says that one moved
    return learns and re.sub(r"\d+", "#", a.name) == re.sub(r"\d+", "#", b.name)


def _drop(pair: Pair, gone: set[int]) -> None:
    pair.parts = [part for part in pair.parts if id(part) not in gone]
    for part in pair.parts:
        _drop(part, gone)
