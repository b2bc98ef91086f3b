"""Modules closed to one node, and one module cut out of the whole.

>>> [node.name for node in nodes(collapse(graph, depth=1))]
['ids', '@embed', '@blocks.0', '@norm', '@head', 'output']
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from itertools import count

import networkx as nx

from shapeflow.errors import DrawError
from shapeflow.graph.flow import derive, edges, merge, nodes
from shapeflow.trace.result import Edge, Node, Scope, Shape

Scopes = tuple[Scope, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """One call of a module, drawn as one node.

    `scopes` ends with the module itself and is empty for the whole model. `operators` counts what runs inside,
    `parameters` the unique numbers in the module and below it. `outputs` are the tensors that leave it and are read.
    Other kinds than `module` stand for operators of one module, `scopes` being those around them: `views`, whose
    operators `words` names, `made` from sizes alone, and `more` for what a page has no room for.
    """

    name: str
    scopes: tuple[Scope, ...]
    operators: int
    parameters: int
    outputs: tuple[Shape, ...] = ()
    kind: str = "module"
    words: tuple[str, ...] = ()


def collapse(graph: nx.MultiDiGraph, depth: int) -> nx.MultiDiGraph:
    """Show `depth` levels of modules, those of the last level closed to one `Block` each; 0 closes the whole model.

    Tensors that stay inside a block disappear. A tensor that several operators of a block read is one edge into it.
    """
    if depth < 0:
        raise DrawError(f"depth is {depth}; it counts levels of modules: 0 (the whole model in one box), 1, 2, ...")
    return _close(graph, lambda scopes: level(graph, scopes, depth))


def level(graph: nx.MultiDiGraph, scopes: Scopes, depth: int) -> Scopes | None:
    """The outermost scopes with `depth` modules among them, None where there are fewer: a group is no module."""
    ends = (i for i in range(len(scopes) + 1) if modules_among(graph, scopes[:i]) == depth)
    return next((scopes[:i] for i in ends), None)


def modules_among(graph: nx.MultiDiGraph, scopes: Scopes) -> int:
    """How many of the scopes are calls of modules, not groups of them that `fold` has made."""
    groups = graph.graph.get("groups", {})
    return sum(scope not in groups for scope in scopes)


def close(graph: nx.MultiDiGraph, opened: Set[Scopes]) -> nx.MultiDiGraph:
    """Show the inside of the module calls in `opened` (`()` is the whole model) and close every other to a `Block`.

    A call counts as open only when all calls around it are; one that is opened without them changes nothing.
    """

    def closing(scopes: Scopes) -> Scopes | None:
        return next((scopes[:i] for i in range(len(scopes) + 1) if scopes[:i] not in opened), None)

    return _close(graph, closing)


def contract(graph: nx.MultiDiGraph, members: Mapping[str, Block]) -> nx.MultiDiGraph:
    """Put the block that `members` names for a node in the place of it, and one block in the place of several.

    A block that is given stands where the first of its nodes stood. No way may lead out of a block and back into it.
    Its `outputs` are filled in here.
    """
    home = {name: members[name].name if name in members else name for name in graph}
    closed = {block.name: block for block in members.values()}
    tensors = list(_reroute(graph, home, closed))
    leaving: dict[str, dict[int, Shape]] = {name: {} for name in closed}
    for edge in tensors:
        leaving.get(edge.source, {})[edge.output] = edge.shape
    for name, shapes in leaving.items():
        closed[name] = replace(closed[name], outputs=tuple(shapes[output] for output in sorted(shapes)))
    left = {node.name: node for node in nodes(graph)} | closed
    kept = [left[name] for name in dict.fromkeys(home.values())]
    standing = {name: block.name for name, block in members.items()}
    return merge(derive(graph, kept, tensors), graph, standing)


def within(graph: nx.MultiDiGraph, path: str) -> nx.MultiDiGraph:
    """The part of the graph inside the module at `path`, a graph of its own.

    Tensors that come from outside become inputs, those that leave end at `output`. A module that ran several times
    keeps a scope for each call; of one that ran once the scope itself is left out, as it is for a whole model.
    """
    depths = {node.name: depth for node in nodes(graph) if (depth := _depth_of(node.scopes, path)) is not None}
    inside = [node for node in nodes(graph) if node.name in depths]
    if not inside:
        raise DrawError(f"no module {path!r} ran; modules that did: {', '.join(_paths(graph)) or 'none'}")
    calls = {node.scopes[depths[node.name]] for node in inside}
    first = 1 if len(calls) == 1 else 0
    inner = [replace(node, scopes=node.scopes[depths[node.name] + first :]) for node in inside]
    crossing = [edge for edge in edges(graph) if edge.source in depths or edge.target in depths]
    arriving = {edge.source for edge in crossing if edge.source not in depths}
    sources = [_boundary(graph.nodes[name]["node"]) for name in graph if name in arriving]
    leaving = _leaving([edge for edge in crossing if edge.target not in depths])
    ending = [Node("output", "output")] if leaving else []
    repeats = {
        scopes[depth + first :]: copies
        for scopes, copies in graph.graph["repeats"].items()
        if (depth := _depth_of(scopes, path)) is not None and len(scopes) > depth + first
    }
    return derive(
        graph,
        [*sources, *inner, *ending],
        [*(edge for edge in crossing if edge.target in depths), *leaving],
        name=next(iter(calls)).kind,
        outputs=tuple(edge.shape for edge in leaving),
        output_names=tuple(edge.source for edge in leaving),
        repeats=repeats,
        ends={},
        modules=_below(graph.graph["modules"], path),
        parameters=_below(graph.graph["parameters"], path),
    )


def block_name(scopes: tuple[Scope, ...]) -> str:
    """A key that no operator can have: `@blocks.0`, `@blocks.0#2` for the second call."""
    if not scopes:
        return "@"
    return f"@{scopes[-1].path}" + (f"#{scopes[-1].call + 1}" if scopes[-1].call else "")


def _close(graph: nx.MultiDiGraph, closing: Callable[[Scopes], Scopes | None]) -> nx.MultiDiGraph:
    """Close the module call that `closing` names for the calls around a node, if it names one."""
    homes = {node.name: _closing(node, closing) for node in nodes(graph)}
    blocks = _closed_blocks(graph, homes)
    return contract(graph, {name: blocks[scopes] for name, scopes in homes.items() if scopes is not None})


def _closing(node: Node | Block, closing: Callable[[Scopes], Scopes | None]) -> Scopes | None:
    return None if node.kind in ("input", "output") else closing(node.scopes)


def _closed_blocks(graph: nx.MultiDiGraph, homes: Mapping[str, Scopes | None]) -> dict[Scopes, Block]:
    modules = graph.graph["modules"]
    closed: dict[Scopes, Block] = {}
    for node in nodes(graph):
        scopes = homes[node.name]
        if scopes is None:
            continue
        path = scopes[-1].path if scopes else ""
        parameters = modules[path].parameters if path in modules else 0
        block = closed.get(scopes) or Block(block_name(scopes), scopes, 0, parameters)
        closed[scopes] = replace(block, operators=block.operators + _operators(node))
    return closed


def _operators(node: Node | Block) -> int:
    return node.operators if isinstance(node, Block) else int(node.kind == "operator")


def _reroute(graph: nx.MultiDiGraph, home: dict[str, str], closed: dict[str, Block]) -> Iterator[Edge]:
    """The edges between the nodes that are left; blocks number what enters and what leaves them anew."""
    crossing = [edge for edge in edges(graph) if home[edge.source] != home[edge.target]]
    outputs = _output_numbers(graph, crossing, home, closed)
    arguments = {name: count() for name in closed}
    seen: set[tuple[str, str, int]] = set()
    for edge in crossing:
        source, target, tensor = home[edge.source], home[edge.target], (edge.source, edge.output)
        argument = edge.argument
        if target in closed:
            if (target, *tensor) in seen:
                continue
            seen.add((target, *tensor))
            argument = next(arguments[target])
        yield Edge(source, target, outputs.get(tensor, edge.output), argument, edge.shape)


def _output_numbers(
    graph: nx.MultiDiGraph, crossing: list[Edge], home: dict[str, str], closed: dict[str, Block]
) -> dict[tuple[str, int], int]:
    """For each tensor that leaves a block, which output of the block it is: in the order of their making."""
    position = {name: i for i, name in enumerate(graph)}
    tensors = {(edge.source, edge.output) for edge in crossing if home[edge.source] in closed}
    numbers = {name: count() for name in closed}
    return {
        tensor: next(numbers[home[tensor[0]]])
        for tensor in sorted(tensors, key=lambda tensor: (position[tensor[0]], tensor[1]))
    }


def _depth_of(scopes: tuple[Scope, ...], path: str) -> int | None:
    """At which place of the scopes the module stands, None when it is none of them."""
    return next((depth for depth, scope in enumerate(scopes) if scope.path == path), None)


def _boundary(node: Node | Block) -> Node:
    """A node outside whose tensor is read inside: an input of the part, unless it is a constant anyway."""
    return Node(node.name, "constant" if node.kind == "constant" else "input", outputs=node.outputs)


def _leaving(outgoing: list[Edge]) -> list[Edge]:
    tensors = {(edge.source, edge.output): edge for edge in outgoing}
    return [replace(edge, target="output", argument=i) for i, edge in enumerate(tensors.values())]


def _paths(graph: nx.MultiDiGraph) -> list[str]:
    return list(dict.fromkeys(scope.path for node in nodes(graph) for scope in node.scopes))


def _below(named: dict, path: str) -> dict:
    """The entries of a module and of what is under it; the module itself is also the root `""` of its own graph."""
    below = {key: value for key, value in named.items() if key == path or key.startswith(f"{path}.")}
    return {**below, "": named[path]} if path in named else below
