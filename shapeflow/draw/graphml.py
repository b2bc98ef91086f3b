"""The graph as GraphML, for yEd, Gephi, Cytoscape and networkx: texts and numbers only, nothing to decode.

>>> graph = networkx.parse_graphml(to_graphml(build(trace)))
>>> graph.nodes["linear"]["shape"], graph.nodes["linear"]["module"]
('B T d_model', 'blocks.0.ffn.up')

Nodes have `kind`, `operator`, `module`, `module_kind`, `call`, `shape` and `dtype` (of several outputs with commas),
`parameters` (names), `file`, `line`, `code`, and closed modules `count` (of parameters) and `operators`; edges `shape`,
`dtype`, `output`, `argument`; the graph `name`, `domain`, `free`, `pinned`, `parameters`. The rest is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import networkx as nx

from shapeflow.dims.expr import Expr
from shapeflow.graph import Block, collapse, edges, nodes
from shapeflow.graph.arguments import words
from shapeflow.trace.result import Edge, Node, Shape


def to_graphml(graph: nx.MultiDiGraph, *, depth: int | None = None) -> str:
    """GraphML of the whole graph, with `depth` levels of modules. Same graph, same text."""
    shown = graph if depth is None else collapse(graph, depth)
    plain, text = nx.MultiDiGraph(), cache(str)  # shapes recur, and printing them is slow
    plain.graph.update(_plain(_facts(graph)))
    for node in nodes(shown):
        plain.add_node(
            _clean(node.name), **_plain(_block(node, text) if isinstance(node, Block) else _node(node, text))
        )
    for edge in edges(shown):
        plain.add_edge(_clean(edge.source), _clean(edge.target), **_plain(_edge(edge, text)))
    return "\n".join(nx.generate_graphml(plain)) + "\n"


def _facts(graph: nx.MultiDiGraph) -> dict[str, Any]:
    facts = graph.graph
    root = facts["modules"].get("")
    return {
        "name": facts["name"],
        "domain": facts["domain"],
        "free": ", ".join(facts["free"]),
        "pinned": ", ".join(f"{name} = {size}" for name, size in facts["pinned"].items()),
        "parameters": root.parameters if root else 0,
    }


def _node(node: Node, text: Callable[[Shape], str]) -> dict[str, Any]:
    place = node.location
    return {
        "kind": node.kind,
        "operator": node.operator,
        **_module(node),
        **_shapes(node.outputs, text),
        "parameters": ", ".join(node.parameters),
        "arguments": ", ".join(words(node.arguments)),
        "file": place and place.file,
        "line": place and place.line,
        "code": place and place.code,
    }


def _block(block: Block, text: Callable[[Shape], str]) -> dict[str, Any]:
    return {
        "kind": block.kind,
        **_module(block),
        **_shapes(block.outputs, text),
        "count": block.parameters,
        "operators": block.operators,
    }


def _module(node: Node | Block) -> dict[str, Any]:
    if not node.scopes:
        return {}
    scope = node.scopes[-1]
    return {"module": scope.path, "module_kind": scope.kind, "call": scope.call}


def _shapes(shapes: tuple[Shape, ...], text: Callable[[Shape], str]) -> dict[str, Any]:
    return {"shape": ", ".join(map(text, shapes)), "dtype": ", ".join(shape.dtype for shape in shapes)}


def _edge(edge: Edge, text: Callable[[Shape], str]) -> dict[str, Any]:
    return {
        "shape": text(edge.shape),
        "dtype": edge.shape.dtype,
        "output": edge.output,
        "argument": edge.argument,
    }


def _plain(attributes: Mapping[str, Any]) -> dict[str, str | int]:
    """Texts and numbers; what there is nothing to tell of is left out."""
    found: dict[str, str | int] = {}
    for name, value in attributes.items():
        if isinstance(value, Expr):
            value = str(value)
        if value or isinstance(value, int):
            found[name] = value if isinstance(value, int) else _clean(value)
    return found


def _clean(text: str) -> str:
    """Control characters, and halves of characters, have no place in XML."""
    return "".join(letter if letter in "\t\n" or letter.isprintable() else "\ufffd" for letter in text)
