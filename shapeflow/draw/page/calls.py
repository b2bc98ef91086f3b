"""The module calls of a graph as a tree, and the tensors that cross the border of each.

A place in the tree is the scopes around it, `()` for the whole model. What stands there is a node, told by its name, or
a call one level deeper, told by its scopes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import networkx as nx

from shapeflow.graph import Block, edges, nodes
from shapeflow.trace.result import Node, Scope, Shape

Scopes = tuple[Scope, ...]
Key = str | Scopes
TensorKey = tuple[str, int]  # the node that makes it, and which of its outputs


@dataclass(frozen=True, slots=True)
class Flow:
    """A tensor between two things in one place; None as an end is the border of the place."""

    source: Key | None
    target: Key | None
    tensor: TensorKey
    shape: Shape
    arguments: tuple[int, ...] = ()  # where an operator reads it; empty at a module or a border


@dataclass(slots=True)
class Call:
    """The inside of one module call. `entering` are in the order of reading, `leaving` in the order of making."""

    members: list[Key] = field(default_factory=list)
    entering: dict[TensorKey, Shape] = field(default_factory=dict)
    leaving: dict[TensorKey, Shape] = field(default_factory=dict)
    flows: dict[tuple[Key | None, Key | None, TensorKey], Flow] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Calls:
    """All calls by their scopes; `sizes` counts the nodes in each."""

    calls: dict[Scopes, Call]
    sizes: Counter[Scopes]


def calls_of(graph: nx.MultiDiGraph) -> Calls:
    """The calls of a graph, each node in the innermost one around it."""
    around = {node.name: _around(node) for node in nodes(graph)}
    calls: dict[Scopes, Call] = {(): Call()}
    sizes: Counter[Scopes] = Counter()
    for name, scopes in around.items():
        for depth in range(1, len(scopes) + 1):
            sizes[scopes[:depth]] += 1
            if scopes[:depth] not in calls:
                calls[scopes[:depth]] = Call()
                calls[scopes[: depth - 1]].members.append(scopes[:depth])
        calls[scopes].members.append(name)
    for edge in edges(graph):
        source, target = around[edge.source], around[edge.target]
        tensor = (edge.source, edge.output)
        common = _common(source, target)
        for depth in range(len(source), common, -1):
            here = calls[source[:depth]]
            here.leaving[tensor] = edge.shape
            _add(here, Flow(_member(source, edge.source, depth), None, tensor, edge.shape))
        ends = _member(source, edge.source, common), _member(target, edge.target, common)
        _add(calls[source[:common]], Flow(*ends, tensor, edge.shape, _arguments(ends[1], edge.argument)))
        for depth in range(common + 1, len(target) + 1):
            here, end = calls[target[:depth]], _member(target, edge.target, depth)
            here.entering.setdefault(tensor, edge.shape)
            _add(here, Flow(None, end, tensor, edge.shape, _arguments(end, edge.argument)))
    _sort_leaving(calls, {name: i for i, name in enumerate(graph)})
    return Calls(calls, sizes)


def _around(node: Node | Block) -> Scopes:
    """A closed module is not around itself."""
    return node.scopes[:-1] if isinstance(node, Block) else node.scopes


def _common(a: Scopes, b: Scopes) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _member(scopes: Scopes, name: str, depth: int) -> Key:
    """What stands for a node at this depth: the node itself, or the call that it is in."""
    return name if depth == len(scopes) else scopes[: depth + 1]


def _arguments(end: Key, argument: int) -> tuple[int, ...]:
    return (argument,) if isinstance(end, str) else ()


def _add(call: Call, flow: Flow) -> None:
    """A tensor that is read twice by one reader is one flow with two arguments."""
    key = flow.source, flow.target, flow.tensor
    known = call.flows.get(key)
    arguments = (*known.arguments, *flow.arguments) if known else flow.arguments
    call.flows[key] = Flow(*key, flow.shape, arguments)


def _sort_leaving(calls: dict[Scopes, Call], position: dict[str, int]) -> None:
    for call in calls.values():
        made = sorted(call.leaving.items(), key=lambda pair: (position[pair[0][0]], pair[0][1]))
        call.leaving = dict(made)
