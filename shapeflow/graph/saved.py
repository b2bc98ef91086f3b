"""A graph as JSON, with every node, edge and fact, sizes exact; `loaded.load` reads it back.

>>> text = to_json(build(trace))                  # trace.save("gpt.json") writes it to a file

`schema.json` beside this file describes the form. Fields stay as they are for one `version`; more may be added, and a
reader passes over those that it does not know.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import networkx as nx

from shapeflow import __version__
from shapeflow.dims.expr import Expr
from shapeflow.dims.tree import to_tree
from shapeflow.graph.arguments import to_plain
from shapeflow.graph.block import Block
from shapeflow.graph.flow import edges, nodes
from shapeflow.graph.operations import Operations
from shapeflow.trace.result import Condition, Edge, Location, ModuleInfo, Node, Scope, Shape
from shapeflow.trace.sharding import Sharding

Describe: TypeAlias = Callable[[Shape], dict[str, Any]]

FORMAT, VERSION = "shapeflow graph", 1


def to_json(graph: nx.MultiDiGraph, *, operations: Operations | None = None) -> str:
    """All that the graph holds, a line for each node, edge, module and parameter. Same graph, same text.

    `operations` are kept with it; those of nodes that the graph does not have, as in closed modules, are left out.
    """
    document = _document(graph) | ({"operations": _operations(graph, operations)} if operations else {})
    fields = (f"{_dumped(key)}: {_laid_out(value)}" for key, value in document.items())
    return "{\n" + ",\n".join(fields) + "\n}\n"


def _document(graph: nx.MultiDiGraph) -> dict[str, Any]:
    facts, shape = graph.graph, cache(_shape)  # shapes recur, and printing them takes longer than all the rest
    return {
        "format": FORMAT,
        "version": VERSION,
        "shapeflow": __version__,
        "name": facts["name"],
        "domain": facts["domain"],
        "free": list(facts["free"]),
        "pinned": facts["pinned"],
        "fresh": facts["fresh"],
        "sizes": facts["sizes"],
        "dims": {name: None if size is None else _size(size) for name, size in facts["dims"].items()},
        "outputs": [shape(each) for each in facts["outputs"]],
        "output_names": list(facts["output_names"]),
        "ends": {name: list(names) for name, names in facts["ends"].items()},
        "conditions": [_condition(each) for each in facts["conditions"]],
        "assumptions": [_condition(each) for each in facts["assumptions"]],
        "repeats": [{"scopes": _scopes(one), "copies": _scopes(all)} for one, all in facts["repeats"].items()],
        "modules": [_module(module) for module in facts["modules"].values()],
        "parameters": [{"name": name, "shape": shape(each)} for name, each in facts["parameters"].items()],
        "nodes": [_block(node, shape) if isinstance(node, Block) else _node(node, shape) for node in nodes(graph)],
        "edges": [_edge(edge, shape) for edge in edges(graph)],
    }


def _laid_out(value: object) -> str:
    """Lists of objects with a line for each: a change in a model is a change of few lines of its file."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(f"  {_dumped(item)}" for item in value) + "\n]"
    return _dumped(value)


def _dumped(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _size(size: Expr) -> dict[str, Any]:
    return {"text": str(size), "tree": to_tree(size)}


def _count(count: int | Expr) -> object:
    return count if isinstance(count, int) else _size(count)


def _shape(shape: Shape) -> dict[str, Any]:
    written = {"text": str(shape), "dtype": shape.dtype, "dims": [to_tree(dim) for dim in shape.dims]}
    return written if shape.sharding is None else {**written, "sharding": _sharding(shape.sharding)}


def _sharding(sharding: Sharding) -> dict[str, Any]:
    return {
        "mesh": [{"name": name, "size": size} for name, size in sharding.mesh],
        "placements": list(sharding.placements),
        "splits": [{"axis": axis, "parts": parts, "even": even} for axis, parts, even in sharding.splits],
    }


def _location(location: Location | None) -> dict[str, Any] | None:
    return location and {"file": location.file, "line": location.line, "code": location.code}


def _scopes(scopes: tuple[Scope, ...]) -> list[dict[str, Any]]:
    return [{"path": scope.path, "kind": scope.kind, "call": scope.call} for scope in scopes]


def _condition(condition: Condition) -> dict[str, Any]:
    return {
        "text": condition.text,
        "operator": condition.operator,
        "location": _location(condition.location),
    }


def _module(module: ModuleInfo) -> dict[str, Any]:
    return {
        "path": module.path,
        "kind": module.kind,
        "parameters": _count(module.parameters),
        "called": module.called,
    }


def _node(node: Node, shape: Describe) -> dict[str, Any]:
    return {
        "name": node.name,
        "kind": node.kind,
        "operator": node.operator,
        "scopes": _scopes(node.scopes),
        "outputs": [shape(each) for each in node.outputs],
        "parameters": list(node.parameters),
        "location": _location(node.location),
        "arguments": to_plain(node.arguments),
    }


def _block(block: Block, shape: Describe) -> dict[str, Any]:
    return {
        "name": block.name,
        "kind": block.kind,
        "scopes": _scopes(block.scopes),
        "outputs": [shape(each) for each in block.outputs],
        "operators": block.operators,
        "count": _count(block.parameters),
        "words": list(block.words),
    }


def _operations(graph: nx.MultiDiGraph, operations: Operations) -> dict[str, Any]:
    flops = {name: _size(flops) for name, flops in operations.flops.items() if name in graph}
    return {"flops": flops, "unknown": list(operations.unknown)}


def _edge(edge: Edge, shape: Describe) -> dict[str, Any]:
    return {
        "source": edge.source,
        "target": edge.target,
        "output": edge.output,
        "argument": edge.argument,
        "shape": shape(edge.shape),
    }
