"""What a decoder has to keep of the positions that it has read, so that a new token costs one query.

>>> cost(mistral, "B T:int64").kv_cache_bytes
192*B*min(T, 4095)

Where the model hands its cache out (`past_key_values`), that is it. Otherwise it is the least that keys and values can
be made from inside the attention's module, its input aside: keys and values themselves, those of the shared heads
before they are repeated, or a latent vector that both come from; of a window of w positions the last w - 1, as a new
token brings its own. States of convolutions and recurrences count where the model hands them out: they do not grow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import networkx as nx
import torch

from shapeflow.cost.attention import Attention, Lineage, attentions
from shapeflow.cost.calls import Call, numbers, root_of
from shapeflow.cost.rules import FREE
from shapeflow.cost.window import sizes_in_window, window
from shapeflow.dims.atoms import Symbol
from shapeflow.dims.expr import Expr, minimum, product
from shapeflow.trace.attempt import Attempt
from shapeflow.trace.result import Scope, Trace
from shapeflow.trace.traced import size_key, traced
from shapeflow.trace.tracer import Search

CACHES = frozenset({"cache", "past_key_values", "cache_params", "state", "states", "mems"})
"""Names under which the models of transformers hand out what the next call takes."""
Made = tuple[Call, int]
"""A tensor: the call that made it, and which of its results it is."""


@dataclass(frozen=True, slots=True)
class Held:
    """A tensor that is kept: the module that attends to it, its bytes for all sequences and for one of them."""

    module: str
    bytes: Expr
    per_sequence: Expr
    grows: bool  # with every token that is made: not so for what cross-attention reads


def kv_cache(attempt: Attempt, made: tuple[Call, ...]) -> tuple[Held, ...]:
    """What is kept for each attention; nothing for models in which no attention looks back only, as in an encoder."""
    lineage = Lineage(made)
    found = attentions(lineage)
    regions = [Region(lineage, each) for each in found]
    handed_out = {(id(record), index) for _, record, index, _ in attempt.outputs}
    shown = [region.outputs(handed_out) for region in regions]
    states = _states(attempt, lineage, {(id(call.record), index) for each in shown for call, index in each})
    if any(shown) or states:
        tensors = [(region, each) for region, several in zip(regions, shown, strict=True) for each in several]
    elif any(each.causal for each in found):
        kept = [region for region in regions if region.attention.causal or region.is_cross]
        tensors = [(region, each) for region in kept for each in region.least(attempt)]
    else:
        return ()
    made_of = frozenset() if attempt.subject.maker is None else frozenset(attempt.subject.maker.symbols)
    windowed = not any(shown)
    return (*(_held(region, each, made_of, windowed=windowed) for region, each in _distinct(tensors)), *states)


def _states(attempt: Attempt, lineage: Lineage, known: set[tuple[int, int]]) -> tuple[Held, ...]:
    """What else stands in the cache that the model hands out: states of convolutions and of recurrences."""
    found: dict[object, Held] = {}
    for path, record, index, signature in attempt.outputs:
        call = lineage.by_record.get(id(record))
        if not _is_cache(path) or call is None or (id(record), index) in known:
            continue
        if signature.dtype.is_floating_point and signature.sizes:
            found[root_of(call.makes[index])] = _state(call, index)
    return tuple(found.values())


def _is_cache(path: str) -> bool:
    return re.split(r"[.\[]", path, maxsplit=1)[0] in CACHES


def _state(call: Call, index: int) -> Held:
    sizes = sizes_in_window(call, index)
    size = product(sizes) * call.makes[index].dtype.itemsize
    one = size.replace({symbol: Expr.const(1) for symbol in sizes[0].symbols})
    return Held(call.path, size, one, bool(one.symbols))


def decoding(trace: Trace) -> Trace:
    """The trace; one in evaluation of a model of transformers in training, where some keep no cache."""
    attempt = trace._attempt
    root = attempt.subject.root
    if root is None or not root.training or not getattr(getattr(root, "config", None), "use_cache", False):
        return trace
    if any(_is_cache(path) for path, _, _, _ in attempt.outputs):
        return trace
    training = [module for module in root.modules() if module.training]
    try:
        root.eval()
        evaluated = Search(attempt.subject, attempt.bound, attempt.hints.chosen, None).run()
    finally:
        for module in training:
            module.training = True
    return trace if evaluated.error is not None else Trace(evaluated)


def _distinct(tensors: list[tuple[Region, Made]]) -> Iterator[tuple[Region, Made]]:
    """Layers may share what they attend to."""
    seen: set[tuple[int, int]] = set()
    for region, (call, index) in tensors:
        if (id(call), index) not in seen:
            seen.add((id(call), index))
            yield region, (call, index)


def _held(region: Region, made: Made, made_of: frozenset[str], *, windowed: bool) -> Held:
    """`windowed`: nobody kept it, so that what a mask hides for good need not be."""
    call, index = made
    size = product(sizes_in_window(call, index)) * call.makes[index].dtype.itemsize
    if windowed and region.window is not None:
        size = size.replace(region.kept(region.window - 1))  # a new token brings its own keys
    batch = {symbol: Expr.const(1) for symbol in region.batch() if symbol.name not in made_of}
    return Held(region.attention.call.path, size, size.replace(batch), not region.is_cross)


class Region:
    """The calls from the input of the attention's module to its keys and values."""

    def __init__(self, lineage: Lineage, attention: Attention) -> None:
        self.lineage, self.attention = lineage, attention
        self.window = window(lineage, attention)
        self.sinks = [self._made(attention.keys), self._made(attention.values)]
        self.scopes = self._scopes()
        self.projected = self._projected()

    def _made(self, tensor: torch.Tensor) -> Made | None:
        maker = self.lineage.maker(self.attention.call, tensor)
        if maker is None and self.attention.call.record.operator != "scaled_dot_product_attention":
            maker = next((call for call in self.lineage.calls if any(tensor is each for each in call.makes)), None)
        if maker is None:
            return None
        return maker, next((number for number, each in enumerate(maker.makes) if each is tensor), 0)

    def _scopes(self) -> tuple[Scope, ...]:
        """Of the innermost module around the attention in which keys are made with the help of a parameter."""
        scopes = self.attention.call.record.scopes
        makers = [sink[0] for sink in self.sinks if sink is not None]
        projecting = [call.record.scopes for call in self.lineage.behind(makers) if _projects(call)]
        while scopes and not any(found[: len(scopes)] == scopes for found in projecting):
            scopes = scopes[:-1]
        return scopes

    def inside(self, call: Call) -> bool:
        return call.record.scopes[: len(self.scopes)] == self.scopes

    def calls(self) -> list[Call]:
        """All calls inside that keys and values are made by, and that depend on more than positions."""
        found: dict[int, Call] = {}
        waiting = [sink[0] for sink in self.sinks if sink is not None]
        while waiting:
            call = waiting.pop()
            if id(call) in found or not self.inside(call) or not self.lineage.features(call):
                continue
            found[id(call)] = call
            waiting.extend(maker for maker in self.lineage.makers(call) if maker is not None)
        return list(found.values())

    @property
    def is_cross(self) -> bool:
        """Whether keys come from elsewhere than the query."""
        query = self._made(self.attention.query)
        keys = self.sinks[0]
        if query is None or keys is None:
            return True
        return self._entering(keys[0]).isdisjoint(self._entering(query[0]))

    def _entering(self, start: Call) -> set[int]:
        """What comes into the region from outside, on the way to this call."""
        found, seen, waiting = set(), set(), [start]
        while waiting:
            call = waiting.pop()
            if id(call) in seen:
                continue
            seen.add(id(call))
            for (source, _, _), maker in zip(call.record.sources, self.lineage.makers(call), strict=True):
                if maker is not None and self.inside(maker):
                    waiting.append(maker)
                elif source.kind not in ("parameter", "buffer", "constant") and (
                    maker is None or self.lineage.features(maker)
                ):
                    found.add(id(source))
        return found

    def _projected(self) -> set[int]:
        """Calls inside that have a product with a parameter of the module behind them, by identity."""
        found: set[int] = set()
        for call in self.lineage.calls:
            if self.inside(call) and (
                _projects(call) or any(id(maker) in found for maker in self.lineage.makers(call) if maker is not None)
            ):
                found.add(id(call))
        return found

    def batch(self) -> frozenset[Symbol]:
        """The names in the keys' first axis: sequences, times heads where those are merged."""
        size = size_key(self.attention.keys.shape[0])
        return frozenset() if type(size) is int or self.attention.keys.dim() < 3 else size.symbols

    def kept(self, most: int) -> dict[Symbol, Expr]:
        """The length of the keys, where it is one name, as what is kept of it."""
        length = size_key(self.attention.length)
        symbols: list[Symbol] = [] if type(length) is int else list(length.symbols)
        is_name = len(symbols) == 1 and length is Expr.from_atom(symbols[0])
        return {symbols[0]: minimum(length, most)} if is_name else {}

    def outputs(self, handed_out: set[tuple[int, int]]) -> list[Made]:
        """Tensors on the way that the model hands out, or what it kept of them, without views of one another."""
        inside = {id(call) for call in self.calls()}
        found: dict[object, Made] = {}
        for call in self.lineage.calls:
            for index, tensor in enumerate(call.makes):
                if (id(call.record), index) in handed_out and self._comes_from(call, inside):
                    found.setdefault(root_of(tensor), (call, index))
        return list(found.values())

    def _comes_from(self, call: Call, inside: set[int]) -> bool:
        """Whether the call is one of these, or cuts and copies what they made."""
        while id(call) not in inside:
            makers = [maker for maker in self.lineage.makers(call) if maker is not None]
            if len(makers) != 1 or call.record.operator not in FREE or not self.inside(call):
                return False
            call = makers[0]
        return True

    def least(self, attempt: Attempt) -> list[Made]:
        """The fewest bytes that keys and values can be made from: a minimal cut between the module's input and them."""
        graph = nx.DiGraph()
        calls = self.calls()
        inside = {id(call) for call in calls}
        for call in calls:
            self._add(graph, call, inside, attempt)
        for sink in self.sinks:
            if sink is not None and id(sink[0]) in inside:
                graph.add_edge(("out", id(sink[0]), sink[1]), "sink")
        if "source" not in graph or "sink" not in graph:
            return []
        _, (near, _) = nx.minimum_cut(graph, "source", "sink")
        return [
            (call, index)
            for call in calls
            for index in range(len(call.makes))
            if ("in", id(call)) in near and ("out", id(call), index) not in near and ("out", id(call), index) in graph
        ]

    def _add(self, graph: nx.DiGraph, call: Call, inside: set[int], attempt: Attempt) -> None:
        for (source, index, _), maker in zip(call.record.sources, self.lineage.makers(call), strict=True):
            if maker is not None and id(maker) in inside:
                number = min(index, len(maker.makes) - 1)
                self._add_tensor(graph, (maker, number), attempt)
                graph.add_edge(("out", id(maker), number), ("in", id(call)))
            elif source.kind == "input" or (maker is not None and self.lineage.features(maker)):
                graph.add_edge("source", ("in", id(call)))
        for sink in self.sinks:
            if sink is not None and sink[0] is call:
                self._add_tensor(graph, sink, attempt)

    def _add_tensor(self, graph: nx.DiGraph, made: Made, attempt: Attempt) -> None:
        """An edge as wide as the tensor; what is still the module's input, cast or normalised, is no place to cut."""
        call, index = made
        ends = ("in", id(call)), ("out", id(call), index)
        if self._is_projected(call):
            graph.add_edge(*ends, capacity=attempt.env.hint(_size(call.makes[index])))
        else:
            graph.add_edge(*ends)

    def _is_projected(self, call: Call) -> bool:
        """Whether a product with a parameter of the module is behind it."""
        return id(call) in self.projected


def _projects(call: Call) -> bool:
    return call.record.operator not in FREE and any(root_of(each).record.kind == "parameter" for each in call.reads)


def _size(tensor: torch.Tensor) -> Expr:
    known = traced(tensor)
    assert known is not None
    return numbers(known.signature.sizes) * known.signature.dtype.itemsize
