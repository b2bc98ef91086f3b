"""The flow of tensors through a model, as a `networkx.MultiDiGraph`.

A node's key is its name, its attribute `node` the trace's `Node` (or a `Block`); an edge is one tensor on its way, its
attribute `edge` the trace's `Edge`. Nodes stand in execution order. What the whole trace knows hangs at `graph.graph`.

    >>> graph = build(trace)
    >>> [str(edge.shape) for edge in inputs_of(graph, "matmul")]
    ['B n_heads T d_head', 'B n_heads d_head T']
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import networkx as nx

from shapeflow.trace.result import Edge, Node

if TYPE_CHECKING:
    from shapeflow.graph.block import Block
    from shapeflow.trace.result import Trace


def build(trace: Trace) -> nx.MultiDiGraph:
    """The graph of a trace: plain data, nothing of torch in it."""
    graph = nx.MultiDiGraph(
        name=trace.name,
        outputs=tuple(edge.shape for edge in trace.outputs),
        output_names=trace.output_names,
        modules=trace.modules,
        parameters=trace.parameters,
        dims=trace.dims,
        sizes=trace.sizes,
        pinned=trace.pinned,
        free=trace.free,
        fresh=trace.fresh,
        domain=str(trace.domain),
        conditions=trace.conditions,
        assumptions=trace.assumptions,
        repeats={},
        ends={},
    )
    fill(graph, trace.nodes, trace.edges)
    return graph


def derive(
    graph: nx.MultiDiGraph, members: Iterable[Node | Block], tensors: Iterable[Edge], **facts
) -> nx.MultiDiGraph:
    """A new graph of these nodes and edges that keeps what `graph` knows, but for the given facts."""
    derived = nx.MultiDiGraph(**{**graph.graph, **facts})
    fill(derived, members, tensors)
    return derived


def merge(graph: nx.MultiDiGraph, before: nx.MultiDiGraph, standing: Mapping[str, str]) -> nx.MultiDiGraph:
    """Note at the nodes of `graph` which of the trace's nodes they stand for; `standing` names those of `before`."""
    members: dict[str, list[str]] = defaultdict(list)
    for name in before:
        kept = name
        while standing.get(kept, kept) != kept:
            kept = standing[kept]
        members[kept] += members_of(before, name)
    for name in graph:
        graph.nodes[name]["members"] = tuple(members.get(name, (name,)))
    return graph


def members_of(graph: nx.MultiDiGraph, name: str) -> tuple[str, ...]:
    """The trace's nodes that a node of a folded or closed graph stands for; itself in the graph of a trace."""
    return graph.nodes[name].get("members", (name,))


def fill(graph: nx.MultiDiGraph, members: Iterable[Node | Block], tensors: Iterable[Edge]) -> None:
    for member in members:
        graph.add_node(member.name, node=member)
    for edge in tensors:
        graph.add_edge(edge.source, edge.target, edge=edge)


def nodes(graph: nx.MultiDiGraph) -> Iterator[Node | Block]:
    """The graph's nodes in execution order."""
    return (graph.nodes[name]["node"] for name in graph)


def edges(graph: nx.MultiDiGraph) -> Iterator[Edge]:
    """The graph's edges in the order in which they are read."""
    return (edge for name in graph for edge in inputs_of(graph, name))


def inputs_of(graph: nx.MultiDiGraph, name: str) -> list[Edge]:
    """The tensors that a node reads, in the order of its arguments.

    Asked for each node many times over: `graph.pred` makes a view of each level, which takes three times as long.
    """
    before = graph._pred[name]  # pyright: ignore[reportAttributeAccessIssue]  # networkx's stubs hide it
    arriving = [data["edge"] for parallel in before.values() for data in parallel.values()]
    if len(arriving) > 1:
        arriving.sort(key=lambda edge: edge.argument)
    return arriving
