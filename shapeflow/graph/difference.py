"""What is other in a second graph: operators added, removed or changed, and parameters.

>>> difference = diff(graph, after)
>>> [node.operator for node in difference.added]
['dropout']
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from difflib import SequenceMatcher

import networkx as nx

from shapeflow.graph.block import Block
from shapeflow.graph.flow import inputs_of, nodes
from shapeflow.trace.result import Node

Pair = tuple[Node | Block, Node | Block]


@dataclass(frozen=True, slots=True)
class Difference:
    """The way from one graph to another; parameters are told by dotted name."""

    added: tuple[Node | Block, ...] = ()
    removed: tuple[Node | Block, ...] = ()
    changed: tuple[Pair, ...] = ()
    parameters_added: tuple[str, ...] = ()
    parameters_removed: tuple[str, ...] = ()
    parameters_changed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__slots__)


def diff(before: nx.MultiDiGraph, after: nx.MultiDiGraph) -> Difference:
    """Compare two graphs.

    Nodes are the same when they do the same thing in the same place: aligned in execution order by module path, kind
    and operator, for their own names shift with every operator before them. One that is the same has changed when its
    output shapes, its parameters, or the nodes that it reads are others.
    """
    old, new = list(nodes(before)), list(nodes(after))
    pairs = _align(old, new)
    partner = {a.name: b.name for a, b in pairs}
    matched = set(partner.values())
    rewired = _rewired(before, after, partner)
    shapes, new_shapes = before.graph["parameters"], after.graph["parameters"]
    return Difference(
        added=tuple(node for node in new if node.name not in matched),
        removed=tuple(node for node in old if node.name not in partner),
        changed=tuple((a, b) for a, b in pairs if _work(a) != _work(b) or a.name in rewired),
        parameters_added=tuple(name for name in new_shapes if name not in shapes),
        parameters_removed=tuple(name for name in shapes if name not in new_shapes),
        parameters_changed=tuple(name for name in shapes if name in new_shapes and shapes[name] != new_shapes[name]),
    )


def _align(old: list[Node | Block], new: list[Node | Block]) -> list[Pair]:
    matcher = SequenceMatcher(None, [_place(node) for node in old], [_place(node) for node in new], autojunk=False)
    return [(old[block.a + i], new[block.b + i]) for block in matcher.get_matching_blocks() for i in range(block.size)]


def _place(node: Node | Block) -> Hashable:
    """What makes two nodes the same: where they are and what they do; an input is its name."""
    path = tuple((scope.path, scope.kind, scope.call) for scope in node.scopes)
    if isinstance(node, Block):
        return path, node.kind
    return path, node.kind, node.name if node.kind == "input" else node.operator


def _work(node: Node | Block) -> Hashable:
    if isinstance(node, Block):
        return node.outputs, node.operators, node.parameters
    return node.outputs, node.parameters


def _rewired(before: nx.MultiDiGraph, after: nx.MultiDiGraph, partner: dict[str, str]) -> set[str]:
    """The nodes that read other tensors; a source that was added or removed is told once, at that source."""
    matched = set(partner.values())
    rewired = set()
    for a, b in partner.items():
        old, new = inputs_of(before, a), inputs_of(after, b)
        pairs = [(x, y) for x, y in zip(old, new, strict=False) if x.source in partner and y.source in matched]
        if len(old) != len(new) or any((partner[x.source], x.output) != (y.source, y.output) for x, y in pairs):
            rewired.add(a)
    return rewired
