"""What the author of a model calls a tensor: `mask` for the last operator of the line `mask = torch.ones(t, t).tril()`.

>>> variable(graph, "tril")
'mask'
"""

from __future__ import annotations

import re

import networkx as nx

from shapeflow.trace.result import Location, Node

ASSIGNED = re.compile(r"\s*(?:self\.)?([A-Za-z]\w*)(?:\s*:[^=]+)?\s*=(?!=)")


def variable(graph: nx.MultiDiGraph, name: str) -> str:
    """The variable that an operator's line assigns its result to; `""` where it does not, or not this operator's."""
    where = _location(graph, name)
    found = ASSIGNED.match(where.code) if where else None
    if not found or any(_location(graph, reader) == where for reader in graph.successors(name)):
        return ""
    return found[1]


def _location(graph: nx.MultiDiGraph, name: str) -> Location | None:
    node = graph.nodes[name]["node"]
    return node.location if isinstance(node, Node) else None
