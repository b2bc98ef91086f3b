"""The graph as DOT source: boxes for modules, the shape on every edge. Same graph, same text.

>>> print(to_dot(graph, depth=1))
digraph "GPT" {
...
  "embedding" -> "@blocks.0" [label=" B T d_model "]
}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

import networkx as nx

from shapeflow.draw.cluster import Cluster, Scopes, clusters
from shapeflow.draw.key import key
from shapeflow.draw.look import Look, look, title
from shapeflow.draw.markup import Line, html, quoted
from shapeflow.draw.sheet import Sheet
from shapeflow.draw.weights import Weights
from shapeflow.graph import Block, edges, inputs_of, nodes
from shapeflow.graph.ends import spoken
from shapeflow.graph.page import from_sizes
from shapeflow.trace.result import Edge, Node

STYLE = """\
  graph [rankdir=TB, newrank=true, nodesep=0.2, ranksep=0.17, labelloc=t, labeljust=l, pad=0.25]
  graph [bgcolor="{ground}", tooltip=" "]
  graph [fontname="Helvetica,Arial,sans-serif", fontsize=11, fontcolor="{text}"]
  node [shape=box, style="rounded,filled", fillcolor="{plain}", color="{border}", height=0.28, margin="0.1,0.04"]
  node [fontname="Helvetica,Arial,sans-serif", fontsize=11, fontcolor="{text}"]
  edge [fontname="Helvetica,Arial,sans-serif", fontsize=9, fontcolor="{faint}", color="{line}", arrowsize=0.55]"""

# Straightening the lines of a large graph takes longer than anything else: 64 s for 4,700 operators, 29 s with a limit.
LARGE = 500
LIMITS = "  graph [nslimit=1]"

SPINE_WEIGHT, CHAIN_WEIGHT = 12, 4


def to_dot(graph: nx.MultiDiGraph, **options: Any) -> str:
    """DOT source of the graph, as one page.

    `depth` shows so many levels of modules instead, `unfold` draws equal neighbours one by one, and everything when
    no depth is given. `sizes` (name -> number) are written below the names. `theme` is `light` or `dark`.
    `parameters` draws the weights that operators read. `report` is what `sf.check` found, to be marked in red.
    `flops` (module path -> words) are written on modules.
    """
    sheet = Sheet.of(graph, **options)
    weights, tree = Weights.of(sheet), clusters(sheet.graph)
    low = _lowered(sheet, tree)
    return "\n".join(
        [
            f"digraph {quoted(graph.graph['name'])} {{",
            _style(sheet),
            *([LIMITS] if len(sheet.graph) > LARGE else []),
            f"  label={key(sheet)}",
            *_lines(sheet, weights, tree, indent="  "),
            *_rows(sheet.graph, tree),
            *(f"  {_arrow(sheet, edge, count, low)}" for edge, count in _drawn(sheet).items()),
            *(f"  {arrow}" for arrow in weights.arrows()),
            *_near(sheet),
            *_below(sheet),
            "}\n",
        ]
    )


def _style(sheet: Sheet) -> str:
    theme = sheet.theme
    colours = {"ground": theme.ground, "text": theme.text, "faint": theme.faint, "line": theme.line}
    return STYLE.format(**colours, plain=theme.plain.fill, border=theme.plain.line)


def _lines(sheet: Sheet, weights: Weights, cluster: Cluster, *, indent: str) -> Iterator[str]:
    for item in cluster.items:
        if isinstance(item, Cluster):
            yield from _box(sheet, weights, item, cluster.scopes, indent=indent)
            continue
        yield from (indent + line for line in (*_references(sheet, item.name), *weights.boxes(item.name)))
        yield indent + _statement(sheet, item, look(sheet, item, cluster.scopes))


def _box(sheet: Sheet, weights: Weights, cluster: Cluster, around: Scopes, *, indent: str) -> Iterator[str]:
    """A module's box. Its title is a node in the first row: beside it, where no edge runs into the words."""
    module, theme, name = cluster.scopes[-1], sheet.theme, _box_name(cluster)
    fill = theme.clusters[len(cluster.scopes) % len(theme.clusters)]
    inner = indent + "  "
    yield f"{indent}subgraph {quoted(f'cluster_{name}')} {{"
    yield (
        f'{inner}style="rounded,filled"; fillcolor="{fill}"; color="{theme.cluster_line}"; label=""; '
        f"tooltip={quoted(module.path)}"
    )
    words = html(*title(sheet, cluster.scopes, around, apart=True), align="left")
    yield f'{inner}{quoted(f"title {name}")} [label={words}, shape=plaintext, style="", margin="0.02,0.02"]'
    yield from _lines(sheet, weights, cluster, indent=inner)
    yield indent + "}"


def _near(sheet: Sheet) -> Iterator[str]:
    """What only references lead away from stands above the first of them, not at the top of the page."""
    lines = [edge for edge in edges(sheet.graph) if _tail(sheet, edge) == edge.source]
    joined = {edge.source for edge in lines} | {edge.target for edge in lines}
    for source in dict.fromkeys(name for name, _ in sheet.referred if name not in joined):
        first = next(edge for edge in edges(sheet.graph) if edge.source == source)
        yield f"  {quoted(source)} -> {quoted(_tail(sheet, first))} [style=invis]"


def _below(sheet: Sheet) -> Iterator[str]:
    """A decoder stands below the encoder whose memory it names: side by side they are too wide for a page."""
    graph = sheet.graph
    drawn = nx.DiGraph((edge.source, edge.target) for edge in edges(graph) if _tail(sheet, edge) == edge.source)
    parts = _parts(graph, drawn)
    for source in dict.fromkeys(name for name, _ in sheet.referred if _has(graph, parts.get(name, ()), "input")):
        before = nx.ancestors(graph, source) | {source}
        for part in dict.fromkeys(parts[name] for name in graph.successors(source) if name in parts):
            below = part.union(*(nx.ancestors(drawn, name) for name in part)) - before
            after = {reader for name in part for reader in graph.successors(name)}
            if part.isdisjoint(before) and _has(graph, after, "output"):
                for name in (name for name in graph if name in below and below.isdisjoint(drawn.pred.get(name, ()))):
                    yield f"  {quoted(source)} -> {quoted(name)} [style=invis, weight=0]"


def _parts(graph: nx.MultiDiGraph, drawn: nx.DiGraph) -> dict[str, frozenset[str]]:
    """What the drawn lines join, by node; masks and positions, which they share, join nothing, nor do the outputs."""
    apart = from_sizes(graph) | {node.name for node in nodes(graph) if node.kind in ("output", "made")}
    lines = nx.Graph(line for line in drawn.edges() if apart.isdisjoint(line))
    return {name: frozenset(part) for part in nx.connected_components(lines) for name in part}


def _has(graph: nx.MultiDiGraph, names: Iterable[str], kind: str) -> bool:
    return any(graph.nodes[name]["node"].kind == kind for name in names)


def _rows(graph: nx.MultiDiGraph, tree: Cluster) -> Iterator[str]:
    """Each title in one row with the first node in its box, to the left of it."""
    generations = enumerate(nx.topological_generations(graph))
    return _beside(graph, tree, {name: height for height, names in generations for name in names})


def _beside(graph: nx.MultiDiGraph, cluster: Cluster, heights: Mapping[str, int]) -> Iterator[str]:
    for item in cluster.items:
        if isinstance(item, Cluster):
            first = _first(graph, [node.name for node, _ in item.walk()], heights)
            yield f"  {{rank=same; {quoted(f'title {_box_name(item)}')} -> {quoted(first)} [style=invis]}}"
            yield from _beside(graph, item, heights)


def _first(graph: nx.MultiDiGraph, names: list[str], heights: Mapping[str, int]) -> str:
    """The highest node that a line from outside the box enters; what nothing feeds moves down to its readers."""
    inside = set(names)
    entered = [name for name in names if not inside.issuperset(graph.predecessors(name))]
    return min(entered or names, key=heights.__getitem__)


def _box_name(cluster: Cluster) -> str:
    module = cluster.scopes[-1]
    return f"{module.path}#{module.call + 1}"


def _statement(sheet: Sheet, node: Node | Block, seen: Look) -> str:
    lane = f'group="line {sheet.lanes[node.name] + 1}"' if node.name in sheet.lanes else ""
    lane += (
        ", ordering=out"
        if any((node.name, reader) in sheet.straight for reader in sheet.graph.successors(node.name))
        else ""
    )
    called = [name for output in range(max(1, len(node.outputs))) if (name := sheet.referred.get((node.name, output)))]
    name = _without_number(called[0]) if len(called) > 1 else "".join(called)
    told = not name or any(line.text == name for line in seen.lines)
    named = () if told else (Line(f"= {name}", size=9, color=sheet.theme.mark),)
    words = [f"label={html(*seen.lines, *named)}", seen.style, lane, f"tooltip={quoted(seen.tooltip)}"]
    return f"{quoted(node.name)} [{', '.join(filter(None, words))}]"


def _references(sheet: Sheet, name: str) -> Iterator[str]:
    """The small named boxes at a node: tensors from far away that it reads, outputs of the model that it makes."""
    read: dict[str, str] = {}
    for edge in inputs_of(sheet.graph, name):
        tail, word = _tail(sheet, edge), sheet.referred.get((edge.source, edge.output), "")
        read[tail] = _without_number(word) if tail in read else word
    made = {_head(sheet, edge): _ending(sheet, edge) for _, _, edge in sheet.graph.out_edges(name, data="edge")}
    for reference, label in (read | made).items():
        if reference not in sheet.graph:
            yield (
                f'{quoted(reference)} [label={quoted(label)}, style="rounded,dashed", color="{sheet.theme.mark}", '
                f'height=0.2, margin="0.06,0.02", fontsize=9, tooltip={quoted(label)}]'
            )


def _without_number(name: str) -> str:
    """`rotary` for `rotary 1` and `rotary 2`, both read by one node."""
    return name.rsplit(" ", 1)[0]


def _ending(sheet: Sheet, edge: Edge) -> str:
    """What an output is called where it is made: by its own name, or `cache` where a block stands for many."""
    if _stands_for_many(sheet, edge):
        return spoken(sheet.graph.graph["ends"][edge.target])
    names = sheet.graph.graph.get("output_names", ())
    name = names[edge.argument] if edge.argument < len(names) else ""
    return name or f"output {edge.argument + 1}"


def _stands_for_many(sheet: Sheet, edge: Edge) -> bool:
    """Whether blocks are folded, so that an edge to bundled outputs stands for those of all copies."""
    return bool(sheet.graph.graph["repeats"]) and _bundled(sheet, edge)


def _drawn(sheet: Sheet) -> dict[Edge, int]:
    """The edges to draw, each with how many it stands for: tensors of one shape to
    many like outputs, or from one reference.

    Those of a residual stream stand before the branches: it keeps to the left of them, on one line.
    """
    ordered = sorted(edges(sheet.graph), key=lambda edge: (edge.source, edge.target) not in sheet.straight)
    first: dict[tuple, Edge] = {}
    counts: Counter[Edge] = Counter()
    for edge in ordered:
        tail, head = _tail(sheet, edge), _head(sheet, edge)
        many = _stands_for_many(sheet, edge) or (edge not in sheet.ending and _bundled(sheet, edge))
        alike = (tail, head, edge.shape) if many or tail != edge.source or _is_made(sheet, edge) else (edge,)
        counts[first.setdefault(alike, edge)] += 1
    return counts


def _bundled(sheet: Sheet, edge: Edge) -> bool:
    return len(sheet.graph.graph.get("ends", {}).get(edge.target, ())) > 1


def _is_made(sheet: Sheet, edge: Edge) -> bool:
    return sheet.graph.nodes[edge.source]["node"].kind == "made"


def _lowered(sheet: Sheet, tree: Cluster) -> frozenset[Edge]:
    """The lines into a box to a node with a reference above it: that has to be in the box too, below where they start.

    Boxes that share a row of nodes stand side by side, however long the page.
    """
    boxes = {node.name: scopes for node, scopes in tree.walk()}
    found: set[Edge] = set()
    for name in sheet.graph:
        read, box = inputs_of(sheet.graph, name), boxes[name]
        if any(_tail(sheet, edge) != edge.source for edge in read):
            found.update(edge for edge in read if boxes[edge.source][: len(box)] != box)
    return frozenset(found)


def _arrow(sheet: Sheet, edge: Edge, count: int, low: Set[Edge]) -> str:
    label = f" {sheet.labels.shape(edge.shape)} "
    if sheet.labels.sizes:
        label += f"\n {sheet.labels.numbers(edge.shape)} "
    if count > 1:
        label += f" x{count} "
    below = ["minlen=2"] if edge in low and _tail(sheet, edge) == edge.source else []
    words = [f"label={quoted(label)}", *below, *_line_style(sheet, edge)]
    return f"{quoted(_tail(sheet, edge))} -> {quoted(_head(sheet, edge))} [{', '.join(words)}]"


def _line_style(sheet: Sheet, edge: Edge) -> Iterator[str]:
    """Red into a finding; else strong and straight on a residual stream, dashed for sizes that values decide."""
    theme, found = sheet.theme, sheet.findings.get(edge.target, ())
    straight = (edge.source, edge.target) in sheet.straight
    if straight or (sheet.graph.out_degree(edge.source) == 1 and sheet.graph.in_degree(edge.target) == 1):
        yield f"weight={SPINE_WEIGHT if straight else CHAIN_WEIGHT}"
    if found:
        paint = theme.error if any(each.level == "error" for each in found) else theme.warning
        yield f'color="{paint.line}", fontcolor="{paint.line}", penwidth=2'
    elif straight:
        yield f'color="{theme.spine}", penwidth=1.8'
    if sheet.is_fresh(edge.shape):
        yield f'style=dashed, fontcolor="{theme.fresh}"' + ("" if found or straight else f', color="{theme.fresh}"')


def _tail(sheet: Sheet, edge: Edge) -> str:
    """Where the arrow starts: at the source, or at a reference to it."""
    straight = (edge.source, edge.target) in sheet.straight
    ends = edge in sheet.ending or sheet.graph.nodes[edge.target]["node"].kind == "output"
    if (edge.source, edge.output) in sheet.referred and not ends and not straight:
        return f"{edge.source} for {edge.target}"
    return edge.source


def _head(sheet: Sheet, edge: Edge) -> str:
    """Where the arrow ends: at the target, or at a reference to the model's output."""
    if edge not in sheet.ending:
        return edge.target
    return f"{edge.target} of {edge.source}" if _stands_for_many(sheet, edge) else f"{edge.target} {edge.argument + 1}"
