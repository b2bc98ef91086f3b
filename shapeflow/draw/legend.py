"""What stands beside every drawing: the meaning of the names, what goes in and comes out, for which sizes it is true.

>>> for title, entries in legend(graph, labels):
...     print(title, entries)
free ['B', 'T']
fixed ['d_model = 32', 'vocab = 100']
inputs ['ids: B T:int64']
outputs ['B T vocab']
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from textwrap import wrap

import networkx as nx

from shapeflow.dims.expr import Expr
from shapeflow.draw.label import Labels, counted, parameters_of, several
from shapeflow.graph import Block, nodes
from shapeflow.trace.result import Node, Scope, Shape

Entries = tuple[str, list[str]]


def legend(graph: nx.MultiDiGraph, labels: Labels) -> list[Entries]:
    """The entries that have something to tell: free, fixed and value-dependent dims, aliases, inputs, outputs."""
    facts, dims = graph.graph, _dims(graph)
    used = {symbol.name for dim in dims for symbol in dim.symbols}
    aliases = _aliases(graph, used) | {name: dim for dim, name in labels.names.items() if dim in dims}
    inputs = [(node.name, shape) for node in nodes(graph) if node.kind == "input" for shape in node.outputs]
    entries = [
        ("free", [_value(name, labels) for name in facts["free"]]),
        ("fixed", [f"{name} = {size}" for name, size in facts["pinned"].items() if name in used]),
        ("by value", [_origin(name, origin, labels) for name, origin in facts["fresh"].items() if name in used]),
        ("where", [f"{name} = {expr}" for name, expr in aliases.items()]),
        ("inputs", [f"{name}: {_with_numbers(shape, labels)}" for name, shape in inputs]),
        ("outputs", [several(_with_numbers(shape, labels) for shape in facts["outputs"])] if facts["outputs"] else []),
    ]
    return [(title, words) for title, words in entries if words]


def wrapped(words: list[str], width: int) -> list[str]:
    """The words as lines; none is parted, for it is a shape or an equation."""
    glued = ", ".join(word.replace(" ", "\0") for word in words)
    return [line.replace("\0", " ") for line in wrap(glued, width, break_long_words=False, break_on_hyphens=False)]


def size_of(graph: nx.MultiDiGraph) -> str:
    """`36,096 parameters, 84 operators`; what a folded block stands for is counted."""
    repeats = {scopes: len(copies) for scopes, copies in graph.graph["repeats"].items()}
    operators = sum(_operators(node) * prod(_times(node, repeats)) for node in nodes(graph))
    operators += graph.graph.get("unread", 0)
    return f"{counted(parameters_of(graph, ''), 'parameter')}, {counted(operators, 'operator')}"


def _operators(node: Node | Block) -> int:
    return node.operators if isinstance(node, Block) else int(node.kind == "operator")


def _times(node: Node | Block, repeats: dict[tuple[Scope, ...], int]) -> Iterator[int]:
    return (repeats.get(node.scopes[:i], 1) for i in range(1, len(node.scopes) + 1))


def _value(name: str, labels: Labels) -> str:
    return f"{name} = {labels.sizes[name]}" if name in labels.sizes else name


def _origin(name: str, operator: str, labels: Labels) -> str:
    """`n = 3 (nonzero)`: a size that only values decide, and the operator that found it."""
    return f"{_value(name, labels)} ({operator})" if operator else _value(name, labels)


def _with_numbers(shape: Shape, labels: Labels) -> str:
    return labels.shape(shape) + (f" = {labels.numbers(shape)}" if labels.sizes and shape.dims else "")


def _aliases(graph: nx.MultiDiGraph, used: set[str]) -> dict[str, Expr]:
    """The trace's own names for sub-expressions, those that are needed to read the shapes."""
    named = {name: expr for name, expr in graph.graph["dims"].items() if expr is not None}
    needed = set(used)
    for name in reversed(named):
        if name in needed:
            needed.update(symbol.name for symbol in named[name].symbols)
    return {name: expr for name, expr in named.items() if name in needed}


def _dims(graph: nx.MultiDiGraph) -> set[Expr]:
    return {dim for node in nodes(graph) for shape in node.outputs for dim in shape.dims}
