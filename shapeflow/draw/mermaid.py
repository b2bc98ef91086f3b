"""The graph as a Mermaid flowchart, which GitHub and GitLab draw in a README: boxes for modules, a shape on every edge.

>>> print(to_mermaid(graph, depth=1))
---
title: "GPT: 33,764 parameters, 114 operators"
...
flowchart TB
  n0(["ids<br/>B T:int64"]):::outside
  n1["tokens.table<br/>Embedding, 3,200 parameters"]:::weights
  n0 -->|"B T:int64"| n1
...

Mermaid reads labels as Markdown with `#name;` for letters, and everything in them comes from the model: what could mean
something is written by its number. GitHub draws no more than 500 edges or 50,000 letters, so more are refused here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import networkx as nx

from shapeflow.draw.cluster import Cluster, Scopes, clusters
from shapeflow.draw.label import counted
from shapeflow.draw.legend import legend, size_of
from shapeflow.draw.look import look, title
from shapeflow.draw.markup import Line
from shapeflow.draw.palette import Paint, Theme, family_of
from shapeflow.draw.sheet import Sheet
from shapeflow.errors import DrawError
from shapeflow.graph import Block, edges, inputs_of
from shapeflow.trace.result import Edge, Node

MOST_EDGES, MOST_LETTERS = 500, 50_000

# Wide enough for a line of a label; and arrows would run through the titles of boxes.
CONFIG = ("config:", "  flowchart:", "    wrappingWidth: 400", "    subGraphTitleMargin: {top: 4, bottom: 14}")

FORMS = {"outside": ("([", "])"), "constant": ("[/", "/]"), "module": ("[[", "]]"), "reference": ("([", "])")}

# What stays: letters, digits, a `_` within a word, and some marks; but at the start, where Markdown has its lists, no
# `-`, `+`, `=`, and no `.` after a number.
SPECIAL = re.compile(r"^[-+=]|(?<=^[0-9])[.)]|(?<=^[0-9]{2})[.)]|(?<![^\W_])_|_(?![^\W_])|[^\w\s.,:()+=/-]")


@dataclass(frozen=True, slots=True)
class Chart:
    """A sheet, and Mermaid's names for its nodes: any name of ours could be a word of its language."""

    sheet: Sheet
    ids: Mapping[str, str]


def to_mermaid(graph: nx.MultiDiGraph, **options: Any) -> str:
    """The flowchart as text, with what `to_dot` shows for the same options. Same graph, same text.

    Raises DrawError where GitHub would not draw it.
    """
    sheet = Sheet.of(graph, **options)
    chart = Chart(sheet, {name: f"n{i}" for i, name in enumerate(sheet.graph)})
    boxes = count()
    lines = [*_head(sheet), *_body(chart, clusters(sheet.graph), boxes)]
    arrows = [arrow for edge in edges(sheet.graph) for arrow in _arrow(chart, edge)]
    text = "\n".join([*lines, *arrows, *_styles(sheet.theme, next(boxes)), ""])
    _check_size(sheet.graph.graph["name"], len(arrows), len(text))
    return text


def _check_size(name: str, arrows: int, letters: int) -> None:
    if arrows > MOST_EDGES or letters > MOST_LETTERS:
        raise DrawError(
            f"too large for Mermaid: {name} has {counted(arrows, 'edge')} and {letters:,} letters, and GitHub draws "
            f"{MOST_EDGES} and {MOST_LETTERS:,}; draw one page (no depth), fewer levels of modules (depth=1), or an svg"
        )


def _head(sheet: Sheet) -> Iterator[str]:
    """The title; what the names mean, and for which sizes it is true, as the description that screen readers tell."""
    facts = sheet.graph.graph
    heading = f"{facts['name']}: {size_of(sheet.graph)}"
    about = [f"{name} {', '.join(words)}" for name, words in legend(sheet.graph, sheet.labels)]
    if facts["domain"]:
        about.append(f"for {facts['domain']}")
    yield from ("---", f"title: {json.dumps(heading)}", *CONFIG, "---", "flowchart TB")
    yield f"  accDescr: {escaped('; '.join(about))}"


def _body(chart: Chart, cluster: Cluster, boxes: Iterator[int], *, indent: str = "  ") -> Iterator[str]:
    """Nodes in the order of running, in the boxes of their modules."""
    for item in cluster.items:
        if isinstance(item, Cluster):
            words = _words(title(chart.sheet, item.scopes, cluster.scopes))
            yield f'{indent}subgraph s{next(boxes)}["{": ".join(words)}"]'
            yield from _body(chart, item, boxes, indent=indent + "  ")
            yield f"{indent}end"
        else:
            yield from (indent + line for line in _nodes(chart, item, cluster.scopes))


def _nodes(chart: Chart, node: Node | Block, around: Scopes) -> Iterator[str]:
    """A node, after the references to far tensors that it reads and before the outputs of the model that it makes."""
    sheet, name = chart.sheet, chart.ids[node.name]
    for edge in {_tail(chart, edge): edge for edge in inputs_of(sheet.graph, node.name)}.values():
        if (tensor := (edge.source, edge.output)) in sheet.referred and edge not in sheet.ending:
            yield _statement(_tail(chart, edge), "reference", [escaped(sheet.referred[tensor])])
    words = _words(look(sheet, node, around).lines)
    if node.kind == "input":
        words.append(escaped(sheet.labels.shapes(node.outputs)))
    called = [escaped(sheet.referred.get((node.name, output), "")) for output in range(len(node.outputs))]
    words += [f"= {word}" for word in dict.fromkeys(called) if word != EMPTY and word not in words]
    yield _statement(name, _form(sheet, node), words)
    for _, _, edge in sheet.graph.out_edges(node.name, data="edge"):
        if edge in sheet.ending:
            yield _statement(_head_of(chart, edge), "outside", [escaped(f"output {edge.argument + 1}")])


def _statement(name: str, form: str, words: Iterable[str]) -> str:
    start, end = FORMS.get(form, ("[", "]"))
    return f'{name}{start}"{"<br/>".join(words)}"{end}:::{form}'


def _words(lines: Iterable[Line]) -> list[str]:
    return [escaped(f"{line.text}, {line.mark}" if line.mark else line.text) for line in lines if line.text]


def _form(sheet: Sheet, node: Node | Block) -> str:
    """The class of a node, which is also the name of its style."""
    if node.name in sheet.findings:
        return "finding"
    if isinstance(node, Block):
        return node.kind if node.kind == "module" else "plain"
    if node.kind != "operator":
        return "constant" if node.kind == "constant" else "outside"
    return family_of(node.operator) or ("weights" if node.parameters else "plain")


def _arrow(chart: Chart, edge: Edge) -> Iterator[str]:
    """An arrow with the shape, thick on a residual stream and dotted from a reference."""
    labels = chart.sheet.labels
    shape = escaped(labels.shape(edge.shape))
    if labels.sizes:
        shape += f"<br/>{escaped(labels.numbers(edge.shape))}"
    line = "==>" if (edge.source, edge.target) in chart.sheet.straight else "-->"
    tail = _tail(chart, edge)
    yield f'  {tail} {line if tail == chart.ids[edge.source] else "-.->"}|"{shape}"| {_head_of(chart, edge)}'


def _tail(chart: Chart, edge: Edge) -> str:
    """Where an arrow starts: at the source, or at a reference to it beside the reader."""
    sheet, name = chart.sheet, chart.ids[edge.source]
    straight = (edge.source, edge.target) in sheet.straight
    if (edge.source, edge.output) in sheet.referred and edge not in sheet.ending and not straight:
        return f"{name}x{edge.output}{chart.ids[edge.target]}"
    return name


def _head_of(chart: Chart, edge: Edge) -> str:
    """Where an arrow ends: at the target, or at a box for one of many outputs beside the node that makes it."""
    return f"{chart.ids[edge.target]}y{edge.argument}" if edge in chart.sheet.ending else chart.ids[edge.target]


def _styles(theme: Theme, boxes: int) -> Iterator[str]:
    if boxes:
        yield f"  class {','.join(f's{number}' for number in range(boxes))} scope"
    paints = {"plain": theme.plain, "constant": theme.made, **theme.fills, "finding": theme.error}
    yield from (_style(name, paint, theme.text) for name, paint in paints.items())
    yield _style("module", theme.block, theme.text, "stroke-width:2px")
    yield _style("outside", theme.end, theme.end_text)
    yield _style("reference", Paint(theme.ground, theme.mark), theme.text, "stroke-dasharray:4")
    yield _style("scope", Paint(theme.clusters[0], theme.cluster_line), theme.text)


def _style(name: str, paint: Paint, text: str, *more: str) -> str:
    return f"  classDef {name} {','.join((f'fill:{paint.fill}', f'stroke:{paint.line}', f'color:{text}', *more))}"


def escaped(text: str) -> str:
    """A label's text that shows as it is: no quotes, no tags, no Markdown, no directive, one line."""
    text = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return SPECIAL.sub(lambda match: f"#{ord(match[0])};", text) or EMPTY


EMPTY = "#32;"
