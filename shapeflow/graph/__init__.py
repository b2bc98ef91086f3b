"""A trace as a graph to draw and count from, and the pure functions that simplify it.

>>> graph = build(trace)                       # networkx.MultiDiGraph: operators, with tensors as edges
>>> page = collapse(fold(graph), depth=1)      # equal neighbours once, each module of the first level as one node
"""

from shapeflow.graph.block import Block, collapse, within
from shapeflow.graph.difference import Difference, diff
from shapeflow.graph.flow import build, edges, inputs_of, nodes
from shapeflow.graph.loaded import from_json, load
from shapeflow.graph.repeat import fold
from shapeflow.graph.saved import to_json

__all__ = [
    "Block",
    "Difference",
    "build",
    "collapse",
    "diff",
    "edges",
    "fold",
    "from_json",
    "inputs_of",
    "load",
    "nodes",
    "to_json",
    "within",
]
