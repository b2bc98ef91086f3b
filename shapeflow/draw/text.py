"""The printed shape trace: one line for each operator, under the modules that call it.

>>> print(render_text(graph, sizes={"B": 2, "T": 5}))
...
blocks.0.ffn  FeedForward  8,352 parameters
  net.0 ...
    linear     B T d_model -> B T d_ff      2 5 128    weight, bias
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import networkx as nx
from rich.text import Text

from shapeflow.draw.label import Labels, counted, heading_of, parameters_of, place, reads_of
from shapeflow.draw.legend import legend, size_of, wrapped
from shapeflow.graph import Block, collapse, inputs_of, nodes
from shapeflow.trace.result import Condition, Node, Scope

WIDTH = 86  # of the legend's entries; lines of the trace are as long as their shapes
CAPS = (40, 40, 32, 20, 34)  # a cell longer than its column's cap moves the rest of its line, and no other line

Segment = tuple[str, str]  # text, rich style


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the trace. `cells` are name, inputs, outputs, sizes, parameters, place; a heading has segments only."""

    depth: int
    cells: tuple[str, ...] = ()
    heading: tuple[Segment, ...] = ()


def render_text(
    graph: nx.MultiDiGraph,
    *,
    depth: int | None = None,
    sizes: Mapping[str, int] | None = None,
    locations: bool = False,
) -> str:
    """The shape trace as plain text: nothing is cut, whatever the terminal's width.

    `depth` levels of modules are shown, those of the last on one line each; `sizes` (name -> number) are written
    beside the names; `locations` adds the source line of each operator.
    """
    lines = _lines(graph, depth=depth, sizes=sizes, locations=locations)
    return "\n".join("".join(text for text, _ in line) for line in lines)


def render_rich(
    graph: nx.MultiDiGraph,
    *,
    depth: int | None = None,
    sizes: Mapping[str, int] | None = None,
    locations: bool = False,
) -> Text:
    """The same lines with colours, for a terminal."""
    lines = _lines(graph, depth=depth, sizes=sizes, locations=locations)
    return Text("\n").join(Text.assemble(*line) for line in lines)


def _lines(
    graph: nx.MultiDiGraph, *, depth: int | None, sizes: Mapping[str, int] | None, locations: bool
) -> Iterator[list[Segment]]:
    labels = Labels.of(graph, sizes)
    shown = graph if depth is None else collapse(graph, depth)
    yield [(graph.graph["name"], "bold")]
    for title, words in legend(shown, labels):
        yield from _entry(title, words)
    yield []
    rows = list(_rows(shown, labels, locations=locations))
    widths = _widths(rows)
    yield from (_trimmed(_line(row, widths)) for row in rows)
    yield []
    yield from _closing(graph)


def _entry(title: str, words: list[str]) -> Iterator[list[Segment]]:
    for i, line in enumerate(wrapped(words, WIDTH)):
        yield [(f"  {title if i == 0 else '':<12}", "dim"), (line, "")]


def _rows(graph: nx.MultiDiGraph, labels: Labels, *, locations: bool) -> Iterator[Row]:
    """The operators in execution order, a heading wherever a module call begins."""
    opened: tuple[Scope, ...] = ()
    for node in nodes(graph):
        if node.kind in ("input", "output"):
            continue
        scopes = node.scopes[:-1] if isinstance(node, Block) else node.scopes
        shared = _shared(opened, scopes)
        yield from (Row(depth, heading=_heading(graph, scopes[: depth + 1])) for depth in range(shared, len(scopes)))
        opened = scopes
        yield Row(len(scopes), cells=_cells(graph, node, labels, locations=locations))


def _shared(a: tuple[Scope, ...], b: tuple[Scope, ...]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _heading(graph: nx.MultiDiGraph, scopes: tuple[Scope, ...]) -> tuple[Segment, ...]:
    module = scopes[-1]
    parameters = parameters_of(graph, module.path)
    about = f"  {counted(parameters, 'parameter')}" if parameters else ""
    return (heading_of(graph, scopes), "bold"), (f"  {module.kind}", "cyan"), (about, "dim")


def _cells(graph: nx.MultiDiGraph, node: Node | Block, labels: Labels, *, locations: bool) -> tuple[str, ...]:
    inputs = labels.shapes(edge.shape for edge in inputs_of(graph, node.name))
    outputs = labels.shapes(node.outputs)
    numbers = ", ".join(map(labels.numbers, node.outputs)) if labels.sizes else ""
    if isinstance(node, Block):
        about = (counted(node.parameters, "parameter") if node.parameters else "", counted(node.operators, "operator"))
        return _title(graph, node), inputs, outputs, numbers, ", ".join(filter(None, about)), ""
    where = f"{place(node.location)}  {node.location.code}" if locations and node.location else ""
    return node.operator or node.kind, inputs, outputs, numbers, reads_of(node), where


def _title(graph: nx.MultiDiGraph, block: Block) -> str:
    return f"{heading_of(graph, block.scopes)}  {block.scopes[-1].kind}" if block.scopes else graph.graph["name"]


def _widths(rows: list[Row]) -> list[int]:
    """The width of each column but the last: its longest cell within the column's cap."""
    table = [(_indent(row) + row.cells[0], *row.cells[1:]) for row in rows if row.cells]
    return [_width([len(cells[i]) for cells in table if cells[i]], cap) for i, cap in enumerate(CAPS)]


def _width(lengths: list[int], cap: int) -> int:
    return max((length for length in lengths if length <= cap), default=min(lengths, default=0))


def _indent(row: Row) -> str:
    return "  " * row.depth


def _line(row: Row, widths: list[int]) -> list[Segment]:
    if row.heading:
        return [(_indent(row), ""), *row.heading]
    name, inputs, outputs, numbers, reads, where = row.cells
    width = dict(zip(("name", "inputs", "outputs", "numbers", "reads"), widths, strict=True))
    return [
        (f"{_indent(row) + name:<{width['name']}}  ", ""),
        (f"{inputs:<{width['inputs']}}", "dim"),
        (" -> ", "dim"),
        (f"{outputs:<{width['outputs']}}", "green"),
        (f"  {numbers:<{width['numbers']}}" if width["numbers"] else "", "magenta"),
        (f"  {reads:<{width['reads']}}" if width["reads"] else "", "dim"),
        (f"  {where}" if where else "", "dim italic"),
    ]


def _trimmed(line: list[Segment]) -> list[Segment]:
    """Without the last columns' padding: a narrow terminal would wrap it."""
    while line and not line[-1][0].rstrip():
        line.pop()
    return [*line[:-1], (line[-1][0].rstrip(), line[-1][1])]


def _closing(graph: nx.MultiDiGraph) -> Iterator[list[Segment]]:
    """For which sizes and values the trace is true, and how much there is of the model."""
    if graph.graph["domain"]:
        yield from _entry("for", [graph.graph["domain"]])
        if ">= 2" in graph.graph["domain"] or "2 <=" in graph.graph["domain"]:  # the generic run leaves 1 out
            yield [(" " * 14 + "(a size of 1 may run another way)", "dim")]
    yield from _conditions("as long as", graph.graph["conditions"])
    yield from _conditions("taking", graph.graph["assumptions"])
    yield [(f"  {'total':<12}", "dim"), (size_of(graph), "bold")]


def _conditions(title: str, conditions: tuple[Condition, ...]) -> Iterator[list[Segment]]:
    """One line each, with who asked; what every block asks anew is one line that counts."""
    for i, (condition, times) in enumerate(Counter(conditions).items()):
        asked = f"   {place(condition.location)}  {condition.location.code}" if condition.location else ""
        often = f"  x{times}" if times > 1 else ""
        yield [(f"  {title if i == 0 else '':<12}", "dim"), (str(condition), ""), (asked + often, "dim")]
