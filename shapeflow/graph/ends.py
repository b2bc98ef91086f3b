"""What goes in and what comes out, tensors of one kind together: 24 tensors of a cache are one node.

>>> page = bundle(graph)
>>> [len(page.graph["ends"].get(node.name, "1")) for node in nodes(page) if node.kind == "output"]
[1, 24]
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import replace

import networkx as nx

from shapeflow.graph.block import Block
from shapeflow.graph.flow import derive, edges, inputs_of, merge, nodes
from shapeflow.trace.result import Edge, Node

# From this many tensors of one name and shape on: two are a pair (`mean`, `logvar`) to be told apart.
MANY = 3


def bundle(graph: nx.MultiDiGraph) -> nx.MultiDiGraph:
    """Inputs of one kind as one input, and a node of its own for each kind of output that has a name.

    Of one kind are tensors of one shape whose names differ from the first number on: `cache.layers[0].keys`,
    `cache.layers[3].values`. `graph.graph["ends"]` of the result tells which tensors such a node stands for.
    """
    ends: dict[str, tuple[str, ...]] = {}
    standing = _inputs(graph, ends)
    outputs = _outputs(graph, ends)
    moved = {edge: name for name, group in outputs.items() for edge in group}
    last = {edge.target for edge in moved}
    tensors = (
        _moved(edge, standing, moved) if edge.source in standing or edge.target in last else edge
        for edge in edges(graph)
    )
    return merge(derive(graph, _kept(graph, standing, outputs), tensors, ends=ends), graph, standing)


def _moved(edge: Edge, standing: dict[str, str], moved: dict[Edge, str]) -> Edge:
    return replace(edge, source=standing.get(edge.source, edge.source), target=moved.get(edge, edge.target))


def _kept(graph: nx.MultiDiGraph, standing: dict[str, str], outputs: dict[str, list[Edge]]) -> Iterator[Node | Block]:
    for node in nodes(graph):
        if node.kind == "output" and outputs:
            for name, group in outputs.items():
                yield replace(node, name=name, outputs=tuple(edge.shape for edge in group))
        elif standing.get(node.name, node.name) == node.name:
            yield node


def _inputs(graph: nx.MultiDiGraph, ends: dict[str, tuple[str, ...]]) -> dict[str, str]:
    """For each input of which there are many alike: the first of them, which stands for all."""
    groups: dict[Hashable, list[str]] = defaultdict(list)
    for node in nodes(graph):
        if node.kind == "input" and len(node.outputs) == 1:
            groups[stem(node.name), node.outputs].append(node.name)
    many = {names[0]: tuple(names) for names in groups.values() if len(names) >= MANY}
    ends.update(many)
    return {name: first for first, names in many.items() for name in names}


def _outputs(graph: nx.MultiDiGraph, ends: dict[str, tuple[str, ...]]) -> dict[str, list[Edge]]:
    """The edges that each output node takes; what has no name and no like ends at the model's own `output`."""
    leaving = [edge for node in nodes(graph) if node.kind == "output" for edge in inputs_of(graph, node.name)]
    if not leaving:
        return {}
    names, own = graph.graph["output_names"], leaving[0].target
    groups: dict[Hashable, list[Edge]] = defaultdict(list)
    for edge in leaving:
        groups[stem(names[edge.argument]), edge.shape].append(edge)
    found: dict[str, list[Edge]] = defaultdict(list)
    for group in groups.values():
        name = stem(names[group[0].argument])
        if not name and len(group) < MANY:
            found[own] += group
            continue
        target = own if not found else f"{own} {name or group[0].argument}"
        found[target] += group
        ends[target] = (*ends.get(target, ()), *(names[edge.argument] for edge in group))
    return found


def stem(name: str) -> str:
    """What tensors of one kind share of their names: `cache.layers[0].keys` and `cache.layers[1].keys` are `cache`."""
    head = re.split(r"[\d\[]", name, maxsplit=1)[0]
    return head.rsplit(".", 1)[0].rstrip("._") if head != name else name


def spoken(names: tuple[str, ...]) -> str:
    """One name for the tensors that a node stands for."""
    return names[0] if len(names) == 1 else stem(names[0])
