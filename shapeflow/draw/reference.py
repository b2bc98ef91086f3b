"""Tensors that are named where they are read: a line from one mask to every block would hide the model.

>>> references(graph, shown, straight=frozenset())
{('tril', 0): 'mask'}
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Set

import networkx as nx

from shapeflow.graph import Block, edges, inputs_of, nodes
from shapeflow.graph.flow import members_of
from shapeflow.graph.naming import variable
from shapeflow.graph.repeat import standing_for
from shapeflow.trace.result import Edge, Node, Scope

# A tensor that more nodes than this read is named at each, and of more outputs than this all but the first are named
# where they are made: long lines from or to every block are what makes layouts slow and pictures unreadable.
FAN_OUT = 8
# So is one of which three or more read, the first and the last of them far apart in the order of running. With two it
# is a skip over what stands between, and a line shows that best.
FAR = 12

Tensor = tuple[str, int]
Scopes = tuple[Scope, ...]


def references(graph: nx.MultiDiGraph, shown: nx.MultiDiGraph, straight: Set[tuple[str, str]]) -> dict[Tensor, str]:
    """The tensors (node, output) of `shown` that are named at their readers, each with its name.

    So is what all copies of a block read that is drawn once, as `graph` tells: a mask, an encoder's memory.
    `straight` are the pairs of nodes on a residual stream, whose lines stay.
    """
    position = {name: i for i, name in enumerate(shown)}
    readers: dict[Tensor, dict[str, int]] = defaultdict(dict)
    for edge in edges(shown):
        if (edge.source, edge.target) not in straight and shown.nodes[edge.target]["node"].kind != "output":
            readers[edge.source, edge.output][edge.target] = position[edge.target]
    shared = _shared(graph, shown)
    referred = {
        tensor: list(places)
        for tensor, places in readers.items()
        if len(places) > FAN_OUT
        or (len(places) > 2 and max(places.values()) - min(places.values()) > FAR)
        or (tensor[0] in shared and _crosses(shown, tensor[0], places))
    }
    return _named(shown, referred, _made(graph, shown, referred))


def endings(graph: nx.MultiDiGraph) -> frozenset[Edge]:
    """The outputs of the model that are named where they are made."""
    leaving = [(node, inputs_of(graph, node.name)) for node in nodes(graph) if node.kind == "output"]
    return frozenset(edge for _, tensors in leaving if len(tensors) > FAN_OUT for edge in tensors[1:])


def _shared(graph: nx.MultiDiGraph, shown: nx.MultiDiGraph) -> set[str]:
    """The nodes of `shown` that several copies of one drawn operator read."""
    standing: Mapping[str, str] = shown.graph.get("standing", {})
    home = {member: name for name in shown for member in members_of(shown, name)}
    first: dict[tuple[str, int, str], str] = {}
    found: set[str] = set()
    for edge in edges(graph) if standing else ():
        reader = standing_for(edge.target, standing)
        if first.setdefault((edge.source, edge.output, reader), edge.target) != edge.target:
            found.add(edge.source)
    return {home[name] for name in found if name in home}


def _calls(graph: nx.MultiDiGraph, name: str) -> set[Scopes]:
    scopes = graph.nodes[name]["node"].scopes
    return {scopes[:i] for i in range(1, len(scopes) + 1)}


def _crosses(shown: nx.MultiDiGraph, source: str, readers: Mapping[str, int]) -> bool:
    """Whether a reader is, or is in, a repeated module that the source is not in, and in no other one with it."""
    repeats = shown.graph["repeats"]
    around = _calls(shown, source)
    return any(
        not repeats.keys() & (inside := _calls(shown, name)) & around and repeats.keys() & inside for name in readers
    )


def _made(graph: nx.MultiDiGraph, shown: nx.MultiDiGraph, readers: Mapping[Tensor, list[str]]) -> dict[Tensor, str]:
    """The variables inside closed modules of several results that their readers take: T5's `position_bias`."""
    several = {tensor for tensor in readers if len(shown.nodes[tensor[0]]["node"].outputs) > 1}
    found: dict[Tensor, str] = {}
    for tensor in several:
        inside = set(members_of(shown, tensor[0]))
        taken = {member for reader in readers[tensor] for member in members_of(shown, reader)}
        shapes = {edge.shape for edge in edges(shown) if (edge.source, edge.output) == tensor}
        words = {
            variable(graph, edge.source)
            for edge in edges(graph)
            if edge.source in inside and edge.target in taken and edge.shape in shapes
        }
        if len(words) == 1 and "" not in words:
            found[tensor] = words.pop()
    return found


def _named(
    graph: nx.MultiDiGraph, readers: Mapping[Tensor, list[str]], made: Mapping[Tensor, str]
) -> dict[Tensor, str]:
    """A name for each tensor; where two nodes would share one, each has its own, and then a number."""
    spoken = {name: _spoken(graph, name, read) for (name, _), read in readers.items()}
    shared = Counter(spoken.values())
    spoken = {name: _own(graph, name) if shared[word] > 1 else word for name, word in spoken.items()}
    used, shared = Counter[str](), Counter(spoken.values())
    for name, word in spoken.items():
        if shared[word] > 1:
            used[word] += 1
            spoken[name] = f"{word} ({used[word]})"
    several = {name for name in spoken if len(graph.nodes[name]["node"].outputs) > 1}
    numbered = {(name, output): f"{spoken[name]} {output + 1}" for name, output in readers if name in several}
    return {tensor: made.get(tensor) or numbered.get(tensor) or spoken[tensor[0]] for tensor in readers}


def _spoken(graph: nx.MultiDiGraph, name: str, readers: list[str]) -> str:
    """What to call what a node makes: by its module, its variable or its operator."""
    scopes = [graph.nodes[reader]["node"].scopes for reader in readers]
    return _module(graph.nodes[name]["node"], scopes) or _own(graph, name)


def _module(node: Node | Block, readers: list[Scopes]) -> str:
    """The outermost module around a node that none of its readers is in."""
    for i, scope in enumerate(node.scopes):
        if not any(len(scopes) > i and scopes[i] == scope for scopes in readers):
            around = node.scopes[i - 1].path if i else ""
            return scope.path.removeprefix(f"{around}.") if around else scope.path
    return ""


def _call(scope: Scope) -> str:
    """A module call by the end of its path that is no number: `layer.0`, `rotary_emb, call 2`."""
    found = re.search(r"[^.]+(\.\d+)*$", scope.path)
    return (found[0] if found else scope.path) + (f", call {scope.call + 1}" if scope.call else "")


def _own(graph: nx.MultiDiGraph, name: str) -> str:
    node = graph.nodes[name]["node"]
    if isinstance(node, Block):
        return "".join(node.words[:1]) or _call(node.scopes[-1])
    return variable(graph, name) or node.operator or name
