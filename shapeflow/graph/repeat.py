"""Equal neighbouring modules shown once: twelve decoder blocks become one that is marked x12.

    >>> page = fold(graph)
    >>> {scopes[-1].path: len(copies) for scopes, copies in page.graph["repeats"].items()}
    {'blocks.0': 12}

Two calls are equal when their names differ in numbers only, the same operators with the same shapes and parameters of
the same shapes are wired alike inside, and read alike from outside:
each from the one before it (a chain) or both from the same tensor (branches). Names of parameters and of modules count
from the module itself, and sizes that only exist inside it (a count of chosen tokens) by the order of their appearance.

Where not each neighbour is equal but every second one (layers with a window and layers without, or with operators of
the loop between them), the group that repeats gets a scope of its own around its first copy.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf

import networkx as nx

from shapeflow.dims.expr import Expr, Symbol
from shapeflow.graph.block import Block
from shapeflow.graph.flow import derive, edges, inputs_of, merge, nodes
from shapeflow.graph.period import LONGEST, Item, Read, Run, runs
from shapeflow.trace.result import Edge, ModuleInfo, Node, Scope, Shape

Scopes = tuple[Scope, ...]

NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Part:
    """The nodes of one module call in execution order, or one node between two calls: then `scopes` are around it."""

    scopes: Scopes
    members: tuple[Node | Block, ...]
    is_call: bool


def fold(graph: nx.MultiDiGraph) -> nx.MultiDiGraph:
    """Keep the first of each run of equal neighbours, at every level of the module tree.

    `graph.graph["repeats"]` of the result tells, for the scopes of each call that was kept, the scopes' ends of all the
    calls that it stands for; `groups`, which scopes are no module's but a group's, with the calls inside. What left the
    last copy leaves the kept one now, what entered any copy enters it.
    """
    folding = _Folding(graph)
    folding.level(Part((), tuple(nodes(graph)), True))
    kept = [folding.kept[node.name] for node in nodes(graph) if node.name in folding.kept]
    facts = {
        "repeats": folding.repeats,
        "groups": folding.groups,
        "modules": folding.modules,
        "standing": graph.graph.get("standing", {}) | folding.standing,
    }
    return merge(derive(graph, kept, _reroute(graph, folding.standing, kept), **facts), graph, folding.standing)


@dataclass(slots=True)
class _Folding:
    """What one `fold` has found: the nodes that are kept, and which of them stands for a dropped one."""

    graph: nx.MultiDiGraph
    kept: dict[str, Node | Block] = field(default_factory=dict)
    standing: dict[str, str] = field(default_factory=dict)
    repeats: dict[Scopes, Scopes] = field(init=False)
    groups: dict[Scope, Scopes] = field(init=False)
    modules: dict[str, ModuleInfo] = field(init=False)
    patterns: _Patterns = field(init=False)

    def __post_init__(self) -> None:
        facts = self.graph.graph
        self.repeats, self.modules, self.groups = dict(facts["repeats"]), facts["modules"], facts.get("groups", {})
        self.patterns = _Patterns(self.graph)

    def level(self, parent: Part, longest: int = LONGEST, own: float = inf) -> None:
        """Fold what `parent` calls, with the limits of `period.runs`."""
        parts = list(_parts(parent))
        for run in self._runs(parts, longest, own):
            first = parts[run.start : run.start + run.period]
            copies = [parts[i : i + run.period] for i in range(run.start, run.stop, run.period)]
            for copy in copies[1:]:
                self._drop(copy, first)
            if run.period > 1:
                self._group(copies, len(parent.scopes), ceil(run.own))
            elif first[0].is_call:
                if run.copies > 1:
                    self.repeats[first[0].scopes] = tuple(copy[0].scopes[-1] for copy in copies)
                self.level(first[0])
            else:
                self.kept.update((node.name, node) for node in first[0].members)

    def _runs(self, parts: Sequence[Part], longest: int, own: float) -> Iterator[Run]:
        """A level where no module has a like has nothing to compare."""
        paths = Counter(_numbered(part.scopes[-1].path) for part in parts if part.is_call)
        if max(paths.values(), default=0) < 2:
            return iter([Run(i, 1, 1) for i in range(len(parts))])
        return runs(self.patterns.row(parts), longest, own)

    def _drop(self, copy: Sequence[Part], first: Sequence[Part]) -> None:
        for part, twin in zip(copy, first, strict=True):
            pairs = zip(part.members, twin.members, strict=True)
            self.standing.update((dropped.name, kept.name) for dropped, kept in pairs)

    def _group(self, copies: Sequence[Sequence[Part]], depth: int, own: float) -> None:
        """Put the first copy in a scope of its own, and fold inside of it what reads as much alike as the copies do."""
        ends = tuple(_group_scope(copy) for copy in copies)
        members = tuple(
            replace(node, scopes=(*node.scopes[:depth], ends[0], *node.scopes[depth:]))
            for part in copies[0]
            for node in part.members
        )
        scopes = members[0].scopes[: depth + 1]
        self.repeats[scopes] = ends
        self.groups |= {end: _calls(copy) for end, copy in zip(ends, copies, strict=True)}
        self.modules = self.modules | {ends[0].path: self._told(ends[0], len(copies))}
        self.level(Part(scopes, members, True), len(copies[0]) - 1, own)

    def _told(self, group: Scope, copies: int) -> ModuleInfo:
        paths = dict.fromkeys(call.path for call in self.groups[group])
        learned = [self.modules[path].parameters for path in paths if path in self.modules]
        return ModuleInfo(group.path, group.kind, sum(learned), copies)


def _group_scope(copy: Sequence[Part]) -> Scope:
    """Named after the calls of one copy; the classes are told with their numbers."""
    calls = _calls(copy)
    kinds = Counter(call.kind for call in calls)
    paths = [calls[0].path, calls[-1].path] if calls[0].path != calls[-1].path else [calls[0].path]
    kind = ", ".join(f"{n} {kind}" if n > 1 else kind for kind, n in kinds.items())
    return Scope(" to ".join(paths), kind, calls[0].call)


def _calls(copy: Sequence[Part]) -> Scopes:
    return tuple(part.scopes[-1] for part in copy if part.is_call)


def _parts(parent: Part) -> Iterator[Part]:
    """What stands right under `parent`, in order."""
    depth, members = len(parent.scopes), []
    for i, node in enumerate(parent.members):
        if len(node.scopes) == depth:
            yield Part(parent.scopes, (node,), False)
            continue
        members.append(node)
        scopes = node.scopes[: depth + 1]
        following = parent.members[i + 1] if i + 1 < len(parent.members) else None
        if following is None or following.scopes[: depth + 1] != scopes:
            yield Part(scopes, tuple(members), True)
            members = []


def _numbered(path: str) -> str:
    """The path of a module without its numbers: `q_proj` and `k_proj` are no copies, `blocks.0` and `blocks.1` are."""
    return NUMBER.sub("#", path)


class _Patterns:
    """What equal parts share: kinds, operators, shapes, relative names, and the wiring inside; a number for each."""

    def __init__(self, graph: nx.MultiDiGraph) -> None:
        self.graph = graph
        self.known: dict[Hashable, int] = {}
        self.reads = {name: inputs_of(graph, name) for name in graph}
        self.fresh = frozenset(graph.graph["fresh"])
        self.named = {*graph.graph["free"], *graph.graph["pinned"]}
        self.unnamed = self._unnamed()

    def _unnamed(self) -> bool:
        """Whether there are sizes that are no input's and no attribute's: they may be a module's own."""
        dims = {dim for node in nodes(self.graph) for shape in node.outputs for dim in shape.dims}
        return any(symbol.name not in self.named for dim in dims for symbol in dim.symbols)

    def row(self, parts: Sequence[Part]) -> list[Item]:
        """The parts as `period.runs` compares them."""
        places = {node.name: (i, j) for i, part in enumerate(parts) for j, node in enumerate(part.members)}
        return [self._item(part, i, places) for i, part in enumerate(parts)]

    def _item(self, part: Part, number: int, places: dict[str, tuple[int, int]]) -> Item:
        index = {node.name: i for i, node in enumerate(part.members)}
        outside = (edge for node in part.members for edge in self.reads[node.name] if edge.source not in index)
        reads = tuple(Read((edge.source, edge.output), places.get(edge.source)) for edge in outside)
        pattern = self._pattern(part, index)
        return Item(self.known.setdefault(pattern, len(self.known)), reads, len(part.members), part.is_call)

    def _pattern(self, part: Part, index: dict[str, int]) -> Hashable:
        if part.members[0].kind in ("input", "output"):
            return part.members[0].name  # like nothing else
        shape, depth = self._by_appearance(part), len(part.scopes)
        path = part.scopes[-1].path if part.scopes else ""
        around: dict[Scopes, Hashable] = {}
        for node in part.members:
            if node.scopes not in around:
                around[node.scopes] = self._relative(node.scopes, depth) if part.is_call else ()
        return (
            _numbered(path) if part.is_call else "",
            *(
                (
                    self._work(node, path, part.is_call),
                    around[node.scopes],
                    tuple(map(shape, node.outputs)),
                    tuple((index.get(edge.source), edge.output, shape(edge.shape)) for edge in self.reads[node.name]),
                )
                for node in part.members
            ),
        )

    def _work(self, node: Node | Block, path: str, inside: bool) -> Hashable:
        """What a node does, with the parameters it reads named from the module at `path`, and their shapes."""
        if isinstance(node, Block):
            return node.kind, node.operators, node.parameters, node.words
        if not node.parameters:
            return node.kind, node.operator
        shapes = self.graph.graph["parameters"]
        names = (name.removeprefix(f"{path}.") if inside else _numbered(name) for name in node.parameters)
        return node.kind, node.operator, *zip(names, map(shapes.get, node.parameters), strict=True)

    def _relative(self, scopes: Scopes, depth: int) -> Hashable:
        """The module calls from `depth` on, and how many each stands for already."""
        repeats, path = self.graph.graph["repeats"], scopes[depth - 1].path
        return tuple(
            (scope.path.removeprefix(f"{path}.") if i > depth else "", scope.kind, len(repeats.get(scopes[:i], ())))
            for i, scope in enumerate(scopes[depth - 1 :], start=depth)
        )

    def _by_appearance(self, part: Part) -> Callable[[Shape], Hashable]:
        """How to compare shapes: sizes that values decide, and those that first appear inside the part, count by their
        order, not by their names."""
        if not self.unnamed:
            return lambda shape: shape
        inside = {node.name for node in part.members}
        read = (edge.shape for node in part.members for edge in self.reads[node.name] if edge.source not in inside)
        known = dict.fromkeys(symbol for shape in read for symbol in _symbols(shape))
        made = dict.fromkeys(symbol for node in part.members for shape in node.outputs for symbol in _symbols(shape))
        own = [symbol for symbol in known if symbol.name in self.fresh]
        own += [symbol for symbol in made if symbol not in known and symbol.name not in self.named]
        if not own:
            return lambda shape: shape
        places = {symbol: Expr.symbol(f"own{i}") for i, symbol in enumerate(own)}
        return lambda shape: replace(shape, dims=tuple(dim.replace(places) for dim in shape.dims))


def _symbols(shape: Shape) -> list[Symbol]:
    return [symbol for dim in shape.dims for symbol in sorted(dim.symbols, key=lambda symbol: symbol.name)]


def _reroute(graph: nx.MultiDiGraph, standing: dict[str, str], kept: list[Node | Block]) -> Iterator[Edge]:
    """The edges between kept nodes, with each dropped node's edges at the one that stands for it."""
    position = {node.name: i for i, node in enumerate(kept)}
    seen: set[tuple[str, int, str]] = set()
    for edge in sorted(edges(graph), key=lambda edge: edge.source in standing or edge.target in standing):
        source, target = standing_for(edge.source, standing), standing_for(edge.target, standing)
        copied = edge.source in standing or edge.target in standing
        tensor = (source, edge.output, target)
        if position[source] >= position[target] or (copied and tensor in seen):
            continue
        seen.add(tensor)
        yield replace(edge, source=source, target=target)


def standing_for(name: str, standing: Mapping[str, str]) -> str:
    """The node that is left for this one; what stands for a block's node may itself be folded inside the block."""
    while name in standing:
        name = standing[name]
    return name
