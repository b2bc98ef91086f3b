"""Sheets: what is directly inside a module, one sheet for all modules that are equal inside.

>>> sheets = sheets_of(fold(graph))
>>> [item.title for item in sheets[0].items]
['ids', 'tokens', 'positions', 'add', 'blocks.0 … blocks.11', 'norm', 'head', 'output']
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby

import networkx as nx

from shapeflow.dims.expr import Expr
from shapeflow.draw.page.calls import Call, Calls, Key, Scopes, TensorKey, calls_of
from shapeflow.graph import Block
from shapeflow.graph.arguments import Texts, merged
from shapeflow.trace.result import Location, Node, Shape

NONE = Expr.const(0)


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a module or a parameter, counted from the sheet's own module where it lies below that."""

    text: str
    below: bool


@dataclass(frozen=True, slots=True)
class Item:
    """One box. `type` is input, output, constant, operator; `module` (opens a sheet or is closed), `leaf` (a module
    that is one operator), `entry` or `exit` (a tensor that crosses the border of the sheet, the `port`-th of them).

    `names` are those of the module calls that it stands for, `findings` the numbers of what was found at it. What may
    differ between equal modules, the line of the code and `arguments`, does not make two sheets of them; of arguments
    all values are told.
    """

    type: str
    title: str
    kind: str = ""
    operator: str = ""
    names: tuple[Name, ...] = ()
    call: int = 0
    operators: int = 0
    parameters: int | Expr = 0
    flops: Expr = NONE
    outputs: tuple[Shape, ...] = ()
    reads: tuple[tuple[Name, Shape | None], ...] = ()
    sheet: int | None = None
    port: int = 0
    findings: tuple[int, ...] = ()
    location: Location | None = field(default=None, compare=False)
    arguments: Texts = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Wire:
    """The tensors that go from one item to another: which output each is, and which input at the other end.

    Inputs and outputs of a module count as the entries and exits of its sheet do, those of an operator as its arguments
    and results.
    """

    source: int
    target: int
    tensors: tuple[tuple[int, int, Shape], ...]

    @property
    def label(self) -> list[tuple[Shape, int]]:
        """The shapes in order, equal neighbours counted."""
        return [(shape, len(list(run))) for shape, run in groupby(shape for _, _, shape in self.tensors)]


@dataclass(frozen=True, slots=True)
class Sheet:
    """The inside of one module, or of several that are equal: items in execution order."""

    kind: str
    items: tuple[Item, ...]
    wires: tuple[Wire, ...]

    @property
    def operators(self) -> int:
        return sum(item.operators * max(1, len(item.names)) for item in self.items)

    @property
    def flops(self) -> Expr:
        """Operations of one forward, all copies counted."""
        return sum((item.flops * max(1, len(item.names)) for item in self.items), NONE)


@dataclass(frozen=True, slots=True)
class _Book:
    """The sheets that are made so far, in the order of their making."""

    graph: nx.MultiDiGraph
    tree: Calls
    flops: Mapping[str, Expr]
    findings: Mapping[str, tuple[int, ...]]
    arguments: Mapping[str, Texts]
    numbers: dict[Sheet, int] = field(default_factory=dict)
    sheets: list[Sheet] = field(default_factory=list)  # by number, with the arguments of all that are equal


def sheets_of(
    graph: nx.MultiDiGraph,
    flops: Mapping[str, Expr] | None = None,
    findings: Mapping[str, tuple[int, ...]] | None = None,
    arguments: Mapping[str, Texts] | None = None,
) -> list[Sheet]:
    """The whole model's sheet, and those of all modules below it; children refer to later sheets.

    `flops` are the operations of each operator by node name, where they are known, `findings` what was found at it,
    `arguments` what it is given that is no tensor.
    """
    book = _Book(graph, calls_of(graph), flops or {}, findings or {}, arguments or {})
    _number(book, ())
    return _root_first(book.sheets)


def _root_first(sheets: list[Sheet]) -> list[Sheet]:
    """Sheets are numbered from the inside out; a reader begins outside."""
    last = len(sheets) - 1
    return [_renumbered(sheet, last) for sheet in reversed(sheets)]


def _renumbered(sheet: Sheet, last: int) -> Sheet:
    items = (item if item.sheet is None else replace(item, sheet=last - item.sheet) for item in sheet.items)
    return replace(sheet, items=tuple(items))


def _number(book: _Book, scopes: Scopes) -> int:
    """The number of the sheet of this call, which may be there already."""
    sheet = _sheet(book, scopes)
    number = book.numbers.setdefault(sheet, len(book.numbers))
    if number == len(book.sheets):
        book.sheets.append(sheet)
    else:
        pairs = zip(book.sheets[number].items, sheet.items, strict=True)
        items = (replace(item, arguments=merged((item.arguments, other.arguments))) for item, other in pairs)
        book.sheets[number] = replace(sheet, items=tuple(items))
    return number


def _sheet(book: _Book, scopes: Scopes) -> Sheet:
    call = book.tree.calls[scopes]
    entries = {tensor: i for i, tensor in enumerate(call.entering)}
    members = {member: len(entries) + i for i, member in enumerate(call.members)}
    exits = {tensor: len(entries) + len(members) + i for i, tensor in enumerate(call.leaving)}
    items = (
        *_borders("entry", call.entering),
        *_numbered_calls(_item(book, member, scopes) for member in call.members),
        *_borders("exit", call.leaving),
    )
    kind = scopes[-1].kind if scopes else str(book.graph.graph["name"])
    return Sheet(kind, items, tuple(_wires(book, call, entries, members, exits)))


def _borders(type: str, tensors: dict[TensorKey, Shape]) -> Iterator[Item]:
    word = "in" if type == "entry" else "out"
    for port, shape in enumerate(tensors.values()):
        title = f"{word} {port + 1}" if len(tensors) > 1 else word
        yield Item(type, title, outputs=(shape,), port=port)


def _numbered_calls(items: Iterator[Item]) -> Iterator[Item]:
    """A module that is called again on the same sheet counts its calls."""
    seen: Counter[Name] = Counter()
    for item in items:
        yield replace(item, call=seen[item.names[0]]) if item.names and seen[item.names[0]] else item
        seen.update(item.names)


def _item(book: _Book, member: Key, around: Scopes) -> Item:
    if not isinstance(member, str):
        return _call_item(book, member, around)
    node = book.graph.nodes[member]["node"]
    if isinstance(node, Block):
        return _block_item(book, node, around)
    title = node.name if node.kind != "operator" else node.operator
    return Item(node.kind, title, **_work(book, node, around))


def _work(book: _Book, node: Node, around: Scopes) -> dict:
    shapes = book.graph.graph["parameters"]
    return {
        "operator": node.operator,
        "operators": int(node.kind == "operator"),
        "flops": book.flops.get(node.name, NONE),
        "outputs": () if node.kind == "output" else node.outputs,
        "reads": tuple((_name(read, around), shapes.get(read)) for read in node.parameters),
        "findings": book.findings.get(node.name, ()),
        "arguments": book.arguments.get(node.name, ()),
        "location": node.location,
    }


def _call_item(book: _Book, scopes: Scopes, around: Scopes) -> Item:
    """A module call: one that is a single operator says all on its box, and needs no sheet."""
    facts = _module(book, scopes, around)
    if book.tree.sizes[scopes] == 1:
        node = _only_node(book, scopes)
        if isinstance(node, Node):
            return Item("leaf", **facts, **_work(book, node, around))
    number = _number(book, scopes)
    sheet = book.sheets[number]
    outputs = tuple(book.tree.calls[scopes].leaving.values())
    return Item("module", **facts, operators=sheet.operators, flops=sheet.flops, outputs=outputs, sheet=number)


def _block_item(book: _Book, block: Block, around: Scopes) -> Item:
    if block.scopes:
        facts = _module(book, block.scopes, around)
    else:
        name = str(book.graph.graph["name"])
        facts = {"title": name, "kind": name, "parameters": block.parameters}
    found = book.findings.get(block.name, ())
    return Item("module", **facts, operators=block.operators, outputs=block.outputs, findings=found)


def _module(book: _Book, scopes: Scopes, around: Scopes) -> dict:
    copies = book.graph.graph["repeats"].get(scopes) or scopes[-1:]
    names = tuple(_name(copy.path, around) for copy in copies)
    info = book.graph.graph["modules"].get(scopes[-1].path)
    title = names[0].text if names[0] == names[-1] else f"{names[0].text} … {names[-1].text}"
    return {"title": title, "kind": scopes[-1].kind, "names": names, "parameters": info.parameters if info else 0}


def _only_node(book: _Book, scopes: Scopes) -> Node | Block:
    member: Key = scopes
    while not isinstance(member, str):
        (member,) = book.tree.calls[member].members
    return book.graph.nodes[member]["node"]


def _name(path: str, around: Scopes) -> Name:
    start = f"{around[-1].path}." if around else ""
    return Name(path.removeprefix(start), path.startswith(start))


def _wires(
    book: _Book, call: Call, entries: dict[TensorKey, int], members: dict[Key, int], exits: dict[TensorKey, int]
) -> Iterator[Wire]:
    between: dict[tuple[int, int], list[tuple[int, int, Shape]]] = {}
    for flow in call.flows.values():
        source = entries[flow.tensor] if flow.source is None else members[flow.source]
        target = exits[flow.tensor] if flow.target is None else members[flow.target]
        out = _port(book, flow.source, flow.tensor, flow.tensor[1], leaving=True)
        into = flow.arguments or (_port(book, flow.target, flow.tensor, 0, leaving=False),)
        between.setdefault((source, target), []).extend((out, each, flow.shape) for each in into)
    for (source, target), tensors in between.items():
        yield Wire(source, target, tuple(tensors))


def _port(book: _Book, end: Key | None, tensor: TensorKey, otherwise: int, *, leaving: bool) -> int:
    """Which entry or exit of a module's sheet a tensor is."""
    if end is None or isinstance(end, str) or book.tree.sizes[end] == 1:
        return 0 if end is None else otherwise
    call = book.tree.calls[end]
    return list(call.leaving if leaving else call.entering).index(tensor)
