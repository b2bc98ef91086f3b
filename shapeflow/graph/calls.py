"""A graph as the tree of its module calls: what ran inside what, in the order of running.

>>> root = call_tree(graph)
>>> [item.name for item in root.items]
['ids', 'embed', 'ones', 'tril', 'blocks.0', 'blocks.1', 'head', 'output']
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import networkx as nx

from shapeflow.graph.block import Block, block_name
from shapeflow.graph.flow import nodes
from shapeflow.trace.result import Node, Scope, Shape


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """A node of the graph. Two of one `signature` do the same with the same shapes, sizes being the same by name."""

    node: Node | Block
    name: str
    signature: int
    operators: Counter[object]


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A module call with what ran inside; of the whole model the scopes are empty.

    `name` is the path from the call around it, with the number of the call where there are several. `signature` tells
    what runs inside, whatever it is called, `operators` how often each operator and each of its results occur.
    """

    scopes: tuple[Scope, ...]
    name: str
    items: list[Leaf | Call] = field(default_factory=list)
    _known: dict[str, object] = field(default_factory=dict, repr=False)

    @property
    def path(self) -> str:
        return self.scopes[-1].path if self.scopes else ""

    @property
    def kind(self) -> str:
        return self.scopes[-1].kind if self.scopes else ""

    @property
    def signature(self) -> int:
        if "signature" not in self._known:
            self._known["signature"] = hash((self.kind, *(item.signature for item in self.items)))
        return self._known["signature"]  # pyright: ignore[reportReturnType]

    @property
    def operators(self) -> Counter[object]:
        if "operators" not in self._known:
            total: Counter[object] = Counter()
            for item in self.items:
                total.update(item.operators)
            self._known["operators"] = total
        return self._known["operators"]  # pyright: ignore[reportReturnType]

    def leaves(self) -> Iterator[Leaf]:
        """The nodes inside, at any depth."""
        for item in self.items:
            if isinstance(item, Call):
                yield from item.leaves()
            else:
                yield item


Item: TypeAlias = Leaf | Call


def call_tree(graph: nx.MultiDiGraph) -> Call:
    """The whole graph as one call; parts of a call that other code interrupts are one all the same."""
    texts: dict[Shape, str] = {}
    root = Call((), "")
    calls: dict[tuple[Scope, ...], Call] = {(): root}
    for node in nodes(graph):
        parent = root
        scopes = node.scopes[:-1] if isinstance(node, Block) and node.kind == "module" else node.scopes
        for i in range(1, len(scopes) + 1):
            if scopes[:i] not in calls:
                calls[scopes[:i]] = Call(scopes[:i], _relative(scopes[i - 1], parent.path))
                parent.items.append(calls[scopes[:i]])
            parent = calls[scopes[:i]]
        parent.items.append(_leaf(node, parent.path, texts))
    return root


def closed(graph: nx.MultiDiGraph, call: Call) -> Block:
    """The call as one node."""
    module = graph.graph["modules"].get(call.path)
    inside = [leaf.node for leaf in call.leaves()]
    operators = sum(node.operators if isinstance(node, Block) else node.kind == "operator" for node in inside)
    names = {node.name for node in inside}
    leaving = {
        (edge.source, edge.output): edge.shape
        for node in inside
        for _, target, edge in graph.out_edges(node.name, data="edge")
        if target not in names
    }
    return Block(
        block_name(call.scopes), call.scopes, operators, module.parameters if module else 0, tuple(leaving.values())
    )


def _relative(scope: Scope, around: str) -> str:
    return scope.path.removeprefix(f"{around}." if around else "") + (f"#{scope.call + 1}" if scope.call else "")


def _leaf(node: Node | Block, around: str, texts: dict[Shape, str]) -> Leaf:
    shapes = tuple(_text(shape, texts) for shape in node.outputs)
    if isinstance(node, Block):
        name = _relative(node.scopes[-1], around) if node.scopes and node.kind == "module" else node.name
        work: object = (node.kind, node.operators, node.parameters, node.words)
    else:
        name = node.name if node.kind in ("input", "output") else node.operator or node.kind
        work = (node.kind, node.operator, tuple(path.rpartition(".")[2] for path in node.parameters))
    return Leaf(node, name, hash((work, shapes)), Counter({work: 1, (work, shapes): 1}))


def _text(shape: Shape, texts: dict[Shape, str]) -> str:
    if shape not in texts:
        texts[shape] = f"{shape}:{shape.dtype}"
    return texts[shape]
