"""A graph from the JSON that `saved.to_json` wrote; a file that is wrong is told by the place in it that is.

>>> graph = load("gpt.json")
>>> graph.save("gpt.svg", depth=2)          # all that a trace draws, without the model and without torch
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import networkx as nx

from shapeflow import __version__
from shapeflow.dims.expr import Expr
from shapeflow.errors import DrawError, FormatError
from shapeflow.graph.arguments import from_plain
from shapeflow.graph.block import Block
from shapeflow.graph.document import Item
from shapeflow.graph.flow import fill
from shapeflow.graph.operations import Operations
from shapeflow.graph.saved import FORMAT, VERSION
from shapeflow.trace.drawn import Drawn
from shapeflow.trace.result import Condition, Edge, Location, ModuleInfo, Node, Scope, Shape
from shapeflow.trace.sharding import Sharding

BLOCKS = ("module", "views", "made", "more")


class SavedTrace(Drawn, nx.MultiDiGraph):
    """The graph of a trace that was saved; it is printed, drawn and shown in notebooks as the trace is."""

    def to_networkx(self) -> SavedTrace:
        """Itself, so that it may stand wherever a trace does."""
        return self

    def _priced(self, graph: Any, options: dict[str, Any], *, path: str | PathLike[str] = "") -> dict[str, Any]:
        """A page of html tells what modules cost where that was saved: `trace.save("x.json", flops=True)`."""
        known = options if "operations" in self.graph else {"flops": False, **options}
        return super()._priced(graph, known, path=path)

    def _operations(self) -> Operations:
        if "operations" not in self.graph:
            raise DrawError(
                f"the saved trace of {self.name} holds no FLOPs: save it with them, by "
                'trace.save("x.json", flops=True) or shapeflow draw --flops --output x.json'
            )
        return self.graph["operations"]

    def __repr__(self) -> str:
        return f"<Saved trace of {self.name}: {self.number_of_nodes()} nodes, {self.graph.get('domain', '')}>"


def load(path: str | PathLike[str]) -> SavedTrace:
    """The graph that `trace.save("x.json")` wrote; FormatError for any other file."""
    source = Path(path)
    try:
        text = source.read_text(encoding="utf-8")
    except OSError as error:
        raise FormatError(f"{source} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise FormatError(f"{source} is no saved graph: it is no text in UTF-8") from error
    return from_json(text, source=str(source))


def from_json(text: str, *, source: str = "the text") -> SavedTrace:
    """The graph of which `to_json` made the text; `source` is what errors call it."""
    try:
        document = Item(json.loads(text), source)
    except ValueError as error:  # of JSON, or of a number with more digits than Python reads
        raise FormatError(f"{source} is no saved graph: {_no_json(text, error)}") from error
    except RecursionError as error:
        raise FormatError(f"{source} is no saved graph: it is nested too deep") from error
    _check_format(document)
    return _graph(document)


def _no_json(text: str, error: ValueError) -> str:
    """A file that was not written or copied to its end starts as ours does."""
    if not text.strip():
        return "it is empty"
    if FORMAT in text[:100] and not text.rstrip().endswith("}"):
        return f"it ends in the middle of line {text.count(chr(10)) + 1}; save or copy it again ({error})"
    return f"it is no JSON ({error})"


def _check_format(document: Item) -> None:
    if not isinstance(document.value, dict) or document.value.get("format") != FORMAT:
        raise FormatError(
            f'{document.source} is no saved graph: it lacks "format": "{FORMAT}"; trace.save("x.json") writes one'
        )
    version = document["version"].number()
    if version > VERSION:
        writer = document.value.get("shapeflow", "a newer one")
        raise FormatError(
            f"{document.source} has version {version} of the format, written by shapeflow {writer}; this is "
            f"shapeflow {__version__}, which reads version {VERSION}: upgrade it, or save the trace with this one"
        )
    if version < 1:
        document["version"].refuse(f"is {version}; versions start at 1")


def _graph(document: Item) -> SavedTrace:
    modules = [_read_module(item) for item in document["modules"].items()]
    graph = SavedTrace(
        name=document["name"].text(),
        outputs=_read_shapes(document["outputs"]),
        output_names=_read_texts(document["output_names"]),
        ends={name: _read_texts(item) for name, item in document["ends"].fields().items()},
        modules={module.path: module for module in modules},
        parameters={item["name"].text(): _read_shape(item["shape"]) for item in document["parameters"].items()},
        dims={name: item.maybe(_read_size) for name, item in document["dims"].fields().items()},
        sizes={name: item.number() for name, item in document["sizes"].fields().items()},
        pinned={name: item.number() for name, item in document["pinned"].fields().items()},
        free=_read_texts(document["free"]),
        fresh={name: item.text() for name, item in document["fresh"].fields().items()},
        domain=document["domain"].text(),
        conditions=tuple(_read_condition(item) for item in document["conditions"].items()),
        assumptions=tuple(_read_condition(item) for item in document["assumptions"].items()),
        repeats={_read_scopes(item["scopes"]): _read_scopes(item["copies"]) for item in document["repeats"].items()},
    )
    if not any("arguments" in item.fields() for item in document["nodes"].items()):
        graph.graph["arguments"] = False  # saved before there were any: not the same as having none
    if "operations" in document.value:
        graph.graph["operations"] = _read_operations(document["operations"])
    known: dict[str, Node | Block] = {}
    fill(graph, _read_nodes(document["nodes"], known), _read_edges(document["edges"], known))
    return graph


def _read_nodes(items: Item, known: dict[str, Node | Block]) -> Iterator[Node | Block]:
    for item in items.items():
        node = _read_block(item) if item["kind"].text() in BLOCKS else _read_node(item)
        if node.name in known:
            item["name"].refuse(f"is {node.name!r}, the name of an earlier node")
        known[node.name] = node
        yield node


def _read_edges(items: Item, known: Mapping[str, object]) -> Iterator[Edge]:
    for item in items.items():
        for end in ("source", "target"):
            if item[end].text() not in known:
                item[end].refuse(f"is {item[end].text()!r}, and no node has that name")
        yield Edge(
            item["source"].text(),
            item["target"].text(),
            item["output"].number(),
            item["argument"].number(),
            _read_shape(item["shape"]),
        )


def _read_node(item: Item) -> Node:
    kind = item["kind"].text()
    if kind not in ("input", "operator", "constant", "output"):
        item["kind"].refuse(
            f"is {kind!r}; it has to be input, operator, constant, output or one of {', '.join(BLOCKS)}"
        )
    return Node(
        item["name"].text(),
        kind,
        item["operator"].text(),
        _read_scopes(item["scopes"]),
        _read_shapes(item["outputs"]),
        _read_texts(item["parameters"]),
        item["location"].maybe(_read_location),
        from_plain(item["arguments"].fields()) if "arguments" in item.fields() else (),
    )


def _read_block(item: Item) -> Block:
    return Block(
        item["name"].text(),
        _read_scopes(item["scopes"]),
        item["operators"].number(),
        _read_count(item["count"]),  # pyright: ignore[reportArgumentType]  a formula only in a model built with symbols
        _read_shapes(item["outputs"]),
        item["kind"].text(),
        _read_texts(item["words"]),
    )


def _read_module(item: Item) -> ModuleInfo:
    return ModuleInfo(
        item["path"].text(), item["kind"].text(), _read_count(item["parameters"]), item["called"].number()
    )


def _read_condition(item: Item) -> Condition:
    return Condition(item["text"].text(), item["location"].maybe(_read_location), item["operator"].text())


def _read_location(item: Item) -> Location:
    return Location(item["file"].text(), item["line"].number(), item["code"].text())


def _read_scopes(item: Item) -> tuple[Scope, ...]:
    return tuple(Scope(one["path"].text(), one["kind"].text(), one["call"].number()) for one in item.items())


def _read_shapes(item: Item) -> tuple[Shape, ...]:
    return tuple(map(_read_shape, item.items()))


def _read_shape(item: Item) -> Shape:
    sharding = item.fields().get("sharding")
    dims = tuple(each.tree() for each in item["dims"].items())
    return Shape(dims, item["dtype"].text(), None if sharding is None else _read_sharding(sharding))


def _read_sharding(item: Item) -> Sharding:
    return Sharding(
        tuple((one["name"].text(), one["size"].number()) for one in item["mesh"].items()),
        _read_texts(item["placements"]),
        tuple(
            (one["axis"].number(), one["parts"].number(), one["even"].value is True) for one in item["splits"].items()
        ),
    )


def _read_operations(item: Item) -> Operations:
    flops = {name: _read_size(size) for name, size in item["flops"].fields().items()}
    return Operations(flops, _read_texts(item["unknown"]))


def _read_texts(item: Item) -> tuple[str, ...]:
    return tuple(one.text() for one in item.items())


def _read_count(item: Item) -> int | Expr:
    return _read_size(item) if isinstance(item.value, dict) else item.number()


def _read_size(item: Item) -> Expr:
    return item["tree"].tree()
