"""What a trace is made of: nodes, the edges between them, and the shapes on the edges.

>>> trace = sf.trace(model, "B T:int64")
>>> [str(edge.shape) for edge in trace.outputs]
['B T vocab']
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from shapeflow.dims.expr import Expr, product
from shapeflow.trace.collecting import without_collection
from shapeflow.trace.drawn import Drawn
from shapeflow.trace.sharding import Collective, Sharding

if TYPE_CHECKING:
    from torch import fx

    from shapeflow.dims.atoms import Symbol
    from shapeflow.graph.operations import Operations
    from shapeflow.trace.attempt import Attempt
    from shapeflow.trace.view import View


Argument: TypeAlias = "int | float | str | Expr | tuple[Argument, ...]"
Arguments: TypeAlias = tuple[tuple[str, Argument], ...]


def shape_text(dims: Iterable[Expr]) -> str:
    """The sizes in a row, longer expressions in brackets: `B (H - 1)//2 d_model` has one axis in the middle."""
    return " ".join(f"({text})" if " " in text else text for text in map(str, dims))


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of one tensor, one expression an axis, and its dtype (`float32`, `int64`, ...).

    `sharding` tells how a DTensor is spread over ranks: its sizes are those of the whole, `local` those of one rank.
    """

    dims: tuple[Expr, ...]
    dtype: str
    sharding: Sharding | None = None

    def __str__(self) -> str:
        return shape_text(self.dims)

    def at(self, **sizes: int) -> tuple[int, ...]:
        """The sizes as numbers; names that have a value of their own may be left out."""
        return tuple(dim.at(**sizes) for dim in self.dims)

    @property
    def local(self) -> Shape:
        """What the first rank holds: the shape itself for a tensor that is not spread."""
        return self if self.sharding is None else Shape(self.sharding.local(self.dims), self.dtype)

    @property
    def bytes(self) -> Expr:
        """Numbers times bytes of one; of the whole, whatever a rank holds of it."""
        return product(self.dims) * getattr(import_module("torch"), self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class Scope:
    """One call of one module: `call` counts the calls of the same module from 0."""

    path: str
    kind: str
    call: int = 0


@dataclass(frozen=True, slots=True)
class Location:
    """A line of the user's code."""

    file: str
    line: int
    code: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.code}" if self.code else f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Node:
    """An input, an operator, a constant or the output of the model.

    `kind` is one of `input`, `operator`, `constant`, `output`; `operator` is the function's own name
    (`linear`, `view`, `add`); `scopes` are the module calls around it, outermost first, without the root.
    `arguments` are those that are no tensors, by name, defaults filled in: `dim`, `stride`, `p`, `eps`.
    """

    name: str
    kind: str
    operator: str = ""
    scopes: tuple[Scope, ...] = ()
    outputs: tuple[Shape, ...] = ()
    parameters: tuple[str, ...] = ()
    location: Location | None = None
    arguments: Arguments = ()

    @property
    def module(self) -> str:
        """Path of the innermost module, `""` for the root."""
        return self.scopes[-1].path if self.scopes else ""


@dataclass(frozen=True, slots=True)
class Edge:
    """A tensor on its way: the `output`-th result of `source` read as the `argument`-th tensor of `target`."""

    source: str
    target: str
    output: int
    argument: int
    shape: Shape


@dataclass(frozen=True, slots=True)
class ModuleInfo:
    """A module of the traced model: `parameters` counts unique numbers in it and below it, a formula in a `Recipe`."""

    path: str
    kind: str
    parameters: int | Expr
    called: int


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison of sizes that decided how the model ran: `text` holds, `location` is who asked."""

    text: str
    location: Location | None
    operator: str = ""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Domain:
    """The sizes that the traced path holds for: bounds by name, and what else was asked of the sizes.

    >>> str(trace.domain)
    'B >= 2, 2 <= T <= 64'
    """

    bounds: tuple[tuple[str, int, int | None], ...]
    relations: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join([*(_bounded(*bound) for bound in self.bounds), *self.relations])


def _bounded(name: str, low: int, high: int | None) -> str:
    if high is None:
        return f"{name} >= {low}"
    return f"{name} == {low}" if low == high else f"{low} <= {name} <= {high}"


class Trace(Drawn):
    """What a model does to shapes: nodes, edges, conditions, and a graph that replays.

    `graph` is the `torch.fx.Graph`, with `val`, `nn_module_stack`, `stack_trace` and `shapeflow` in each node's meta.
    """

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self.name: str = attempt.subject.name
        self.graph: fx.Graph = attempt.recorder.writer.graph

    @cached_property
    def _view(self) -> View:
        from shapeflow.trace.view import View

        return View(self._attempt)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Inputs, constants, operators and the output, as they run."""
        return self._view.nodes()

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """Every tensor on its way from one node to another."""
        return self._view.edges()

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The input nodes."""
        return tuple(node for node in self.nodes if node.kind == "input")

    @property
    def outputs(self) -> tuple[Edge, ...]:
        """The edges into the output node."""
        return tuple(edge for edge in self.edges if edge.target == "output")

    @property
    def output_names(self) -> tuple[str, ...]:
        """What the model calls each of its outputs: `logits`, `cache.layers[0].keys`, `[1]`; `""` for a single one."""
        return tuple(path for path, record, _, _ in self._attempt.outputs if id(record) in self._view.names)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Each name and the number that stood for it in the run."""
        env = self._attempt.env
        return {symbol.name: hint for symbol, hint in env.hints.items()} | self.pinned

    @cached_property
    def pinned(self) -> dict[str, int]:
        """Names with a known value, in the order in which they occur on edges."""
        dims = (symbol for edge in self.edges for dim in edge.shape.dims for symbol in sorted(dim.symbols, key=str))
        known = {symbol.name: symbol.value for symbol in dims if symbol.value is not None}
        return known | {name: low for name, low, high in self.domain.bounds if low == high}

    @cached_property
    def free(self) -> tuple[str, ...]:
        """The names that the inputs bring and that may be any size of the domain."""
        env = self._attempt.env
        made = {*env.fresh, *env.definitions}
        fixed = {name for name, low, high in self.domain.bounds if low == high}
        return tuple(symbol.name for symbol in env.hints if symbol not in made and symbol.name not in fixed)

    @cached_property
    def dims(self) -> dict[str, Expr | None]:
        """Every name on the edges, with its definition where it stands for a longer expression."""
        definitions = self._attempt.env.definitions
        waiting = [symbol for edge in self.edges for dim in edge.shape.dims for symbol in dim.symbols]
        used: dict[Symbol, Expr] = {}
        while waiting:
            symbol = waiting.pop()
            if symbol in definitions and symbol not in used:
                used[symbol] = definitions[symbol]
                waiting.extend(used[symbol].symbols)
        named = {symbol.name: expr for symbol, expr in definitions.items() if symbol in used}
        return {name: named.get(name) for name in [*self.free, *self.fresh, *named, *self.pinned]}

    @cached_property
    def fresh(self) -> dict[str, str]:
        """Dims that only values decide, with the operator that found each."""
        return {symbol.name: origin for symbol, origin in self._attempt.env.fresh.items()}

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        """The comparisons of sizes that decided how the model ran."""
        from shapeflow.trace.conditions import conditions

        return conditions(self._attempt.env)

    @cached_property
    def assumptions(self) -> tuple[Condition, ...]:
        """What the trace took values to be: the sides of branches that it went."""
        from shapeflow.trace.conditions import of_values
        from shapeflow.trace.source import location

        branches = tuple(Condition(each.text, location(each.place)) for each in self._attempt.values.assumptions)
        return branches + of_values(self._attempt.env)

    @cached_property
    def domain(self) -> Domain:
        """The sizes that this path holds for."""
        from shapeflow.trace.conditions import domain

        return domain(self._attempt.env)

    @cached_property
    def parameters(self) -> dict[str, Shape]:
        """Parameters and buffers by dotted name."""
        from shapeflow.trace.traced import traced

        found = {}
        for path, tensor in self._attempt.parameters.items():
            known = traced(tensor)
            assert known is not None
            found[path] = self._attempt.stored.get(path, known.signature.shape)
        return found

    @cached_property
    def collectives(self) -> tuple[Collective, ...]:
        """What ranks send each other, in the order in which it starts, where parameters are DTensors."""
        return self._view.collectives()

    @cached_property
    def modules(self) -> dict[str, ModuleInfo]:
        """The module tree by path, the root under `""`, with parameter counts and calls."""
        from shapeflow.trace.modules import module_infos

        return module_infos(self._attempt.subject.root, self._attempt.stack)

    @cached_property
    def graph_module(self) -> fx.GraphModule:
        """The graph as a module over the model's own parameters: `graph_module(*real)` equals `model(*real)`."""
        from shapeflow.trace.replay import graph_module

        return graph_module(self._attempt)

    def at(self, **sizes: int) -> Any:
        """The same trace with numbers for these names."""
        from shapeflow.trace.sized import sized

        return sized(self, sizes)

    @without_collection()
    def to_networkx(self) -> Any:
        """The graph that everything draws and reports from: a `networkx.MultiDiGraph`."""
        from shapeflow.graph import build

        return build(self)

    def _operations(self) -> Operations:
        from shapeflow.draw.page import operations_of

        return operations_of(self)

    def __repr__(self) -> str:
        operators = sum(node.kind == "operator" for node in self.nodes)
        return f"<Trace of {self.name}: {operators} operators, {self.domain}>"
