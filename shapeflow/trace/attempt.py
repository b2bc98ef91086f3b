"""One run of the real code on fake tensors, with one choice of hints and branches.

>>> attempt = Attempt(subject, bound, hints, flips={})
>>> attempt.run()
>>> attempt.recorder.writer.graph
"""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Protocol

import torch
from torch import nn

from shapeflow.dims.atoms import Symbol
from shapeflow.dims.dim import Dim
from shapeflow.dims.env import DimEnv
from shapeflow.dims.expr import Expr
from shapeflow.dims.solve import solve, solve_for_any
from shapeflow.dims.spec import TensorSpec
from shapeflow.torch_private import DisableTorchFunction, FakeTensor, GatheredGroup, ShapeMode, is_dtensor, running
from shapeflow.trace.boundaries import Boundaries
from shapeflow.trace.building import building, torch_layers
from shapeflow.trace.checks import checks_seen
from shapeflow.trace.collecting import without_collection
from shapeflow.trace.conditions import telling
from shapeflow.trace.distributed import Exchange, fake_of_gathered, gathered_by, sharding_of
from shapeflow.trace.hints import Hints
from shapeflow.trace.inputs import Bound
from shapeflow.trace.modules import ModuleStack, pin_attributes
from shapeflow.trace.names import Names, exact_quotients
from shapeflow.trace.recomputed import Recomputed
from shapeflow.trace.recorder import Recorder
from shapeflow.trace.result import Shape
from shapeflow.trace.rules import FreshSizes
from shapeflow.trace.shadow import modules_of, shadowed
from shapeflow.trace.source import Place, place
from shapeflow.trace.state import preserved
from shapeflow.trace.structure import copied_with, map_tensors, tensors_in
from shapeflow.trace.traced import Record, size_key, source_of, traced
from shapeflow.trace.values import ValueReader

RECENT = 4
"""How many of the last failed comparisons may be the one that made the code raise."""


class Maker(Protocol):
    """What makes a module from sizes: `shapeflow.trace.construct.Recipe`, resolved."""

    @property
    def symbols(self) -> Mapping[str, int]: ...

    @property
    def demands(self) -> tuple[Expr, ...]: ...

    @property
    def modules(self) -> tuple[ModuleType, ...]: ...

    def make(self, sizes: Mapping[str, Any]) -> nn.Module: ...


@dataclass(frozen=True, slots=True)
class Subject:
    """What is traced: a module, or a function with the modules that it may call.

    With a `maker` each attempt makes a module of its own, from sizes that are symbols of its `DimEnv`; `root` is then
    one that another attempt made.
    """

    call: Any
    root: nn.Module | None
    name: str
    maker: Maker | None = None

    @property
    def modules(self) -> list[nn.Module]:
        return [] if self.root is None else list(self.root.modules())

    @property
    def function(self) -> Any:
        return self.call if self.root is None else self.root.forward

    @property
    def device(self) -> torch.device:
        """Where the fakes live: the model's own device, the CPU for one that is built on meta."""
        if self.root is not None:
            for tensor in [*self.root.parameters(), *self.root.buffers()]:
                if tensor.device.type != "meta":
                    return tensor.device
        return torch.device("cpu")


class Attempt:
    """Everything that one run makes; `error` is what stopped it."""

    def __init__(self, subject: Subject, bound: Bound, hints: Hints, flips: dict[Place, bool]) -> None:
        self.subject, self.bound, self.hints = subject, bound, hints
        self.env = DimEnv(where=self._where)
        sizes = FreshSizes(self.env)
        self.values = ValueReader(self.env, sizes, flips)
        self.mode = ShapeMode(sizes.rules)
        self.stack = ModuleStack(subject.root)
        self.recorder = Recorder(self.env, self.mode, self.stack, self.values, subject.device)
        self.ledger = self.recorder.ledger
        self.names = Names(self.env, self.mode, self.ledger.signatures)
        self.boundaries = self.stack.boundaries = Boundaries(self.names)
        self.boundaries.path = lambda: self.stack.scopes[-1].path if self.stack.scopes else ""
        self.inputs: list[tuple[str, Record]] = []
        self.outputs: list[tuple[str, Record, int, Any]] = []
        self.parameters: dict[str, torch.Tensor] = {}
        self.stored: dict[str, Shape] = {}
        self.exchange = Exchange(self.recorder)
        self.recomputed = Recomputed(self.ledger.records)
        self._gathered: Mapping[int, tuple[GatheredGroup, torch.Tensor]] = {}
        self.result: Any = None
        self.error: Exception | None = None
        self.made = True
        self.spelling: dict[Expr, Expr] = {}

    def _where(self) -> tuple[Place | None, str]:
        return place(2), self.recorder.operator

    def run(self) -> None:
        """Trace; whatever the model's code raises is kept in `error`."""
        with ExitStack() as stack:
            stack.enter_context(without_collection())
            stack.enter_context(preserved([] if self.subject.maker is not None else self.subject.modules))
            stack.enter_context(running(self.mode))
            if not self._make(self.subject.maker):
                return
            modules = self.subject.modules
            self._gathered = gathered_by(modules)
            classes = {type(module) for module in modules}
            self._swap_parameters(modules)
            arguments = {name: self._input(name, value) for name, value in self.bound.arguments.items()}
            for name, value in arguments.items():
                self.names.declare_all(value, self.bound.declared.get(name))
            pin_attributes(modules, self.env, self.names)
            own = modules_of(classes)
            stack.enter_context(shadowed(own if self.subject.maker is None else [*own, *torch_layers()]))
            stack.enter_context(self.boundaries.watching(own))
            stack.enter_context(checks_seen(self.names))
            stack.enter_context(self.recomputed.seen())
            stack.enter_context(self.stack.watching())
            if self.stored:
                stack.enter_context(self.exchange.seen(modules))
            self._call(arguments)

    # Making the module

    def make(self) -> None:
        """Make the module alone, without its forward; whatever the constructor raises is kept in `error`."""
        with without_collection(), preserved([]), running(self.mode):
            if self._make(self.subject.maker):
                self._swap_parameters(self.subject.modules)

    def _make(self, maker: Maker | None) -> bool:
        """Make the subject's module, if it has to be made, of this attempt's symbols. False when the code raised."""
        if maker is None:
            return True
        sizes = {name: self._constructor_size(name) for name in maker.symbols}
        try:
            with building(self.recorder, maker.modules):
                root = maker.make(sizes)
        except Exception as error:  # any: it is the model's own code
            self.error, self.made = error, False
            return False
        self.subject = replace(self.subject, call=root, root=root)
        self.stack.follow(root)
        return True

    def _constructor_size(self, name: str) -> int | torch.SymInt:
        """A symbol; the plain number where the name stands for it alone."""
        if name in self.hints.pinned:
            return self.hints.pinned[name]
        hint = self.hints.choose(name, axis=0)
        return self.env.symint(self.env.symbol(name, hint=hint, low=min(2, hint)))

    def _call(self, arguments: dict[str, Any]) -> None:
        positional = [arguments[name] for name in self.bound.positional]
        keyword = {name: arguments[name] for name in self.bound.keyword}
        try:
            with self.recorder:
                self.result = self.subject.call(*positional, **keyword)
        except Exception as error:  # any: it is the model's own code; the tracer decides what to make of it
            self.error = error
        else:
            self._finish()
        self.spelling = self.names.define_formulas()
        if self.stored:
            self.spelling |= exact_quotients(self.env)

    def _finish(self) -> None:
        recorder = self.recorder
        self.result = map_tensors(self.result, self.ledger.admit)
        for path, tensor in tensors_in(self.result):
            known = traced(tensor)
            assert known is not None
            record, index, signature = source_of(known)
            self.outputs.append((path, record, index, signature))
        self._hold_conditions()
        for formula, hint in self.env.lost.items():
            recorder.writer.expect(recorder.writer.real(formula), hint, f"{formula} as a plain float")
        recorder.writer.output(self.result)

    def _hold_conditions(self) -> None:
        """Conditions on input sizes are asserted before the first operator, those on found dims at the end."""
        writer, records = self.recorder.writer, self.ledger.records
        guards = telling(self.env)
        early = [guard for guard in guards if not guard.relation.difference.symbols & self._found()]
        with writer.before(records[0].node if records else None):
            for guard in early:
                writer.hold(guard.relation)
        for guard in guards:
            if guard not in early:
                writer.hold(guard.relation)

    def _found(self) -> set[Symbol]:
        """Symbols that are not inputs' sizes alone."""
        return {*self.env.fresh, *self.env.definitions, *self.env.computed}

    def demanded(self, beside: list[Expr]) -> tuple[str, int] | None:
        """The size that the last failed comparison asked for: `T == 8` when 5*T met 40, a multiple for `H % 32`.

        `beside` are the differences of a constructor's sizes that were asked for before; a new one is added.
        """
        maker = self.subject.maker
        for difference in reversed(self.env.unequal[-RECENT:]):
            found = solve(difference, self.env)
            if maker is not None and {symbol.name for symbol in difference.symbols} & maker.symbols.keys():
                found = solve_for_any(difference, self.env, beside=beside)
                beside.append(difference)
            if found is not None:
                return found
        return None

    # Parameters

    def _swap_parameters(self, modules: list[nn.Module]) -> None:
        """Fakes for parameters and buffers: the modules get dictionaries of their own, put back by `preserved`."""
        fakes: dict[int, torch.Tensor] = {}
        for module in modules:
            prefix = self.stack.paths[id(module)]
            for kind, table in (("parameter", "_parameters"), ("buffer", "_buffers")):
                held = vars(module)[table]
                vars(module)[table] = {
                    name: self._fake(tensor, f"{prefix}.{name}" if prefix else name, kind, fakes)
                    for name, tensor in held.items()
                }

    def _fake(self, tensor: Any, path: str, kind: str, fakes: dict[int, torch.Tensor]) -> Any:
        if tensor is None:
            return None
        if id(tensor) not in fakes:
            made = type(tensor) is FakeTensor  # by this attempt's own constructor
            fake = tensor if made else self._gathered_fake(tensor)
            self.ledger.register(fake, None if made else tensor, path, kind)
            fakes[id(tensor)] = fake
        self.parameters[path] = fakes[id(tensor)]
        if is_dtensor(tensor) or id(tensor) in self._gathered:
            self.stored[path] = self._stored(tensor, fakes[id(tensor)])
        return fakes[id(tensor)]

    def _gathered_fake(self, tensor: torch.Tensor) -> torch.Tensor:
        """What the module finds in place of a parameter when it runs: `fully_shard` has gathered it by then."""
        if id(tensor) not in self._gathered:
            return self.ledger.fake(tensor)
        group, spread = self._gathered[id(tensor)]
        return fake_of_gathered(self.ledger, spread, group)

    def _stored(self, tensor: torch.Tensor, fake: torch.Tensor) -> Shape:
        """The shape of a parameter as it is kept between runs, spread over all the ranks of its mesh."""
        known = traced(fake)
        assert known is not None
        _, spread = self._gathered.get(id(tensor), (None, tensor))
        return replace(known.signature.shape, sharding=sharding_of(spread))

    # Inputs

    def _input(self, name: str, value: Any) -> Any:
        if not tensors_in(value, at=(torch.Tensor, TensorSpec)):
            self.recorder.writer.plain(name, value)
            return value
        return self._fill(name, value, self.recorder.writer.placeholder(name))

    def _fill(self, path: str, value: Any, node: Any) -> Any:
        """The fakes of an input, and for each the node that reaches it inside the placeholder."""
        graph = self.recorder.writer.graph
        if isinstance(value, TensorSpec):
            return self._enter(path, self._from_spec(path, value), node)
        if isinstance(value, torch.Tensor):
            return self._enter(path, self.ledger.fake(value), node)
        if isinstance(value, tuple | list) and not hasattr(value, "_fields"):
            return type(value)(
                self._fill(f"{path}[{index}]", item, graph.call_function(operator.getitem, (node, index)))
                for index, item in enumerate(value)
            )
        if isinstance(value, dict):
            return type(value)(
                (key, self._fill(f"{path}.{key}", item, graph.call_function(operator.getitem, (node, key))))
                for key, item in value.items()
            )
        return self._fill_object(path, value, node)

    def _fill_object(self, path: str, value: Any, node: Any) -> Any:
        """Fields of a dataclass or named tuple; tensors anywhere inside another object."""
        graph = self.recorder.writer.graph
        fields = getattr(value, "_fields", None) or (
            [field.name for field in dataclasses.fields(value)] if _is_instance_of_dataclass(value) else None
        )
        if fields is None:
            return map_tensors(value, lambda tensor: self._enter(path, self.ledger.fake(tensor), node))
        parts = {
            name: self._fill(f"{path}.{name}", getattr(value, name), graph.call_function(getattr, (node, name)))
            for name in fields
        }
        return type(value)(**parts) if hasattr(value, "_fields") else copied_with(value, parts)

    def _enter(self, path: str, fake: torch.Tensor, node: Any) -> torch.Tensor:
        recorder = self.recorder
        signature = self.ledger.signature(fake)
        record = self.ledger.input(path, fake, node, signature)
        self.inputs.append((path, record))
        for axis, size in enumerate(signature.sizes):
            expr: Any = size  # a symbolic one is an Expr
            for symbol in () if type(size) is int else expr.symbols:
                recorder.writer.axis(symbol, expr, node, axis)
        return fake

    def _from_spec(self, path: str, spec: TensorSpec) -> torch.Tensor:
        dtype = getattr(torch, spec.dtype)
        unnamed = re.sub(r"\W+", "_", path).strip("_")
        sizes = [
            self.env.number(self._size(f"{unnamed}_{axis}", (axis, len(spec.dims)), dim))
            for axis, dim in enumerate(spec.dims)
        ]
        with DisableTorchFunction():
            return torch.empty(sizes, dtype=dtype, device=self.ledger.device)

    def _size(self, default: str, where: tuple[int, int], dim: Dim) -> Expr:
        """The size of one axis: known names get their value, the others a hint. `where` is the axis and the rank."""
        if dim.expr is None:
            return self._symbol(dim.name or default, where, dim)
        known = {
            symbol: self._symbol(symbol.name, where, dim if dim.name == symbol.name else Dim())
            for symbol in dim.expr.symbols
            if symbol.value is None
        }
        return dim.expr.replace(known)

    def _symbol(self, name: str, where: tuple[int, int], dim: Dim) -> Expr:
        if name in self.hints.pinned:
            return Expr.symbol(name, self.hints.pinned[name])
        attribute = vars(self.subject.root).get(name) if self.subject.root is not None else None
        if isinstance(attribute, torch.SymInt):
            return size_key(attribute)
        if type(attribute) is int and name not in self.hints.given:
            return Expr.symbol(name, attribute)
        low, high = dim.low or 2, dim.high
        known = Expr.symbol(name)
        (symbol,) = known.symbols
        if symbol not in self.env.hints:
            hint = self.hints.choose(name, axis=where[0], rank=where[1], low=low, high=high)
            self.env.symbol(name, hint=hint, low=min(low, hint), high=high)
        return known


def _is_instance_of_dataclass(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)
