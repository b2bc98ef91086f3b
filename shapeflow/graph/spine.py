"""The residual stream: the way through a graph that sums keep open beside each of their branches.

>>> spine(graph)
('embedding', 'add', 'add_1', 'layer_norm')
"""

from __future__ import annotations

from collections import deque

import networkx as nx

from shapeflow.graph.flow import inputs_of, nodes
from shapeflow.trace.result import Edge, Node

SUMS = frozenset({"add", "add_", "iadd", "radd"})


def spine(graph: nx.MultiDiGraph) -> list[tuple[str, ...]]:
    """The chains of nodes that belong on one straight line, each from above to below.

    A sum whose one input also feeds the other is a residual sum: its line is the one that skips the branch. The lines
    between such sums, and from the first and the last of them to where the tensor comes from and goes, join them.
    """
    position = {name: i for i, name in enumerate(graph)}
    skipping: dict[str, str] = {}
    for node in nodes(graph):
        source = _skip(graph, node.name, position) if _sums(node) else None
        if source is not None:
            skipping[node.name] = source
    return _chains(graph, skipping)


def _sums(node) -> bool:
    return isinstance(node, Node) and node.operator in SUMS


def _skip(graph: nx.MultiDiGraph, name: str, position: dict[str, int]) -> str | None:
    """The source of the input that skips a branch; None when neither input comes from the other."""
    read = inputs_of(graph, name)
    if len(read) != 2 or read[0].source == read[1].source or read[0].shape.dims != read[1].shape.dims:
        return None
    early, late = sorted((edge.source for edge in read), key=position.__getitem__)
    return early if _reaches(graph, early, late, position) else None


def _reaches(graph: nx.MultiDiGraph, early: str, late: str, position: dict[str, int]) -> bool:
    """Whether a way leads from `early` to `late`: looked for backwards, through what stands between them."""
    waiting, seen = deque([late]), {late}
    while waiting:
        for source in graph.predecessors(waiting.popleft()):
            if source == early:
                return True
            if source not in seen and position[source] > position[early]:
                seen.add(source)
                waiting.append(source)
    return False


def _chains(graph: nx.MultiDiGraph, skipping: dict[str, str]) -> list[tuple[str, ...]]:
    """The skipping lines, joined where the way between two of them is plain."""
    above = dict(skipping)
    taken = set(above.values())
    for name in dict.fromkeys([*skipping.values(), *skipping]):
        _lengthen_up(graph, name, above, taken)
    for name in skipping:
        _lengthen_down(graph, name, above, taken)
    below = {source: name for name, source in above.items()}
    return [_chain(name, below) for name in below if name not in above]


def _lengthen_up(graph: nx.MultiDiGraph, name: str, above: dict[str, str], taken: set[str]) -> None:
    """From where a line begins, the way back along first inputs, to the next line or to where the tensor comes from."""
    while name not in above and (edge := _first(inputs_of(graph, name))) and edge.source not in taken:
        above[name] = edge.source
        taken.add(edge.source)
        name = edge.source


def _lengthen_down(graph: nx.MultiDiGraph, name: str, above: dict[str, str], taken: set[str]) -> None:
    """From where a line ends, the way on as long as there is one reader."""
    while name not in taken and len(readers := list(dict.fromkeys(graph.successors(name)))) == 1:
        reader = readers[0]
        if reader in above or inputs_of(graph, reader)[0].source != name:  # what reads it beside its own input
            return
        above[reader] = name
        taken.add(name)
        name = reader


def _first(read: list[Edge]) -> Edge | None:
    return read[0] if read else None


def _chain(name: str, below: dict[str, str]) -> tuple[str, ...]:
    names = [name]
    while names[-1] in below:
        names.append(below[names[-1]])
    return tuple(names)
