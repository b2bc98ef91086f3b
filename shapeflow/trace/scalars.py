"""Whole numbers in 0-d tensors that are made of sizes: `torch.div(x.shape[1], 8, rounding_mode="floor")`.

A fake tensor has no value, but such a one is known all the same, so that it can be a size again.

    >>> value = scalar_value("div", (T, 8), {"rounding_mode": "floor"})
    >>> str(value.node.size)
    'T//8'
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from shapeflow.trace.traced import traced

KEEPS = frozenset({"clone", "detach", "to", "long", "int", "item", "type", "squeeze", "reshape", "view", "abs", "cpu"})
BINARY: dict[str, Callable[[Any, Any], Any]] = {
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
NUMBERS = (int, torch.SymInt)


def scalar_value(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The integer that a 0-d result holds, when it follows from sizes and numbers; else None."""
    if name in ("tensor", "scalar_tensor", "as_tensor"):
        return args[0] if args and type(args[0]) in NUMBERS else None
    values = [_value(arg) for arg in args[:2]]
    if not values or values[0] is None:
        return None
    if name in KEEPS:
        return values[0]
    if len(values) < 2 or values[1] is None:
        return None
    if name == "div" and kwargs.get("rounding_mode") in ("floor", "trunc"):
        return values[0] // values[1]
    return BINARY[name](*values) if name in BINARY else None


def _value(argument: Any) -> Any:
    if type(argument) in NUMBERS:
        return argument
    known = traced(argument) if isinstance(argument, torch.Tensor) else None
    return known.value if known is not None else None
