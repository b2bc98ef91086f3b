"""What a drawing of a difference shows: boxes in the frames of modules, alike neighbours as one.

>>> frame = plan(diff(before, after))
>>> [item.words[0] for item in frame.items]
['ids', 'tokens.table', 'positions', 'add', 'blocks.0 to blocks.1, x2', '+ blocks.2', 'norm', 'head', 'output']
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from itertools import groupby

import networkx as nx

from shapeflow.draw.changes import Entries, Entry, Row, way
from shapeflow.draw.label import counted, parameters_of
from shapeflow.graph.alignment import Pair
from shapeflow.graph.calls import Call, Leaf
from shapeflow.graph.difference import Difference

FEW = 3  # operators in a row that did not change, and are drawn all the same; also the rows of a module with one box


@dataclass(slots=True, eq=False)
class Box:
    """A node of the drawing: an operator, or a module that is closed. `pairs` are those that it stands for."""

    words: tuple[str, ...]
    mark: str
    pairs: list[Pair]
    kind: str = ""

    def members(self, *, before: bool) -> Iterator[str]:
        """The names of the graph's nodes that it stands for."""
        for pair in self.pairs:
            item = pair.before if before else pair.after
            if isinstance(item, Call):
                yield from (leaf.node.name for leaf in item.leaves())
            elif item is not None:
                yield item.node.name


@dataclass(slots=True, eq=False)
class Frame:
    """A module with something changed inside, or the whole model."""

    words: tuple[str, ...]
    mark: str
    items: list[Box | Frame] = field(default_factory=list)

    def boxes(self) -> Iterator[Box]:
        """All boxes inside, in the order of running."""
        for item in self.items:
            if isinstance(item, Frame):
                yield from item.boxes()
            else:
                yield item

    def frames(self) -> Iterator[Frame]:
        """All frames inside."""
        for item in self.items:
            if isinstance(item, Frame):
                yield item
                yield from item.frames()


def plan(difference: Difference) -> Frame:
    """The whole drawing."""
    planner = Planner(difference)
    words = [f"{way([(entry.path, entry.to)])}: {_told(row)}" for entry in planner.loose() for row in entry.rows]
    return Frame(tuple(words), " ", planner.items([difference.root]))


class Planner:
    """Decides what of a difference is open, and what one box stands for."""

    def __init__(self, difference: Difference) -> None:
        self.graph: nx.MultiDiGraph = difference.after
        self.root = difference.root
        self.entries = Entries(difference)
        self._touched: dict[int, bool] = {}
        self._keys: dict[int, Hashable] = {}

    def loose(self) -> Iterator[Entry]:
        """Parameters of the model itself and of modules that are not called."""
        yield from self.entries.rest()
        own = self.entries.rows.get("", [])
        if own:
            yield Entry(" ", self.graph.graph["name"], self.graph.graph["name"], "", tuple(own))

    def items(self, alike: list[Pair]) -> list[Box | Frame]:
        """What to draw inside of modules that are alike, as one."""
        sides = list(zip(*(pair.parts for pair in alike), strict=True))
        found: list[Box | Frame] = []
        for _, run in groupby(sides, key=lambda parts: self._run(parts[0])):
            members = list(run)
            if self._stays(members[0][0]) and len(members) > FEW:
                found.append(self._gathered([pair for parts in members for pair in parts], len(members)))
            elif isinstance(members[0][0].item, Call):
                found.append(self._module([pair for parts in members for pair in parts]))
            else:
                found += [self._leaf(list(parts)) for parts in members]
        return found

    def _run(self, pair: Pair) -> Hashable:
        """What neighbours have in common that are drawn together."""
        return "stays" if self._stays(pair) else self._key(pair) if isinstance(pair.item, Call) else id(pair)

    def _stays(self, pair: Pair) -> bool:
        """An operator that did not change."""
        item = pair.item
        return isinstance(item, Leaf) and item.node.kind not in ("input", "output") and not self.touched(pair)

    def touched(self, pair: Pair) -> bool:
        """Whether something is other in it or inside it."""
        if id(pair) not in self._touched:
            self._touched[id(pair)] = self._is_touched(pair)
        return self._touched[id(pair)]

    def _is_touched(self, pair: Pair) -> bool:
        if pair.before is None or pair.after is None:
            return True
        if isinstance(pair.item, Leaf):
            return self.entries.row(pair) is not None
        own = pair is not self.root and self.entries.of(pair) is not None
        return own or any(self.touched(part) for part in pair.parts)

    def _key(self, pair: Pair) -> Hashable:
        """Equal for modules that look alike, but for the numbers in their paths."""
        if id(pair) not in self._keys:
            self._keys[id(pair)] = self._make_key(pair)
        return self._keys[id(pair)]

    def _make_key(self, pair: Pair) -> Hashable:
        names = tuple(item and (re.sub(r"\d+", "#", item.name), item.signature) for item in (pair.before, pair.after))
        if isinstance(pair.item, Leaf):
            return names, self.entries.row(pair)
        if pair.before is None or pair.after is None or not self.touched(pair):
            return names
        entry = self.entries.of(pair)
        return names, entry and (entry.mark, entry.about, entry.rows), tuple(map(self._key, pair.parts))

    def _gathered(self, pairs: list[Pair], times: int) -> Box:
        names = list(dict.fromkeys(pair.item.name for pair in pairs))
        shown = ", ".join(names[:FEW]) + (", ..." if len(names) > FEW else "")
        return Box((f"{times} operators as before", shown), " ", pairs, "gathered")

    def _leaf(self, alike: list[Pair]) -> Box:
        pair, row = alike[0], self.entries.row(alike[0])
        assert isinstance(pair.item, Leaf)
        if row is None:
            return Box((pair.item.name,), " ", alike, pair.item.node.kind)
        sign = f"{row.mark} " if row.mark in "+-" else ""
        return Box((f"{sign}{row.name}", *row.text.split("; ")), _drawn(row.mark), alike, pair.item.node.kind)

    def _module(self, alike: list[Pair]) -> Box | Frame:
        """A module, or neighbours that look alike."""
        pair, name = alike[0], _names(alike)
        if pair.before is None or pair.after is None:
            entry = self.entries.whole(pair)
            return Box((f"{entry.mark} {name}", *entry.about.split(", ")), entry.mark, alike)
        if not self.touched(pair):
            return Box((name, self._about(pair)), " ", alike)
        entry = self.entries.of(pair)
        leaves = [part for part in pair.walk() if isinstance(part.item, Leaf)]
        if len(leaves) <= 1 and entry:
            return Box((name, entry.about, *_few([_told(row) for row in entry.rows])), "~", alike)
        return self._frame(name, entry, alike)

    def _frame(self, name: str, entry: Entry | None, alike: list[Pair]) -> Box | Frame:
        items, call = self.items(alike), alike[0].item
        assert isinstance(call, Call)
        if len(items) == 1 and not entry:
            items[0].words = (f"{name}.{items[0].words[0]}", *items[0].words[1:])
            return items[0]
        rows = [_told(row) for row in entry.rows if row.what == "parameter"] if entry else []
        mark = _drawn(entry.mark) if entry else " "
        return Frame((f"{name}: {entry.about if entry else call.kind}", *_few(rows)), mark, items)

    def _about(self, pair: Pair) -> str:
        """The class of a module, and how much it learns."""
        assert isinstance(pair.after, Call)
        parameters = parameters_of(self.graph, pair.after.path)
        return pair.after.kind + (f", {counted(parameters, 'parameter')}" if parameters else "")


def _names(alike: list[Pair]) -> str:
    """From the frame around: `blocks.0 to blocks.1, x2`, `attn -> attention`."""
    names = dict.fromkeys(((pair.before or pair.item).name, pair.item.name) for pair in alike)
    return way(list(names)) + (f", x{len(names)}" if len(names) > 1 else "")


def _few(rows: list[str]) -> list[str]:
    return rows if len(rows) <= FEW + 1 else [*rows[:FEW], f"... {len(rows) - FEW} more"]


def _told(row: Row) -> str:
    often = f", x{row.times}" if row.times > 1 else ""
    return f"{row.mark} {row.name}  {row.text}{often}"


def _drawn(mark: str) -> str:
    """A name or a place that is another is a change like others."""
    return "~" if mark == ">" else mark
