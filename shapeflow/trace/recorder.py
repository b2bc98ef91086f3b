"""The mode that sees every torch function of the forward: runs it on fakes (or remembers it) and records a node.

    >>> with running(mode), recorder:
    ...     model(fake_tokens)
    >>> recorder.writer.graph
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from shapeflow.dims.atoms import Symbol
from shapeflow.dims.env import DimEnv
from shapeflow.dims.expr import Expr
from shapeflow.torch_private import FakeTensor, ShapeMode, fake_like, rename_axes
from shapeflow.trace import rnn
from shapeflow.trace.memo import Entry, Memo, alias_of, make
from shapeflow.trace.modules import ModuleStack
from shapeflow.trace.scalars import scalar_value
from shapeflow.trace.source import Place, place
from shapeflow.trace.traced import Record, Signature, Signatures, Traced, size_key, traced
from shapeflow.trace.values import ValueReader
from shapeflow.trace.writer import Writer, property_name

TENSOR_PROPERTIES = frozenset({"T", "mT", "H", "mH", "real", "imag", "data"})
QUESTIONS = frozenset(
    """size dim stride numel nelement ndimension storage_offset is_floating_point is_complex is_contiguous is_signed
    is_conj is_neg is_inference element_size get_device has_names is_same_size is_set_to untyped_storage storage
    data_ptr __repr__ __hash__ __dir__ __deepcopy__ __reduce_ex__ __set__ requires_grad_ register_hook
    retain_grad is_shared is_pinned dim_order result_type can_cast is_storage promote_types broadcast_shapes
    is_grad_enabled get_default_dtype _is_view is_nonzero_dim typename is_tensor dtype type""".split()
)
"""Functions that tell of a tensor and make none: they run, and nothing is recorded."""
UNPACKING = frozenset({"__iter__", "__reversed__", "__contains__", "unravel_index"})
"""Functions of Python that are made of operators: those are recorded instead."""
FROM_DATA = frozenset({"tensor", "as_tensor", "asarray", "from_numpy", "scalar_tensor"})
WRITTEN_SIZES = frozenset({"view", "reshape"})
"""Operators whose output has the sizes that the code writes."""
EXPANDED = {torch.nn.functional.multi_head_attention_forward}
"""Large functions of torch.nn.functional: drawn as the operators inside them."""


class Recorder(TorchFunctionMode):
    """Records operators with module stack, source line, sizes; see the module's docstring."""

    def __init__(self, env: DimEnv, mode: ShapeMode, modules: ModuleStack, values: ValueReader) -> None:
        super().__init__()
        self.env, self.mode, self.modules, self.values = env, mode, modules, values
        self.signatures = Signatures()
        self.memo = Memo(self.signatures)
        self.writer = Writer(env)
        self.records: list[Record] = []
        self.real: dict[int, torch.Tensor] = {}
        self.operator = ""
        self.failed: Failure | None = None
        self._plans: dict[Any, Callable[..., Any] | None] = {}
        self._known_symbols = 0
        self._expanded: dict[Any, Any] = {}
        self.device = torch.device("cpu")
        values.recorder = self

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
        name = getattr(func, "__name__", "")
        if isinstance(func, types.MethodWrapperType):
            return self._operator if name == "__get__" and property_name(func) in TENSOR_PROPERTIES else None
        if name in QUESTIONS:
            return None
        if (reader := self.values.readers.get(name)) is not None:
            return reader
        if name in UNPACKING:
            return self._unpack
        if func in EXPANDED:
            return self._expand
        if func in rnn.RULES:
            return self._recurrent
        writes = (name.endswith("_") and not name.endswith("__")) or name == "__setitem__" or _is_augmented(name)
        return self._write if writes else self._constant if name in FROM_DATA else self._operator

    def _unpack(self, func: Any, args: Any, kwargs: Any) -> Any:
        with self:
            if func.__name__ == "__iter__":
                return iter(torch.unbind(args[0], 0))
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)

    def _expand(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run the body of a Python function of torch with its own check for function modes taken out."""
        body = self._expanded.get(func)
        if body is None:
            names = {**func.__globals__, "has_torch_function": lambda _: False}
            body = types.FunctionType(func.__code__, names, func.__name__, func.__defaults__, func.__closure__)
            body.__kwdefaults__ = func.__kwdefaults__
            self._expanded[func] = body
        with self:
            return body(*args, **kwargs)

    def _recurrent(self, func: Any, args: Any, kwargs: Any) -> Any:
        args, kwargs = self.admit(args), self.admit(kwargs)
        self.operator, found = func.__name__, place(3)
        result = self._run(rnn.RULES[func], args, kwargs, found)
        return self._record(func, args, kwargs, result, found)

    def _constant(self, func: Any, args: Any, kwargs: Any) -> Any:
        """`torch.tensor([...])`: sizes inside are lowered like any argument."""
        return self._plain(func, args, kwargs, place(3))

    def _write(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An operator that changes its first argument: never remembered, and later readers hang on it."""
        args, kwargs = self.admit(args), self.admit(kwargs)
        target = args[0] if args and type(args[0]) is FakeTensor else None
        found = place(3)
        self.operator = func.__name__
        result = self._run(func, args, kwargs, found)
        known = traced(target) if target is not None else None
        if known is None or target is None:
            return self._record(func, args, kwargs, result, found)
        node = self.writer.call(func, args, kwargs)
        record = self._note(func, args, kwargs, found, node)
        known.signature, known.rows, known.real, known.value = self.signatures.of(target), None, None, None
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
        tensors: list[torch.Tensor] = []
        memo = self.memo
        key = memo.key(func, args, kwargs, tensors)
        if key is None:
            return self._plain(func, args, kwargs, place(3))
        entry = memo.find(key)
        if entry is not None:
            return self._remembered(func, args, kwargs, entry, tensors, place(3))
        found = place(3)
        self.operator = func.__name__
        fresh = len(self.env.fresh)
        result = self._run(func, args, kwargs, found)
        if "out" in kwargs or len(self.env.fresh) != fresh:
            return self._record(func, args, kwargs, result, found)
        if self.operator in WRITTEN_SIZES and type(result) is FakeTensor:
            self._keep_written_sizes(result, args[1:])
        memo.keep(key, tensors, result)
        self._suppose_generic(result)
        entry = memo.entries.get(key)
        if entry is None:
            return self._record(func, args, kwargs, result, found)
        return self._remembered(func, args, kwargs, entry, tensors, found)

    def _suppose_generic(self, result: Any) -> None:
        for _, tensor in _tensors_in(result):
            for size in self.signatures.of(tensor).sizes:
                if type(size) is not int:
                    self.env.generic(size)

    def _keep_written_sizes(self, result: torch.Tensor, written: Any) -> None:
        """`view(b, t, self.n_heads, self.d_head)`: the axes are called what the code calls them, not `d_model//4`."""
        sizes = list(written[0]) if len(written) == 1 and isinstance(written[0], tuple | list) else list(written)
        if len(sizes) == result.dim() and all(type(size) in (int, torch.SymInt) for size in sizes):
            given = [now if type(size) is int and size < 0 else size for size, now in zip(sizes, result.shape, strict=True)]
            if any(size_key(a) is not size_key(b) for a, b in zip(given, result.shape, strict=True)):
                self.env.quietly(rename_axes, self.mode, result, given)

    def _plain(self, func: Any, args: Any, kwargs: Any, found: Place | None) -> Any:
        args, kwargs = self.admit(args), self.admit(kwargs)
        self.operator = getattr(func, "__name__", str(func))
        result = self._run(func, args, kwargs, found)
        return self._record(func, args, kwargs, result, found)

    def _remembered(self, func: Any, args: Any, kwargs: Any, entry: Entry, tensors: Any, found: Place | None) -> Any:
        node = self.writer.call(func, args, kwargs)
        record = self._note_tensors(func, tensors, found, node)
        outputs = []
        single = entry.container is None
        for index, template in enumerate(entry.templates):
            output = make(entry, template)
            known = Traced(template.signature, node if single else (node, index), record, index)
            if template.alias is not None:
                known.root = traced(tensors[template.alias]).root  # type: ignore[union-attr]
            output.__dict__["_traced"] = known
            record.outputs.append(template.signature)
            outputs.append(output)
        if single:
            if not entry.templates[0].signature.sizes:
                known.value = scalar_value(record.operator, args, kwargs)
            node.meta["val"] = outputs[0]
            return outputs[0]
        node.meta["val"] = result = _rebuild(entry.container, outputs)
        return result

    def _run(self, func: Any, args: Any, kwargs: Any, found: Place | None) -> Any:
        try:
            return func(*args, **kwargs)
        except Exception as error:  # any: the note says where in the model it arose, the error goes on
            if self.failed is None or self.failed.error is not error:
                self.failed = Failure(error, getattr(func, "__name__", str(func)), args, kwargs, self.modules.scopes, found)
            raise

    # Notes

    def _record(self, func: Any, args: Any, kwargs: Any, result: Any, found: Place | None) -> Any:
        """A node for an operator that ran, with its outputs wherever they are in the result."""
        outputs = list(_tensors_in(result))
        if not outputs:
            return result
        result, outputs = self._distinct(result, outputs)
        node = self.writer.call(func, args, kwargs)
        record = self._note(func, args, kwargs, found, node)
        node.meta["val"] = result
        read = [tensor for _, tensor in _tensors_in((args, kwargs))]
        for index, (path, output) in enumerate(outputs):
            signature = self.signatures.of(output)
            known = Traced(signature, _element(node, path), record, index)
            alias = alias_of(output, read)
            if alias is not None and (origin := traced(read[alias])) is not None:
                known.root = origin.root
            if not signature.sizes:
                known.value = scalar_value(record.operator, args, kwargs)
            output.__dict__["_traced"] = known
            record.outputs.append(signature)
        self._find_sources(outputs, node)
        return result

    def _distinct(self, result: Any, outputs: list[Any]) -> Any:
        """An operator that hands its input through (`contiguous`, `dropout` in eval) still has an output of its own."""
        if type(result) is FakeTensor and traced(result) is not None:
            with torch._C.DisableTorchFunction():
                result = result.view_as(result)
            return result, [((), result)]
        return result, outputs

    def _note(self, func: Any, args: Any, kwargs: Any, found: Place | None, node: Any) -> Record:
        return self._note_tensors(func, [tensor for _, tensor in _tensors_in((args, kwargs))], found, node)

    def _note_tensors(self, func: Any, tensors: list[torch.Tensor], found: Place | None, node: Any) -> Record:
        modules = self.modules
        record = Record("operator", _operator_name(func), modules.scopes, found, [], [], node)
        record.sources = [source_of(tensor.__dict__["_traced"]) for tensor in tensors]
        record.number = len(self.records)
        self.records.append(record)
        meta = node.meta
        meta["nn_module_stack"] = modules.fx_stack
        meta["shapeflow"] = record
        return record

    def _find_sources(self, outputs: list[Any], node: Any) -> None:
        """Dims that this operator found, such as the rows of `nonzero`, are read off its output when the graph replays."""
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

    # Tensors that come from outside

    def admit(self, value: Any) -> Any:
        """`value` with each real or unknown tensor in it replaced by a fake that the graph knows."""
        kind = type(value)
        if kind is FakeTensor:
            if "_traced" not in value.__dict__:
                self.adopt(value)
            return value
        if kind is tuple or kind is list:
            return kind([self.admit(item) for item in value])
        if kind is dict:
            return {name: self.admit(item) for name, item in value.items()}
        if isinstance(value, torch.Tensor):
            return self.constant(value)
        return value

    def constant(self, tensor: torch.Tensor) -> torch.Tensor:
        """The fake of a real tensor that is neither an input nor registered on the model."""
        fake = self.real.get(id(tensor))
        if fake is None:
            fake = fake_like(self.mode, tensor, self.device if tensor.device.type == "meta" else tensor.device)
            self.adopt(fake, real=tensor)
        return fake

    def adopt(self, fake: torch.Tensor, *, real: Any = None) -> Traced:
        """Give a tensor that comes from nowhere a place in the graph: a constant."""
        path = f"_constant_{len(self.writer.attributes)}"
        self.writer.attributes[path] = fake if real is None else real
        return self.register(fake, real, path, "constant")

    def register(self, fake: torch.Tensor, real: Any, path: str, kind: str) -> Traced:
        """Note a parameter, buffer or constant; its node is made when an operator first reads it."""
        with torch._C.DisableTorchFunction():
            signature = self.signatures.of(fake)
        record = Record(kind, "", self.modules.scopes if kind == "constant" else (), None, [], [signature], None, path)
        known = Traced(signature, None, record, 0)
        known.real = real
        fake.__dict__["_traced"] = known
        if real is not None:
            self.real[id(real)] = fake
        return known

    def input(self, path: str, fake: torch.Tensor, node: Any, signature: Signature) -> Record:
        """Note an input, or a tensor inside one."""
        record = Record("input", "", (), None, [], [signature], node, path)
        fake.__dict__["_traced"] = Traced(signature, node, record, 0)
        node.meta["val"] = fake
        node.meta["shapeflow"] = record
        return record


class Failure:
    """The operator that raised, with what it was given."""

    __slots__ = ("args", "error", "kwargs", "operator", "place", "scopes")

    def __init__(self, error: Exception, operator: str, args: Any, kwargs: Any, scopes: Any, found: Place | None) -> None:
        self.error, self.operator, self.scopes, self.place = error, operator, scopes, found
        self.args, self.kwargs = args, kwargs


def _is_augmented(name: str) -> bool:
    return name.startswith("__i") and name not in ("__invert__", "__index__", "__int__", "__iter__", "__init__")


def _operator_name(func: Any) -> str:
    name = getattr(func, "__name__", str(func))
    return property_name(func) if name == "__get__" else name.strip("_").partition(".")[0] or name


def source_of(known: Traced) -> tuple[Record, int, Signature]:
    """Whoever made the tensor, or wrote to its storage after that."""
    writer = known.root.writer
    if writer is not None and writer.number > known.record.number:
        return writer, 0, known.signature
    return known.record, known.index, known.signature


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

