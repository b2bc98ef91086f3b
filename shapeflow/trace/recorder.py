"""The mode that sees every torch function of the forward: runs it on fakes (or remembers it) and records a node.

>>> with running(mode), recorder:
...     model(fake_tokens)
>>> recorder.writer.graph
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from shapeflow.dims.atoms import Symbol
from shapeflow.dims.env import DimEnv
from shapeflow.dims.expr import Expr
from shapeflow.torch_private import (
    DisableTorchFunction,
    DisableTorchFunctionSubclass,
    FakeTensor,
    ShapeMode,
    is_dtensor,
    rename_axes,
    tree_leaves,
    waited,
    without_modes,
)
from shapeflow.trace.functions import TAKES_SIZES, WRITTEN_SIZES, Kind, body_of, kind_of, name_of, operator_name
from shapeflow.trace.ledger import Ledger
from shapeflow.trace.memo import Entry, Memo, alias_of, make
from shapeflow.trace.modules import ModuleStack
from shapeflow.trace.own_rules import OwnRules
from shapeflow.trace.reshaping import unflattened
from shapeflow.trace.scalars import Origin
from shapeflow.trace.shadow import SYMBOLIC
from shapeflow.trace.source import Place, place
from shapeflow.trace.structure import map_tensors
from shapeflow.trace.traced import Traced, mark, size_key, traced
from shapeflow.trace.values import ValueReader
from shapeflow.trace.writer import Writer

MOST_VALUES = 4096
"""Constants with more elements are not carried along by value."""


class Recorder(TorchFunctionMode):
    """Records operators with module stack, source line, sizes; see the module's docstring."""

    def __init__(
        self, env: DimEnv, mode: ShapeMode, modules: ModuleStack, values: ValueReader, device: torch.device
    ) -> None:
        super().__init__()
        self.env, self.mode, self.modules, self.values = env, mode, modules, values
        self.writer = Writer(env)
        self.ledger = Ledger(self.writer, mode, modules, device)
        self.signatures = self.ledger.signatures
        self.memo = Memo(self.signatures)
        self.progress: Callable[[str], None] | None = None
        self.operator = ""
        self.failed: Failure | None = None
        self.is_spread = False
        self._plans: dict[Any, Callable[..., Any] | None] = {}
        self.own_rules = OwnRules(values.sizes).rules
        self._bodies: dict[Any, Any] = {}
        self._known_symbols = 0
        values.recorder = self
        values.scalars.read = self.writer.element

    # Which functions are recorded, and how

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            plan = self._plans[func]
        except KeyError:
            plan = self._plans[func] = self._plan(func)
        if plan is None:
            return func(*args, **(kwargs or {}))
        return plan(func, args, kwargs or {})

    def _plan(self, func: Any) -> Callable[..., Any] | None:
        """What to do with a function; None to let it run unseen."""
        reader = self.values.readers.get(name_of(func))
        if reader is not None:
            return reader
        plans: dict[Kind, Callable[..., Any] | None] = {
            "question": None,
            "unpacking": self._unpack,
            "expanded": self._expand,
            "copy": lambda func, args, kwargs: self._operator(torch.clone, args[:1], {}),
            "write": self._write,
            "data": self._constant,
            "operator": self._operator,
        }
        return plans[kind_of(func)]

    def _unpack(self, func: Any, args: Any, kwargs: Any) -> Any:
        with self:
            if func.__name__ == "__iter__":
                return iter(torch.unbind(args[0], 0))
            with DisableTorchFunctionSubclass():
                return func(*args, **kwargs)

    def _expand(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func not in self._bodies:
            self._bodies[func] = body_of(func)
        with self:
            return self._bodies[func](*args, **kwargs)

    def _constant(self, func: Any, args: Any, kwargs: Any) -> Any:
        """`torch.tensor([T, 2])`: sizes inside are lowered like any argument, and the tensor's values are not known."""
        if not _has_sizes((args, kwargs)):
            return self._operator(func, args, kwargs)
        result = self.env.quietly(self._plain, func, args, kwargs, place(3))
        result.constant = None
        return result

    def _write(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An operator that changes its first argument: never remembered, and later readers hang on it."""
        args, kwargs = self.ledger.admit(args), self.ledger.admit(kwargs)
        target = args[0] if args and type(args[0]) is FakeTensor else None
        found = place(3)
        result = self._run(func, args, kwargs, found)
        known = traced(target) if target is not None else None
        if known is None or target is None:
            return self._record(func, args, kwargs, result, found)
        node = self.writer.call(func, args, kwargs)
        record = self.ledger.note(func, [tensor for _, tensor in _tensors_in((args, kwargs))], found, node)
        known.signature = self.signatures.of(target)
        known.real = known.value = known.origin = None
        record.outputs = [known.signature]
        known.root.writer = record
        node.meta["val"] = target
        if result is target:
            known.node, known.record, known.index = node, record, 0
            if known.root is known:
                known.writer = None
        return result

    # The common case

    def _operator(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func.__name__ in TAKES_SIZES:
            args = self._sizes_in(args)
        if kwargs and torch.SymBool in map(type, kwargs.values()):  # a flag, such as `is_causal=T > 1`
            kwargs = {name: bool(value) if type(value) is torch.SymBool else value for name, value in kwargs.items()}
        tensors: list[torch.Tensor] = []
        memo = self.memo
        key = memo.key(func, args, kwargs, tensors)
        if key is None:
            return self._plain(func, args, kwargs, place(3))
        entry = memo.find(key)
        if entry is not None:
            return self._remembered(func, args, kwargs, entry, tensors, place(3))
        found = place(3)
        asked = self.values.sizes.asked
        result = self._run(func, args, kwargs, found, rule=self.own_rules.get(func))
        if "out" in kwargs or self.values.sizes.asked != asked:
            return self._record(func, args, kwargs, result, found)
        if func.__name__ in WRITTEN_SIZES and type(result) is FakeTensor:
            self._keep_written_sizes(result, args[1:] if func.__name__ != "unflatten" else unflattened(*args, **kwargs))
        self.env.quietly(memo.keep, key, tensors, result)
        self._suppose_generic(result)
        entry = memo.entries.get(key)
        if entry is None:
            return self._record(func, args, kwargs, result, found)
        return self._remembered(func, args, kwargs, entry, tensors, found)

    def _sizes_in(self, value: Any) -> Any:
        """0-d tensors among the sizes of `view`, `zeros`, ... as the numbers that they hold."""
        if type(value) in (tuple, list, torch.Size):
            return type(value)(self._sizes_in(item) for item in value)
        if type(value) is FakeTensor and not value.dim() and (size := self.values.scalars.value(value)) is not None:
            return size
        return value

    def _suppose_generic(self, result: Any) -> None:
        for _, tensor in _tensors_in(result):
            for size in self.signatures.of(tensor).sizes:
                if type(size) is not int:
                    self.env.generic(size)

    def _keep_written_sizes(self, result: torch.Tensor, written: Any) -> None:
        """`view(b, t, self.n_heads, self.d_head)`: the axes are called what the code calls them, not `d_model//4`."""
        sizes = list(written[0]) if len(written) == 1 and isinstance(written[0], tuple | list) else list(written)
        if len(sizes) == result.dim() and all(type(size) in (int, torch.SymInt) for size in sizes):
            given = [
                now if type(size) is int and size < 0 else size for size, now in zip(sizes, result.shape, strict=True)
            ]
            if any(size_key(a) is not size_key(b) for a, b in zip(given, result.shape, strict=True)):
                self.env.quietly(rename_axes, self.mode, result, given)

    def _plain(self, func: Any, args: Any, kwargs: Any, found: Place | None) -> Any:
        args, kwargs = self.ledger.admit(args), self.ledger.admit(kwargs)
        spread = self.is_spread and any(is_dtensor(tensor) for _, tensor in _tensors_in((args, kwargs)))
        result = self._run(func, args, kwargs, found, rule=None if spread else self.own_rules.get(func))
        return self._record(func, args, kwargs, result, found)

    def spread(self, func: Any, args: Any, kwargs: Any, found: Place | None) -> Any:
        """A method of DTensor, such as `redistribute`, as an operator."""
        with DisableTorchFunction():
            args, kwargs = self.ledger.admit(args), self.ledger.admit(kwargs)
            return self._record(func, args, kwargs, waited(self._run(func, args, kwargs, found)), found)

    def _remembered(self, func: Any, args: Any, kwargs: Any, entry: Entry, tensors: Any, found: Place | None) -> Any:
        node = self.writer.call(func, args, kwargs)
        record = self.ledger.note(func, tensors, found, node)
        if self.progress is not None and record.number % 100 == 0:
            self.progress(f"{record.number} operators")
        outputs: list[torch.Tensor] = []
        single = entry.container is None
        for index, template in enumerate(entry.templates):
            output = make(template)
            known = Traced(template.signature, node if single else (node, index), record, index)
            if template.alias is not None:
                known.root = vars(tensors[template.alias])["_traced"].root
            if single and not template.signature.sizes:
                known.origin = Origin(record.operator, args, kwargs)
            mark(output, known)
            record.outputs.append(template.signature)
            outputs.append(output)
        if tensors and traced(tensors[0]).real is not None:  # type: ignore[union-attr]  # the memo's key saw a note
            self._carry_values(func, args, kwargs, tensors, outputs)
        if single:
            node.meta["val"] = outputs[0]
            return outputs[0]
        node.meta["val"] = result = _rebuild(entry.container, outputs)
        return result

    def _carry_values(self, func: Any, args: Any, kwargs: Any, tensors: list[torch.Tensor], outputs: list[Any]) -> None:
        """What is made of small buffers and constants alone has values: `self.lengths[0]`, `self.gate > 0`."""
        reals = [self.values.known(tensor) for tensor in tensors]
        if any(real is None or real.numel() > MOST_VALUES for real in reals):
            return
        if _has_sizes((args, kwargs)):
            return
        by_fake = {id(tensor): real for tensor, real in zip(tensors, reals, strict=True)}
        with without_modes():
            real_args, real_kwargs = map_tensors((args, kwargs), lambda tensor: by_fake[id(tensor)])
            result = func(*real_args, **real_kwargs)
        for output, real in zip(outputs, [result] if len(outputs) == 1 else result, strict=False):
            traced(output).real = real  # type: ignore[union-attr]  # marked just now

    def _run(self, func: Any, args: Any, kwargs: Any, found: Place | None, *, rule: Any = None) -> Any:
        self.operator = operator_name(func)
        try:
            return (rule or func)(*args, **kwargs)
        except Exception as error:  # any: the note says where in the model it arose, the error goes on
            if self.failed is None or self.failed.error is not error:
                self.failed = Failure(error, func, args, kwargs, self.modules.scopes, found)
            raise
        finally:
            self.operator = ""

    # Notes

    def _record(self, func: Any, args: Any, kwargs: Any, result: Any, found: Place | None) -> Any:
        """A node for an operator that ran, with its outputs wherever they are in the result."""
        outputs = list(_tensors_in(result))
        if not outputs:
            return result
        result, outputs = self._distinct(result, outputs)
        node = self.writer.call(func, args, kwargs)
        read = [tensor for _, tensor in _tensors_in((args, kwargs))]
        record = self.ledger.note(func, read, found, node)
        node.meta["val"] = result
        for index, (path, output) in enumerate(outputs):
            signature = self.signatures.of(output)
            known = Traced(signature, _element(node, path), record, index)
            alias = alias_of(output, read)
            if alias is not None and (origin := traced(read[alias])) is not None:
                known.root = origin.root
            if not signature.sizes:
                known.origin = Origin(record.operator, args, kwargs)
            mark(output, known)
            record.outputs.append(signature)
        self._find_sources(outputs, node)
        return result

    def _distinct(self, result: Any, outputs: list[Any]) -> Any:
        """An operator that hands its input through (`contiguous`, `dropout` in eval) still has an output of its own."""
        if (type(result) is FakeTensor or is_dtensor(result)) and traced(result) is not None:
            result = self._alias(result)
            return result, [((), result)]
        return result, outputs

    def _alias(self, tensor: torch.Tensor) -> torch.Tensor:
        with DisableTorchFunction():
            return self.env.quietly(tensor.view_as, tensor)

    def _find_sources(self, outputs: list[Any], node: Any) -> None:
        """Dims that this operator found (the rows of `nonzero`) are read off its output when the graph replays."""
        if len(self.env.hints) == self._known_symbols:
            return
        self._known_symbols = len(self.env.hints)
        for path, output in outputs:
            for axis, size in enumerate(self.signatures.of(output).sizes):
                symbol = None if type(size) is int else _sole_symbol(size)
                if symbol is not None and symbol in self.env.fresh:
                    self.writer.source(symbol, self._axis_reader(_element(node, path), axis))

    def _axis_reader(self, element: Any, axis: int) -> Callable[[], Any]:
        graph = self.writer.graph

        def read() -> Any:
            node = graph.call_function(operator.getitem, element) if type(element) is tuple else element
            return graph.call_method("size", (node, axis))

        return read


class Failure:
    """The operator that raised, with what it was given."""

    __slots__ = ("args", "error", "function", "kwargs", "place", "scopes")

    def __init__(self, error: Exception, function: Any, args: Any, kwargs: Any, scopes: Any, found: Any) -> None:
        self.error, self.function, self.scopes, self.place = error, function, scopes, found
        self.args, self.kwargs = args, kwargs


def _has_sizes(value: Any) -> bool:
    """Whether symbolic numbers are among the arguments, in slices too."""
    for leaf in tree_leaves(value):
        if type(leaf) in SYMBOLIC or (type(leaf) is slice and _has_sizes([leaf.start, leaf.stop, leaf.step])):
            return True
    return False


def _tensors_in(value: Any, path: tuple[Any, ...] = ()) -> Any:
    """Each tensor with the way to it, through tuples, lists and dicts."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, tuple | list):
        for index, item in enumerate(value):
            yield from _tensors_in(item, (*path, index))
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _tensors_in(item, (*path, name))


def _element(node: Any, path: tuple[Any, ...]) -> Any:
    """The node itself, or what `operator.getitem` takes to reach an element."""
    if not path:
        return node
    inner = _element(node, path[:-1])
    if type(inner) is tuple:
        inner = node.graph.call_function(operator.getitem, inner)
    return inner, path[-1]


def _rebuild(container: Any, outputs: list[Any]) -> Any:
    if container is tuple or container is list:
        return container(outputs)
    return container(*outputs) if hasattr(container, "_fields") else container(outputs)


def _sole_symbol(size: Any) -> Symbol | None:
    symbols = size.symbols
    symbol = next(iter(symbols))
    return symbol if len(symbols) == 1 and size is Expr.from_atom(symbol) else None
