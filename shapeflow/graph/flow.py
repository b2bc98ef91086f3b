"""The flow of tensors through a model, as a `networkx.MultiDiGraph`.

A node's key is its name, its attribute `node` the trace's `Node` (or a `Block`); an edge is one tensor on its way, its
attribute `edge` the trace's `Edge`. Nodes stand in execution order. What the whole trace knows hangs at `graph.graph`.

    >>> graph = build(trace)
    >>> [str(edge.shape) for edge in inputs_of(graph, "matmul")]
    ['B n_heads T d_head', 'B n_heads d_head T']
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
    """The tensors that a node reads, in the order of its arguments."""
    arriving = (edge for _, _, edge in graph.in_edges(name, data="edge"))
    return sorted(arriving, key=lambda edge: edge.argument)
