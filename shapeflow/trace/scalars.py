"""Whole numbers in 0-d tensors: `torch.div(x.shape[1], 8, rounding_mode="floor")`, or a corner of a box, `box[2]`.

A fake tensor has no value, but one that is made of sizes is known all the same; one read off a tensor of whole
numbers is a fresh dim, the same each time the same element is read. So either can be a size or a bound of a slice.

    >>> str(scalars.value(torch.div(T, 8, rounding_mode="floor")).node.size)
    'T//8'
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from shapeflow.dims.expr import Expr
from shapeflow.trace.rules import FreshSizes
from shapeflow.trace.traced import traced

KEEPS = frozenset({"clone", "detach", "to", "long", "int", "item", "type", "squeeze", "reshape", "view", "abs", "cpu"})
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floor_divide": operator.floordiv,
    "floordiv": operator.floordiv,
    "remainder": operator.mod,
    "rsub": lambda a, b: b - a,
    "maximum": torch.sym_max,
    "minimum": torch.sym_min,
}
COMPARISONS = {name: getattr(operator, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")}
NUMBERS = (int, torch.SymInt)
WHOLE = frozenset({torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8})


@dataclass(frozen=True, slots=True)
class Origin:
    """How a 0-d tensor came about; its value is worked out only when somebody asks."""

    operator: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(slots=True)
class Scalars:
    """Values of 0-d tensors, and the fresh dims that stand for elements of tensors.

    `read` tells the writer of the graph where a fresh dim is read off when the graph replays.
    """

    sizes: FreshSizes
    read: Callable[[Expr, torch.Tensor, tuple[int, ...]], None] = lambda *_: None
    elements: dict[tuple[Any, Any], Any] = field(default_factory=dict)

    def value(self, tensor: torch.Tensor) -> Any:
        """The whole number in a tensor, where it follows from sizes and elements; else None."""
        note = traced(tensor)
        if note is None or tensor.dtype not in WHOLE:
            return None
        if note.value is None and note.origin is not None:
            note.value = self._made(note.origin)
        return note.value

    def truth(self, tensor: torch.Tensor) -> Any:
        """The answer of a comparison of two such numbers, else None."""
        note = traced(tensor)
        if note is None or note.origin is None or note.origin.operator not in COMPARISONS:
            return None
        values = [self._operand(arg) for arg in note.origin.args[:2]]
        return None if None in values else COMPARISONS[note.origin.operator](*values)

    def _made(self, origin: Origin) -> Any:
        name, args = origin.operator, origin.args
        if name in ("tensor", "scalar_tensor", "as_tensor"):
            return args[0] if args and type(args[0]) in NUMBERS else None
        if name in ("getitem", "select"):
            return self._element(args[0], args[1:])
        values = [self._operand(arg) for arg in args[:2]]
        if not values or values[0] is None:
            return None
        if name in KEEPS:
            return values[0]
        if len(values) < 2 or values[1] is None:
            return None
        if name == "div" and origin.kwargs.get("rounding_mode") in ("floor", "trunc"):
            return values[0] // values[1]
        return ARITHMETIC[name](*values) if name in ARITHMETIC else None

    def _operand(self, argument: Any) -> Any:
        if type(argument) in NUMBERS:
            return argument
        return self.value(argument) if isinstance(argument, torch.Tensor) else None

    def _element(self, tensor: Any, index: tuple[Any, ...]) -> Any:
        """The element at a constant index: a fresh dim, larger for a later one, as with the corners of a box."""
        note = traced(tensor) if isinstance(tensor, torch.Tensor) else None
        if note is None or not all(type(part) is int for part in index):
            return None
        if index == (0,) and (packed := vars(tensor).get("_packed")) is not None:
            return packed[0]  # the first of a packed sequence's batch sizes is the batch
        key = (note, index)
        if key not in self.elements:
            expr = self.sizes.place("element", tensor, hint=1 + max(index[-1], 0))
            self.elements[key] = self.sizes.env.symint(expr)
            self.read(expr, tensor, index)
        return self.elements[key]
