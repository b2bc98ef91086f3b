"""The graph as DOT source: boxes for modules, the shape on every edge. Same graph, same text.

>>> print(to_dot(graph, depth=1))
digraph "GPT" {
...
  "embedding" -> "@blocks.0" [label=" B T d_model "]
}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import networkx as nx

from shapeflow.draw.label import Labels, counted, parameters_of, place, reads_of, title_of
from shapeflow.draw.legend import legend, size_of, wrapped
from shapeflow.draw.markup import html, quoted
from shapeflow.graph import Block, collapse, edges, inputs_of, nodes
from shapeflow.trace.result import Edge, Node, Scope

Scopes = tuple[Scope, ...]

# A tensor that more nodes than this read is named at each reader, and of more outputs than this all but the first are
# named where they are made: long lines from or to every block are what makes layouts slow and pictures unreadable.
FAN_OUT = 8

STYLE = """\
  graph [rankdir=TB, nodesep=0.3, ranksep=0.35, labelloc=t, labeljust=l, pad=0.3, bgcolor=white, tooltip=" "]
  graph [fontname="Helvetica,Arial,sans-serif", fontsize=11, fontcolor="#222222"]
  node [shape=box, style="rounded,filled", fillcolor=white, color="#8a8a8a", height=0.3, margin="0.12,0.05"]
  node [fontname="Helvetica,Arial,sans-serif", fontsize=11, fontcolor="#222222"]
  edge [color="#5f5f5f", arrowsize=0.6, fontname="Helvetica,Arial,sans-serif", fontsize=9, fontcolor="#444444"]"""

LEGEND_WIDTH = 64

# Straightening the lines of a large graph takes longer than anything else: 64 s for 4,700 operators, 29 s with a limit.
LARGE = 500
LIMITS = "  graph [nslimit=1]"

# Blue and orange stay apart for every kind of colour blindness; shape and border tell the kinds apart without colour.
INPUT = 'shape=ellipse, style=filled, fillcolor="#fdebd0", color="#c77700"'
OUTPUT = 'shape=ellipse, style=filled, peripheries=2, fillcolor="#fdebd0", color="#c77700"'
CONSTANT = 'shape=note, style=filled, fillcolor="#f2f2f2", color="#8a8a8a"'
LEARNED = 'fillcolor="#dcebf7", color="#3a78b0"'
BLOCK = 'fillcolor="#e9eff5", color="#3a78b0", penwidth=1.6'
REFERENCE = 'shape=box, style="rounded,dashed", color="#c77700", height=0.2, margin="0.06,0.02", fontsize=9'
CLUSTER_FILLS = ("#f8f8f8", "#f1f1f1", "#eaeaea")


@dataclass(frozen=True, slots=True)
class Page:
    """What is drawn and how.

    `referred` are the tensors (node, output) that are named where they are read, `ending` the outputs of the model
    that are named where they are made.
    """

    graph: nx.MultiDiGraph
    labels: Labels
    referred: frozenset[tuple[str, int]]
    ending: frozenset[Edge]


@dataclass(frozen=True, slots=True)
class Cluster:
    """A module call with more than one node in it: statements and clusters in execution order."""

    scopes: Scopes
    items: list[str | Cluster] = field(default_factory=list)


def to_dot(graph: nx.MultiDiGraph, *, depth: int | None = None, sizes: Mapping[str, int] | None = None) -> str:
    """DOT source of the graph, with `depth` levels of modules; `sizes` (name -> number) are written below the names."""
    shown = graph if depth is None else collapse(graph, depth)
    page = Page(shown, Labels.of(graph, sizes), _fanning_out(shown), _fanning_in(shown))
    return "\n".join(
        [
            f"digraph {quoted(graph.graph['name'])} {{",
            STYLE,
            *([LIMITS] if len(shown) > LARGE else []),
            f"  label={_title(page)}",
            *_lines(page, _tree(page), indent="  "),
            *(f"  {_arrow(page, edge)}" for edge in edges(shown)),
            "}\n",
        ]
    )


def _fanning_out(graph: nx.MultiDiGraph) -> frozenset[tuple[str, int]]:
    readers = Counter({(edge.source, edge.output, edge.target): 1 for edge in edges(graph)})
    tensors = Counter((source, output) for source, output, _ in readers)
    return frozenset(tensor for tensor, count in tensors.items() if count > FAN_OUT)


def _fanning_in(graph: nx.MultiDiGraph) -> frozenset[Edge]:
    leaving = [edge for node in nodes(graph) if node.kind == "output" for edge in inputs_of(graph, node.name)]
    return frozenset(leaving[1:] if len(leaving) > FAN_OUT else [])


def _title(page: Page) -> str:
    entries = legend(page.graph, page.labels)
    about = [line for title, words in entries for line in wrapped([f"{title}: {words[0]}", *words[1:]], LEGEND_WIDTH)]
    return html(page.graph.graph["name"], size_of(page.graph), *about, align="left")


def _tree(page: Page) -> Cluster:
    """Nodes and references in the clusters of their modules; a module with a single node needs no cluster."""
    around = {node.name: _prefixes(node) for node in nodes(page.graph)}
    members = Counter(scopes for prefixes in around.values() for scopes in prefixes)
    clusters: dict[Scopes, Cluster] = {(): Cluster(())}
    for node in nodes(page.graph):
        parent = clusters[()]
        for scopes in around[node.name]:
            if members[scopes] == 1:
                break
            if scopes not in clusters:
                clusters[scopes] = Cluster(scopes)
                parent.items.append(clusters[scopes])
            parent = clusters[scopes]
        parent.items.extend(_references(page, node.name))
        parent.items.append(_statement(page, node, parent.scopes))
    return clusters[()]


def _prefixes(node: Node | Block) -> list[Scopes]:
    """The module calls around a node, outermost first; a closed module is not around itself."""
    depth = len(node.scopes) - isinstance(node, Block)
    return [node.scopes[:i] for i in range(1, depth + 1)]


def _path(scopes: Scopes) -> str:
    return scopes[-1].path if scopes else ""


def _lines(page: Page, cluster: Cluster, *, indent: str) -> Iterator[str]:
    for item in cluster.items:
        if isinstance(item, str):
            yield indent + item
            continue
        module = item.scopes[-1]
        yield f"{indent}subgraph {quoted(f'cluster_{module.path}#{module.call + 1}')} {{"
        fill = CLUSTER_FILLS[len(item.scopes) % len(CLUSTER_FILLS)]
        yield f'{indent}  style="rounded,filled"; fillcolor="{fill}"; color="#c4c4c4"; tooltip={quoted(module.path)}'
        title = title_of(page.graph, item.scopes, _path(cluster.scopes))
        yield f"{indent}  label={html(title, _about(page, module), align='left')}"
        yield from _lines(page, item, indent=indent + "  ")
        yield indent + "}"


def _about(page: Page, scope: Scope) -> str:
    """`DecoderBlock, 12,608 parameters`."""
    parameters = parameters_of(page.graph, scope.path)
    return scope.kind + (f", {counted(parameters, 'parameter')}" if parameters else "")


def _statement(page: Page, node: Node | Block, around: Scopes) -> str:
    words, style, tooltip = _look(page, node, around)
    outputs = range(len(node.outputs))
    named = any((node.name, output) in page.referred for output in outputs) and _name(node) != words[0]
    label = html(*words, f"= {_name(node)}" if named else "")
    return f"{quoted(node.name)} [{', '.join(filter(None, (f'label={label}', style, f'tooltip={quoted(tooltip)}')))}]"


def _look(page: Page, node: Node | Block, around: Scopes) -> tuple[tuple[str, ...], str, str]:
    """The lines of a node's label, its style, its tooltip."""
    if isinstance(node, Block):
        return _block_words(page, node, around), BLOCK, _path(node.scopes) or page.graph.graph["name"]
    shapes = page.labels.shapes(node.outputs)
    if node.kind == "input":
        return (node.name, shapes), INPUT, "input"
    if node.kind == "output":
        return (node.name,), OUTPUT, "output"
    if node.kind == "constant":
        return (node.name, shapes), CONSTANT, place(node.location) or "constant"
    words = _alone_words(page, node, around) if node.scopes != around else (node.operator, reads_of(node))
    return words, LEARNED if node.parameters else "", _tooltip(node)


def _alone_words(page: Page, node: Node, around: Scopes) -> tuple[str, ...]:
    """An operator that is all of its module is drawn as the module, and named where the class does not tell it."""
    module = node.scopes[-1]
    told = module.kind.lower() == node.operator.replace("_", "")
    return title_of(page.graph, node.scopes, _path(around)), _about(page, module), "" if told else node.operator


def _block_words(page: Page, block: Block, around: Scopes) -> tuple[str, ...]:
    operators = counted(block.operators, "operator")
    if not block.scopes:
        return page.graph.graph["name"], counted(block.parameters, "parameter"), operators
    title = title_of(page.graph, block.scopes, _path(around))
    return title, _about(page, block.scopes[-1]), operators if block.operators > 1 else ""


def _name(node: Node | Block) -> str:
    """What a reference calls a node: the graph's name for an operator, the path of a closed module."""
    return node.name.removeprefix("@") if isinstance(node, Block) else node.name


def _tooltip(node: Node) -> str:
    where = f"{place(node.location)}\n{node.location.code}" if node.location else ""
    return "\n".join(filter(None, (node.module, where))) or node.operator


def _references(page: Page, name: str) -> Iterator[str]:
    """The small named boxes at a node: tensors from far away that it reads, outputs of the model that it makes."""
    read = {_tail(page, edge): _source(page, edge) for edge in inputs_of(page.graph, name)}
    made = {_head(page, edge): f"output {edge.argument + 1}" for _, _, edge in page.graph.out_edges(name, data="edge")}
    for reference, label in (read | made).items():
        if reference not in page.graph:
            yield f"{quoted(reference)} [label={quoted(label)}, {REFERENCE}, tooltip={quoted(label)}]"


def _source(page: Page, edge: Edge) -> str:
    """`tril_2`; which of its outputs, where it has several: `chunk 3`."""
    node = page.graph.nodes[edge.source]["node"]
    return _name(node) + (f" {edge.output + 1}" if len(node.outputs) > 1 else "")


def _arrow(page: Page, edge: Edge) -> str:
    label = page.labels.shape(edge.shape)
    if page.labels.sizes:
        label += f" \n {page.labels.numbers(edge.shape)}"
    return f"{quoted(_tail(page, edge))} -> {quoted(_head(page, edge))} [label={quoted(f' {label} ')}]"


def _tail(page: Page, edge: Edge) -> str:
    """Where the arrow starts: at the source, or at a reference to it."""
    if (edge.source, edge.output) in page.referred and edge not in page.ending:
        return f"{edge.source}.{edge.output} for {edge.target}"
    return edge.source


def _head(page: Page, edge: Edge) -> str:
    """Where the arrow ends: at the target, or at a reference to the model's output."""
    return f"{edge.target} {edge.argument + 1}" if edge in page.ending else edge.target
