"""Equal neighbouring modules shown once: twelve decoder blocks become one that is marked x12.

    >>> page = fold(graph)
    >>> {scopes[-1].path: len(copies) for scopes, copies in page.graph["repeats"].items()}
    {'blocks.0': 12}

Two calls are equal when their names differ in numbers only, the same operators with the same shapes and parameters of
the same shapes are wired alike inside, and read alike from outside:
each from the one before it (a chain) or both from the same tensor (branches). Names of parameters and of modules count
from the module itself, and sizes that only exist inside it (a count of chosen tokens) by the order of their appearance.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace

import networkx as nx

from shapeflow.dims.expr import Expr, Symbol
from shapeflow.graph.block import Block
from shapeflow.graph.flow import derive, edges, inputs_of, merge, nodes
from shapeflow.trace.result import Edge, Node, Scope, Shape

Scopes = tuple[Scope, ...]

NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Call:
    """The nodes of one module call, in execution order."""

    scopes: Scopes
    members: tuple[Node | Block, ...]


def fold(graph: nx.MultiDiGraph) -> nx.MultiDiGraph:
    """Keep the first of each run of equal neighbours, at every level of the module tree.

    `graph.graph["repeats"]` of the result tells, for the scopes of each call that was kept, the scopes' ends of all the
    calls that it stands for. What left the last copy leaves the kept one now, what entered any copy enters it.
    """
    standing: dict[str, str] = {}
    repeats: dict[Scopes, Scopes] = dict(graph.graph["repeats"])
    _fold_level(graph, Call((), tuple(nodes(graph))), standing, repeats)
    kept = [node for node in nodes(graph) if node.name not in standing]
    return merge(derive(graph, kept, _reroute(graph, standing, kept), repeats=repeats), graph, standing)


def _fold_level(graph: nx.MultiDiGraph, parent: Call, standing: dict[str, str], repeats: dict[Scopes, Scopes]) -> None:
    """Fold the modules that `parent` calls; `standing` collects which node stands for a dropped one."""
    for run in _runs(graph, list(_children(parent))):
        first, *copies = run
        if copies:
            repeats[first.scopes] = tuple(call.scopes[-1] for call in run)
        for copy in copies:
            pairs = zip(copy.members, first.members, strict=True)
            standing.update((dropped.name, kept.name) for dropped, kept in pairs)
        _fold_level(graph, first, standing, repeats)


def _children(parent: Call) -> Iterator[Call | None]:
    """The calls right under `parent`, in order; None for a node in between, which parts neighbours."""
    depth, members = len(parent.scopes), []
    for i, node in enumerate(parent.members):
        if len(node.scopes) == depth:
            yield None
            continue
        members.append(node)
        scopes = node.scopes[: depth + 1]
        following = parent.members[i + 1] if i + 1 < len(parent.members) else None
        if following is None or following.scopes[: depth + 1] != scopes:
            yield Call(scopes, tuple(members))
            members = []


def _runs(graph: nx.MultiDiGraph, calls: list[Call | None]) -> Iterator[list[Call]]:
    """Neighbouring calls that are equal, each run as one list."""
    run: list[Call] = []
    pattern = link = None
    for call in calls:
        next_pattern = None if call is None else _pattern(graph, call)
        alike = run and call and next_pattern == pattern and _numbered(run[-1]) == _numbered(call)
        next_link = _link(graph, run, call) if alike and call else None
        if call and next_link is not None and link in (None, next_link):
            run.append(call)
            link = next_link
            continue
        if run:
            yield run
        run, pattern, link = ([call] if call else []), next_pattern, None
    if run:
        yield run


def _numbered(call: Call) -> str:
    """The path of a module without its numbers: `q_proj` and `k_proj` are no copies, `blocks.0` and `blocks.1` are."""
    return NUMBER.sub("#", call.scopes[-1].path)


def _pattern(graph: nx.MultiDiGraph, call: Call) -> Hashable:
    """What equal calls share: kinds, operators, shapes, relative names, and the wiring inside."""
    index = {node.name: i for i, node in enumerate(call.members)}
    shape = _by_appearance(graph, call)
    return tuple(
        (
            _work(graph, node, call.scopes[-1].path),
            _relative_scopes(graph, node, len(call.scopes)),
            tuple(map(shape, node.outputs)),
            tuple((index.get(edge.source), edge.output, shape(edge.shape)) for edge in inputs_of(graph, node.name)),
        )
        for node in call.members
    )


def _work(graph: nx.MultiDiGraph, node: Node | Block, path: str) -> Hashable:
    """What a node does, with the parameters it reads named from the module at `path`, and their shapes."""
    if isinstance(node, Block):
        return node.kind, node.operators, node.parameters, node.words
    shapes = graph.graph["parameters"]
    read = tuple((name.removeprefix(f"{path}."), shapes.get(name)) for name in node.parameters)
    return node.kind, node.operator, read


def _relative_scopes(graph: nx.MultiDiGraph, node: Node | Block, depth: int) -> Hashable:
    """The module calls around a node from `depth` on, and how many each stands for already."""
    repeats, path = graph.graph["repeats"], node.scopes[depth - 1].path
    return tuple(
        (scope.path.removeprefix(f"{path}.") if i > depth else "", scope.kind, len(repeats.get(node.scopes[:i], ())))
        for i, scope in enumerate(node.scopes[depth - 1 :], start=depth)
    )


def _by_appearance(graph: nx.MultiDiGraph, call: Call) -> Callable[[Shape], Hashable]:
    """How to compare shapes: sizes that first appear inside the call count by their order, not by their names."""
    members = {node.name for node in call.members}
    read = (edge.shape for node in call.members for edge in inputs_of(graph, node.name) if edge.source not in members)
    known = {symbol for shape in read for symbol in _symbols(shape)}
    named = {*graph.graph["free"], *graph.graph["pinned"]}
    made = dict.fromkeys(symbol for node in call.members for shape in node.outputs for symbol in _symbols(shape))
    own = [symbol for symbol in made if symbol not in known and symbol.name not in named]
    if not own:
        return lambda shape: shape
    places = {symbol: Expr.symbol(f"own{i}") for i, symbol in enumerate(own)}
    return lambda shape: replace(shape, dims=tuple(dim.replace(places) for dim in shape.dims))


def _symbols(shape: Shape) -> list[Symbol]:
    return [symbol for dim in shape.dims for symbol in sorted(dim.symbols, key=lambda symbol: symbol.name)]


def _link(graph: nx.MultiDiGraph, run: list[Call], call: Call) -> Hashable | None:
    """How `call` hangs on the run before it, for each tensor that it reads from outside; None when it does not fit.

    A number pair: an output of the call before. `same`: the tensor that the call before reads there. `own`: another.
    """
    before = {node.name: i for i, node in enumerate(run[-1].members)}
    inside = {node.name for node in call.members}
    earlier = {node.name for part in run[:-1] for node in part.members}
    links = []
    for node, twin in zip(call.members, run[-1].members, strict=True):
        for edge, twins in zip(inputs_of(graph, node.name), inputs_of(graph, twin.name), strict=True):
            if edge.source in inside:
                continue
            if (edge.source, edge.output) == (twins.source, twins.output):
                links.append("same")
            elif edge.source in earlier:
                return None
            else:
                links.append((before[edge.source], edge.output) if edge.source in before else "own")
    return tuple(links)


def _reroute(graph: nx.MultiDiGraph, standing: dict[str, str], kept: list[Node | Block]) -> Iterator[Edge]:
    """The edges between kept nodes, with each dropped node's edges at the one that stands for it."""
    position = {node.name: i for i, node in enumerate(kept)}
    seen: set[tuple[str, int, str]] = set()
    for edge in sorted(edges(graph), key=lambda edge: edge.source in standing or edge.target in standing):
        source, target = _standing_for(edge.source, standing), _standing_for(edge.target, standing)
        copied = edge.source in standing or edge.target in standing
        tensor = (source, edge.output, target)
        if position[source] >= position[target] or (copied and tensor in seen):
            continue
        seen.add(tensor)
        yield replace(edge, source=source, target=target)


def _standing_for(name: str, standing: dict[str, str]) -> str:
    """The node that is left for this one; what stands for a block's node may itself be folded inside the block."""
    while name in standing:
        name = standing[name]
    return name
