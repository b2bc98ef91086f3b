"""The nodes of a drawing in the boxes of their modules, nested as the modules are.

>>> tree = clusters(graph)
>>> [type(item).__name__ for item in tree.items]
['Node', 'Node', 'Cluster', 'Node', 'Node']
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import networkx as nx

from shapeflow.graph import Block, nodes
from shapeflow.trace.result import Node, Scope

Scopes = tuple[Scope, ...]


@dataclass(frozen=True, slots=True)
class Cluster:
    """A module call with more than one node in it: nodes and clusters in the order of running."""

    scopes: Scopes
    items: list[Node | Block | Cluster] = field(default_factory=list)

    def walk(self) -> Iterator[tuple[Node | Block, Scopes]]:
        """Every node below, with the scopes of the innermost box around it."""
        for item in self.items:
            if isinstance(item, Cluster):
                yield from item.walk()
            else:
                yield item, self.scopes


def clusters(graph: nx.MultiDiGraph) -> Cluster:
    """The whole graph as one cluster; a module with a single node needs no box."""
    around = {node.name: _prefixes(node) for node in nodes(graph)}
    members = Counter(scopes for prefixes in around.values() for scopes in prefixes)
    known: dict[Scopes, Cluster] = {(): Cluster(())}
    for node in nodes(graph):
        parent = known[()]
        for scopes in around[node.name]:
            if members[scopes] == 1:
                break
            if scopes not in known:
                known[scopes] = Cluster(scopes)
                parent.items.append(known[scopes])
            parent = known[scopes]
        parent.items.append(node)
    return known[()]


def _prefixes(node: Node | Block) -> list[Scopes]:
    """The module calls around a node, outermost first; a closed module is not around itself."""
    depth = len(node.scopes) - (isinstance(node, Block) and node.kind == "module")
    return [node.scopes[:i] for i in range(1, depth + 1)]
