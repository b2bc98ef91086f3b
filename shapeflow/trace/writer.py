"""Writes the `torch.fx.Graph`: placeholders, parameters, operators, and the sizes that operators are given.

A size inside the graph is computed from the inputs' sizes, so the graph replays at others:

    %tokens : placeholder
    %B      : call_method size(%tokens, 0)
    %mul    : call_function operator.mul(%B, %T)
    %view   : call_method view(%x, %mul, 32)
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx

from shapeflow.dims.atoms import Atom, FloorDiv, Max, Min, Mod, Symbol
from shapeflow.dims.env import DimEnv
from shapeflow.dims.expr import Expr
from shapeflow.dims.floating import FLOAT_OPERATIONS, Call, FloatNode, Formula, Ratio
from shapeflow.dims.relation import Relation
from shapeflow.torch_private import OF_DTENSOR, OF_TENSOR, FakeTensor
from shapeflow.trace.functions import property_name
from shapeflow.trace.replay import expect, hold, refill, unreadable
from shapeflow.trace.structure import Slot, map_tensors
from shapeflow.trace.traced import Traced, traced

ATOMIC: dict[type, Callable[..., Any]] = {FloorDiv: operator.floordiv, Mod: operator.mod, Max: max, Min: min}
AS_OPERATOR = {
    "__getitem__": operator.getitem,
    "__setitem__": operator.setitem,
    "__and__": operator.and_,
    "__or__": operator.or_,
    "__xor__": operator.xor,
    "__invert__": operator.invert,
}
LEAVES = (str, int, float, bool, complex, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)

UNKNOWN = 1.5
"""The hint of a float that only values decide."""


class Writer:
    """Appends nodes to `graph`, lowers arguments to nodes and constants, and keeps objects that fx cannot spell."""

    def __init__(self, env: DimEnv) -> None:
        self.env = env
        self.graph = fx.Graph()
        self.attributes: dict[str, Any] = {}
        self._optional = False
        self._sources: dict[Symbol, Callable[[], fx.Node]] = {}
        self._lowered: dict[Any, fx.Node | int | float] = {}

    # Nodes

    def placeholder(self, name: str) -> fx.Node:
        """An input of the graph. Behind one that may be left out Python wants a default for each."""
        return self.graph.placeholder(name, default_value=None) if self._optional else self.graph.placeholder(name)

    def plain(self, name: str, value: Any) -> None:
        """A plain Python value among the inputs: the same when the graph replays, and may be left out there."""
        if type(value) in LEAVES:
            self._optional = True
            node = self.graph.placeholder(name, default_value=value)
            self.expect(node, value, name)
        else:
            self.placeholder(name)

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> fx.Node:
        """An operator, as a method or a function, however the model spelt it."""
        lowered = tuple([self.lower(arg) for arg in args])
        named = {name: self.lower(value) for name, value in kwargs.items()} if kwargs else {}
        name = getattr(function, "__name__", "")
        if isinstance(function, types.MethodWrapperType):  # a property: Tensor.T.__get__
            access = getattr if name == "__get__" else setattr
            return self.graph.create_node("call_function", access, (lowered[0], property_name(function), *lowered[1:]))
        if (known := AS_OPERATOR.get(name)) is not None:
            return self.graph.create_node("call_function", known, lowered, named)
        if getattr(function, "__module__", "") == OF_DTENSOR:  # a method of DTensor
            return self.graph.create_node("call_method", name, lowered, named)
        method = getattr(torch.Tensor, name, None)
        # operators such as `**` come wrapped: neither Tensor nor the module of the wrapper has the function
        if args and method is not None and (method is function or function.__module__ == OF_TENSOR):
            return self.graph.create_node("call_method", name, lowered, named)
        return self.graph.create_node("call_function", function, lowered, named)

    def expect(self, node: fx.Node, answer: Any, message: str) -> None:
        """An assumption about values, asserted when the graph replays."""
        self.graph.create_node("call_function", expect, (node, answer, message))

    @contextmanager
    def before(self, node: fx.Node | None) -> Iterator[None]:
        """Write in front of a node, with sizes computed anew there."""
        if node is None:
            yield
            return
        lowered, self._lowered = self._lowered, {}
        with self.graph.inserting_before(node):
            yield
        self._lowered = lowered

    def hold(self, relation: Relation) -> None:
        """A condition on sizes under which the graph was traced, asserted when it replays."""
        difference = self.size(relation.difference)
        self.graph.create_node("call_function", hold, (difference, relation.operator, str(relation)))

    def output(self, result: Any) -> fx.Node:
        """The end of the graph."""
        return self.graph.output(self.lower(result))

    # Arguments

    def lower(self, value: Any) -> Any:
        """What stands for `value` in the graph."""
        kind = type(value)
        if kind in LEAVES:
            return value
        if kind is FakeTensor or isinstance(value, torch.Tensor):
            return self.tensor(value)
        if kind in (torch.SymInt, torch.SymFloat, torch.SymBool):
            return self.number(value)
        if kind is tuple or kind is torch.Size:
            return tuple([self.lower(item) for item in value])
        if kind is list:
            return [self.lower(item) for item in value]
        if kind is slice:
            return slice(self.lower(value.start), self.lower(value.stop), self.lower(value.step))
        if kind is dict:
            return {name: self.lower(item) for name, item in value.items()}
        return self._object(value)

    def _object(self, value: Any) -> Any:
        """A structure with tensors inside is made anew from its parts; anything else is kept as it is."""
        kind = type(value)
        if isinstance(value, tuple):
            items = tuple([self.lower(item) for item in value])
            if hasattr(value, "_fields"):
                return self.graph.create_node("call_function", kind, items)
            named = kind.__module__ == "torch.return_types"
            return self.graph.create_node("call_function", kind, (items,)) if named else items
        tensors: list[torch.Tensor] = []
        skeleton = map_tensors(value, lambda tensor: (tensors.append(tensor), Slot(len(tensors) - 1))[1])
        name = f"_object_{len(self.attributes)}"
        self.attributes[name] = skeleton
        kept = self.graph.create_node("get_attr", name)
        if not tensors:
            return kept
        return self.graph.create_node("call_function", refill, (kept, tuple(self.tensor(each) for each in tensors)))

    def tensor(self, tensor: torch.Tensor) -> fx.Node:
        """The node of a tensor that the tracer has met; an element of a tuple gets its `getitem` at first use."""
        known = traced(tensor)
        assert known is not None, "a tensor that no recorded operator made"
        return self.node_of(known)

    def node_of(self, known: Traced) -> fx.Node:
        if known.node is None:  # a parameter, a buffer or a constant: read for the first time
            known.node = self.graph.create_node("get_attr", known.record.path)
            known.node.meta["shapeflow"] = known.record
            known.record.node = known.node
        elif type(known.node) is tuple:
            known.node = self.graph.create_node("call_function", operator.getitem, known.node)
        return known.node

    # Sizes

    def source(self, symbol: Symbol, make: Callable[[], fx.Node]) -> None:
        """Where a symbol's size comes from: an input's axis, or the operator that found it."""
        self._sources.setdefault(symbol, make)

    def axis(self, symbol: Symbol, size: Expr, node: fx.Node, axis: int) -> None:
        """A symbol is read off an input's axis: `T` as it is, `h` of an axis of `2*h + 1` by solving for it."""
        if len(size.symbols) != 1:
            return
        zero, one, two = (size.evaluate({symbol: number}) for number in (0, 1, 2))
        if one == zero or two - one != one - zero:
            return

        def read() -> fx.Node:
            length = self.graph.call_method("size", (node, axis))
            shifted = length if zero == 0 else self.graph.call_function(operator.sub, (length, zero))
            slope = one - zero
            return shifted if slope == 1 else self.graph.call_function(operator.floordiv, (shifted, slope))

        self.source(symbol, read)

    def element(self, expr: Expr, tensor: torch.Tensor, index: tuple[int, ...]) -> None:
        """A fresh dim that is an element of a tensor of whole numbers."""
        (symbol,) = expr.symbols
        node = self.graph.call_function(operator.getitem, (self.tensor(tensor), index))
        self.source(symbol, lambda: self.graph.call_method("item", (node,)))

    def number(self, value: Any) -> Any:
        """A symbolic int, float or bool as a node."""
        node: Any = value.node
        if isinstance(value, torch.SymInt):
            return self.size(node.size)
        return self.real(node.formula) if isinstance(value, torch.SymFloat) else bool(value)

    def size(self, expr: Expr) -> fx.Node | int:
        """Code for an expression, kept in its `meta["size"]`; pinned symbols are the numbers that they stand for."""
        expr = expr.unpinned
        if expr.constant is not None:
            return expr.constant
        known = self._lowered.get(expr)
        if known is None:
            known = self._lowered[expr] = self._sum(expr)
            if isinstance(known, fx.Node):
                known.meta.setdefault("size", expr)
        return known  # type: ignore[return-value]

    def _sum(self, expr: Expr) -> Any:
        total: Any = None
        for monomial, coefficient in sorted(expr.terms, key=lambda term: not term[0]):
            product: Any = None
            for atom, power in monomial:
                for _ in range(power):
                    product = self._binary(operator.mul, product, self._atom(atom))
            if product is None:
                total = self._binary(operator.add, total, coefficient)
            else:
                product = product if coefficient == 1 else self._binary(operator.mul, product, coefficient)
                total = self._binary(operator.add, total, product)
        return total

    def _binary(self, function: Callable[..., Any], left: Any, right: Any) -> Any:
        return right if left is None else self.graph.create_node("call_function", function, (left, right))

    def _atom(self, atom: Atom) -> Any:
        if isinstance(atom, Symbol):
            return self._symbol(atom)
        if isinstance(atom, FloorDiv | Mod):
            operands: tuple[Any, ...] = (self.size(atom.numerator), self.size(atom.denominator))
        else:
            operands = tuple(self.size(arg) for arg in atom.args)
        return self.graph.create_node("call_function", ATOMIC[type(atom)], operands)

    def _symbol(self, symbol: Symbol) -> Any:
        if symbol in self.env.definitions:
            return self.size(self.env.definitions[symbol])
        if symbol in self.env.computed:
            return self.graph.create_node("call_function", int, (self.real(self.env.computed[symbol]),))
        known = self._lowered.get(symbol)
        if known is None:
            make = self._sources.get(symbol) or (lambda: self.graph.call_function(unreadable, (symbol.name,)))
            known = self._lowered[symbol] = make()
        return known

    def real(self, formula: Formula) -> Any:
        """Code for a float made of sizes."""
        known = self._lowered.get(formula)
        if known is None:
            known = self._lowered[formula] = self._formula(formula)
        return known

    def unknown(self, node: fx.Node) -> FloatNode:
        """A float that only values decide: `loss.item()`."""
        formula = Call("value", (str(node),))
        self._lowered[formula] = node
        return FloatNode(self.env, formula, UNKNOWN)

    def _formula(self, formula: Formula) -> Any:
        if isinstance(formula, Ratio):
            return self._binary(operator.truediv, self.size(formula.numerator), self.size(formula.denominator))
        if formula.function == "number":
            return formula.arguments[0]
        arguments = tuple(self.real(argument) for argument in formula.arguments)
        return self.graph.create_node("call_function", FLOAT_OPERATIONS[formula.function], arguments)
