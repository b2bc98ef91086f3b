"""A difference as text, by module: what was added (`+`), removed (`-`), changed (`~`), renamed or moved (`>`).

>>> print(render_text(diff(before, after)))
GPT -> GPT
  holds for   B >= 2, 2 <= T <= 64 -> B >= 2, 2 <= T <= 128

~ positions.table  Embedding
    ~ weight  64 32 -> 128 32  parameter
+ blocks.2  DecoderBlock, 12,576 parameters, 54 operators

  total       33,764 -> 48,388 parameters (+14,624), 114 -> 168 operators (+54)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby

import networkx as nx
from rich.text import Text

from shapeflow.draw.label import MANY, Labels, counted, parameters_of
from shapeflow.draw.spans import Segment, pre
from shapeflow.graph import Block, inputs_of, nodes
from shapeflow.graph.alignment import Pair
from shapeflow.graph.arguments import text
from shapeflow.graph.calls import Call, Leaf, closed
from shapeflow.graph.difference import Comparison, Difference
from shapeflow.trace.result import Argument, Edge, Node, Shape

# Blue and orange stay apart for every kind of colour blindness; the sign tells without colour.
STYLES = {"+": "bold blue", "-": "bold dark_orange", "~": "bold magenta", ">": "bold magenta", " ": "bold"}


@dataclass(frozen=True, slots=True)
class Row:
    """What happened to one operator or parameter of a module: `times` where several tell the same."""

    mark: str
    name: str
    text: str
    what: str = ""
    times: int = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """A module with what is other in it; `to` is its path now. `more` are the paths of those that are alike."""

    mark: str
    path: str
    to: str
    about: str
    rows: tuple[Row, ...] = ()
    more: tuple[tuple[str, str], ...] = ()


def render_text(difference: Difference) -> str:
    """The difference as plain text."""
    return "\n".join("".join(text for text, _ in line) for line in lines(difference))


def render_rich(difference: Difference) -> Text:
    """The same lines with colours, for a terminal."""
    return Text("\n").join(Text.assemble(*line) for line in lines(difference))


def render_html(difference: Difference) -> str:
    """The same lines for a notebook."""
    return pre(lines(difference))


def lines(difference: Difference) -> Iterator[list[Segment]]:
    before, after = difference.before.graph["name"], difference.after.graph["name"]
    yield [(before if before == after and not difference else f"{before} -> {after}", "bold")]
    if not difference:
        yield [("  no difference", "green"), (f"  {_size(difference.after)}", "dim")]
        return
    yield from facts(difference)
    entries = list(alike(Entries(difference)))
    if entries:
        yield []
    for entry in entries:
        yield from _entry(entry)
    yield []
    yield closing(difference)


def facts(difference: Difference) -> Iterator[list[Segment]]:
    """What is other in the graphs as a whole."""
    if difference.sizes:
        told = ", ".join(f"{name} = {old} -> {new}" for name, (old, new) in difference.sizes.items())
        only = sum(change.reasons == ("sizes",) for change in difference.changed)
        yield [("  sizes       ", "dim"), (told, ""), (f"  (in the shapes of {counted(only, 'operator')})", "dim")]
    if difference.domain:
        old, new = difference.domain
        yield [("  holds for   ", "dim"), (f"{old or 'any size'} -> {new or 'any size'}", "")]


def _entry(entry: Entry) -> Iterator[list[Segment]]:
    paths = [(entry.path, entry.to), *entry.more]
    often = f", x{len(paths)}" if entry.more else ""
    about = f"  {entry.about}" if entry.about else ""
    yield [(f"{entry.mark} {way(paths)}{often}", STYLES[entry.mark]), (about, "")]
    width = max((len(row.name) for row in entry.rows), default=0)
    text_width = max((len(row.text) for row in entry.rows if row.what or row.times > 1), default=0)
    for row in entry.rows:
        after = f"{row.text:<{text_width}}  {row.what}" + (f"  x{row.times}" if row.times > 1 else "")
        yield [(f"    {row.mark} ", STYLES[row.mark]), (f"{row.name:<{width}}  ", ""), (after.rstrip(), "dim")]


def way(paths: list[tuple[str, str]]) -> str:
    """`blocks.0 to blocks.11`, and after an arrow what they are called now, where that is another name."""
    names = [_span([path for path, _ in paths])]
    if any(path != to for path, to in paths):
        names.append(_span([to for _, to in paths]))
    return " -> ".join(names)


def _span(paths: list[str]) -> str:
    return paths[0] if len(set(paths)) == 1 else f"{paths[0]} to {paths[-1]}"


def closing(difference: Difference) -> list[Segment]:
    """What the differences come to."""
    old, new = difference.before, difference.after
    pairs = [
        (_parameters(old), _parameters(new), "parameter"),
        (_operators(old), _operators(new), "operator"),
    ]
    told = ", ".join(_way(a, b, noun) for a, b, noun in pairs)
    return [("  total       ", "dim"), (told, "bold")]


def _way(old: int, new: int, noun: str) -> str:
    return counted(new, noun) if old == new else f"{old:,} -> {counted(new, noun)} ({new - old:+,})"


def _size(graph: nx.MultiDiGraph) -> str:
    return f"{counted(_parameters(graph), 'parameter')}, {counted(_operators(graph), 'operator')}"


def _parameters(graph: nx.MultiDiGraph) -> int:
    return parameters_of(graph, "")


def _operators(graph: nx.MultiDiGraph) -> int:
    return sum(node.operators if isinstance(node, Block) else node.kind == "operator" for node in nodes(graph))


def alike(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Entries that differ in the numbers of their paths alone as one: twelve blocks with the same change."""
    kinds: dict[object, list[Entry]] = {}
    for entry in entries:
        key = (entry.mark, _pattern(entry.path), _pattern(entry.to), entry.about, entry.rows)
        kinds.setdefault(key, []).append(entry)
    for first, *others in kinds.values():
        yield replace(first, more=tuple((entry.path, entry.to) for entry in others))


def _pattern(path: str) -> str:
    return re.sub(r"\d+", "#", path)


class Entries:
    """The entries of one difference, module by module in the order of running."""

    def __init__(self, difference: Difference) -> None:
        self.difference = difference
        self.before, self.after = difference.before, difference.after
        self.comparison = Comparison(self.before, self.after, difference.root)
        labels = Labels.of(self.after)
        self.labels = replace(labels, names={}, _known={})  # names for long sizes are another graph's as well
        self.rows = self._parameter_rows()

    def __iter__(self) -> Iterator[Entry]:
        yield from self._module(self.difference.root)
        yield from self.rest()

    def rest(self) -> Iterator[Entry]:
        """What is other in modules that are not called."""
        called = {
            pair.after.path for pair in self.difference.root.walk() if pair.before and isinstance(pair.after, Call)
        }
        for path in self.rows:
            if path not in called:
                graph = self.after if path in self.after.graph["modules"] else self.before
                module = graph.graph["modules"].get(path)
                never = ", never called" if module and not module.called else ""
                yield Entry(" ", path, path, f"{module.kind if module else ''}{never}", tuple(self.rows[path]))

    def of(self, pair: Pair) -> Entry | None:
        """What is other in a module that is in both graphs, but for the modules inside it."""
        before, after = pair.before, pair.after
        assert isinstance(before, Call) and isinstance(after, Call)
        rows = list(self._node_rows([part for part in pair.parts if isinstance(part.item, Leaf)]))
        if not after.scopes or not after.scopes[-1].call:  # parameters once, with the first call
            rows += self.rows.get(after.path, [])
        reasons = set(self.comparison.reasons(pair))
        if not rows and not reasons:
            return None
        mark = "~" if "class" in reasons else ">" if reasons else " "
        kinds = dict.fromkeys((before.kind, after.kind))
        about = " -> ".join(filter(None, kinds)) + ("  runs elsewhere" if "moved" in reasons else "")
        path, to = self._path(before if reasons & {"renamed", "moved"} else after), self._path(after)
        return Entry(mark, path, to, about, tuple(rows))

    def whole(self, pair: Pair) -> Entry:
        """A module of which all was added or removed."""
        mark, graph = ("+", self.after) if pair.before is None else ("-", self.before)
        assert isinstance(pair.item, Call)
        block, path = closed(graph, pair.item), self._path(pair.item)
        learned = counted(block.parameters, "parameter") if block.parameters else ""
        about = ", ".join(filter(None, (pair.item.kind, learned, counted(block.operators, "operator"))))
        return Entry(mark, path, path, about)

    def row(self, pair: Pair) -> Row | None:
        """What is other in an operator, an input or an output; None where only the value of a named size is."""
        return next(self._node_row(pair), None)

    def _path(self, call: Call) -> str:
        number = f", call {call.scopes[-1].call + 1}" if call.scopes and call.scopes[-1].call else ""
        return (call.path or self.after.graph["name"]) + number

    def _module(self, pair: Pair) -> Iterator[Entry]:
        entry = self.of(pair)
        if entry:
            yield entry
        for part in pair.parts:
            if isinstance(part.before, Call) and isinstance(part.after, Call):
                yield from self._module(part)
            elif isinstance(part.item, Call):
                yield self.whole(part)

    def _node_rows(self, leaves: list[Pair]) -> Iterator[Row]:
        rows = [row for pair in leaves for row in self._node_row(pair)]
        for row, same in groupby(rows):
            yield replace(row, times=len(list(same)))

    def _node_row(self, pair: Pair) -> Iterator[Row]:
        before, after = pair.before, pair.after
        if isinstance(before, Leaf) and isinstance(after, Leaf):
            told = list(self._what_changed(pair, before.node, after.node))
            if told:
                mark = ">" if before.name != after.name else "~"
                yield Row(mark, " -> ".join(dict.fromkeys((before.name, after.name))), "; ".join(told))
        else:
            mark, node = ("+" if before is None else "-"), pair.item
            assert isinstance(node, Leaf)
            yield Row(mark, node.name, self.labels.shapes(node.node.outputs), _kind(node.node))

    def _what_changed(self, pair: Pair, before: Node | Block, after: Node | Block) -> Iterator[str]:
        reasons = list(self.comparison.reasons(pair))
        for reason in reasons:
            if reason == "shapes":
                yield f"{self._shapes(before.outputs, after)} -> {self._shapes(after.outputs, before)}"
            elif reason == "renamed":
                yield self.labels.shapes(after.outputs)
            elif reason == "arguments":
                yield self._arguments(before, after)
            elif reason == "parameters":
                yield f"reads {_read(before, after)} -> {_read(after, before)}"
            elif reason == "inputs" and not (after.kind == "output" and "shapes" in reasons):
                yield "reads {} -> {}".format(*self._sources(before.name, after.name))

    def _arguments(self, before: Node | Block, after: Node | Block) -> str:
        found = self.comparison.arguments(before, after)
        return ", ".join(f"{name} {_argument(old, new)} -> {_argument(new, old)}" for name, old, new in found)

    def _shapes(self, shapes: tuple[Shape, ...], other: Node | Block) -> str:
        """With the dtype where that is what changed."""
        dtypes = {shape.dtype for shape in shapes} != {shape.dtype for shape in other.outputs}
        plain = replace(self.labels, dtype="", _known={}) if dtypes else self.labels
        return plain.shapes(shapes)

    def _sources(self, old: str, new: str) -> tuple[str, str]:
        """What it reads, before and after; only what is other, where it reads as many as before."""
        was, now = inputs_of(self.before, old), inputs_of(self.after, new)
        if len(was) == len(now):
            partner = self.comparison.partner
            pairs = [
                (a, b) for a, b in zip(was, now, strict=True) if _end(partner.get(a.source), a) != _end(b.source, b)
            ]
            was, now = [a for a, _ in pairs], [b for _, b in pairs]
        return _sources(self.before, was, old), _sources(self.after, now, new)

    def _parameter_rows(self) -> dict[str, list[Row]]:
        """By the path of the module now; parameters of modules that are new, or gone, as a whole are told by those."""
        old, new = self.before.graph["parameters"], self.after.graph["parameters"]
        was = {new_path: path for path, new_path in self.difference.renamed.items()}
        rows: dict[str, list[Row]] = {}
        for path in self.difference.parameters_removed:
            if not _within(path, self.difference.removed):
                now = self.difference.renamed.get(path, path)
                _put(rows, now, Row("-", path.rpartition(".")[2], self.labels.shape(old[path]), "parameter"))
        for path in self.difference.parameters_added:
            if not _within(path, self.difference.added):
                _put(rows, path, Row("+", path.rpartition(".")[2], self.labels.shape(new[path]), "parameter"))
        for path in self.difference.parameters_changed:
            shapes = [(old[was.get(path, path)],), (new[path],)]
            dtypes = shapes[0][0].dtype != shapes[1][0].dtype
            labels = replace(self.labels, dtype="", _known={}) if dtypes else self.labels
            told = " -> ".join(map(labels.shapes, shapes))
            _put(rows, path, Row("~", path.rpartition(".")[2], told, "parameter"))
        return rows


def _put(rows: dict[str, list[Row]], path: str, row: Row) -> None:
    rows.setdefault(path.rpartition(".")[0], []).append(row)


def _within(path: str, whole: tuple[Node | Block, ...]) -> bool:
    blocks = [node.scopes[-1].path for node in whole if isinstance(node, Block) and node.scopes]
    return any(path.startswith(f"{block}.") for block in blocks)


def _kind(node: Node | Block) -> str:
    return "" if node.kind == "operator" else node.kind


def _read(node: Node | Block, other: Node | Block) -> str:
    """The parameters of an operator by their own names; with their modules where the names alone are the same."""
    if isinstance(node, Block) or isinstance(other, Block):
        return counted(node.parameters, "parameter") if isinstance(node, Block) else ""
    names, others = ([path.rpartition(".")[2] for path in each.parameters] for each in (node, other))
    shown = node.parameters if names == others else names
    return (", ".join(shown) if len(shown) <= MANY else counted(len(shown), "parameter")) or "none"


def _argument(value: Argument | None, other: Argument | None) -> str:
    """A flag that is off by default is not among the arguments."""
    return text(value) if value is not None else "False" if isinstance(other, bool) else "none"


def _end(source: str | None, edge: Edge) -> tuple[str | None, int]:
    return source, edge.output


def _sources(graph: nx.MultiDiGraph, tensors: list[Edge], reader: str) -> str:
    """`softmax, add in norm`: operators, with their module where it is inside the reader's, or beside it."""
    scopes = graph.nodes[reader]["node"].scopes
    around = [scope.path for scope in scopes[-1:-3:-1]]
    names = [_source(graph.nodes[edge.source]["node"], around) for edge in tensors[:MANY]]
    return ", ".join(names) + (f" and {len(tensors) - MANY} more" if len(tensors) > MANY else "") or "nothing"


def _source(node: Node | Block, around: list[str]) -> str:
    if isinstance(node, Block) or node.kind != "operator":
        return node.name.removeprefix("@")
    for path in around:
        if node.module == path:
            return node.operator
        if node.module.startswith(f"{path}."):
            return f"{node.operator} in {node.module.removeprefix(f'{path}.')}"
    return node.operator + (f" in {node.module}" if node.module and not around else "")
