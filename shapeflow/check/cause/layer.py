"""A layer that is under suspicion: its name, the line that built it, and its constructor's call with other arguments.

>>> layer = layer_of(call, nn.Linear)
>>> str(layer), layer.written(in_features="490")
("Linear 'head'", 'nn.Linear(490, 5)')
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from shapeflow.check.cause.call import Call, submodule
from shapeflow.check.cause.constructor import constructor_line, written_call
from shapeflow.check.cause.result import Repair
from shapeflow.check.cause.written import constructor
from shapeflow.trace.result import Location


@dataclass(frozen=True, slots=True)
class Layer:
    """A module of `root` at `path`."""

    root: nn.Module
    path: str
    module: nn.Module

    def __str__(self) -> str:
        return f"{self.kind} '{self.path}'" if self.path else self.kind

    @property
    def kind(self) -> str:
        return type(self.module).__name__

    @property
    def location(self) -> Location | None:
        """The line that built it."""
        return constructor_line(self.root, self.path)

    def written(self, **changes: str) -> str:
        """Its constructor's call, as the source has it but for `changes`."""
        call = written_call(self.root, self.path)
        if call is None or (call.open and any(call.argument(name) is None for name in changes)):
            return _spelt(self.module, changes)
        return call.changed(**changes)

    def repair(self, message: str = "", text: dict[str, str] | None = None, /, **changes: Any) -> Repair:
        """The layer with other arguments; `text` is how they are written, where not as plain values.

        The repair of one layer; `dataclasses.replace(..., also=...)` adds those with the same fault.
        """
        shown = {name: _short(value) for name, value in changes.items()} | (text or {})
        return Repair(self.root, self.path, tuple(changes.items()), self.written(**shown), message, self.location)

    def attribute(self, name: str) -> Any:
        """An argument as the layer keeps it; a size that the model was built with symbolically is an expression."""
        value: Any = getattr(self.module, name, None)
        if type(value) is not torch.SymInt:
            return value
        node: Any = value.node
        return node.size


def layer_of(call: Call, *kinds: type[nn.Module]) -> Layer | None:
    """The layer of one of these classes that the call belongs to: it ran there, or reads its weight."""
    if call.root is None:
        return None
    if isinstance(call.module, kinds):
        return Layer(call.root, call.path, call.module)
    weight = call.tensor("weight")
    return None if weight is None else layer_at(call.root, weight.path.rpartition(".")[0], *kinds)


def layer_at(root: nn.Module | None, path: str, *kinds: type[nn.Module]) -> Layer | None:
    """The layer at this path, where it is of one of these classes."""
    module = submodule(root, path)
    return Layer(root, path, module) if root is not None and isinstance(module, kinds) else None


def _spelt(module: nn.Module, changes: dict[str, str]) -> str:
    """A call made up from the layer's attributes: what has to be given, and what is not as usual."""
    shown = []
    for name, parameter in constructor(type(module)).items():
        if name in ("device", "dtype", "mode"):
            continue
        value = getattr(module, name, parameter.default)
        if name in ("bias", "weight"):
            value = value is not None
        required = parameter.default is parameter.empty
        text = changes.get(name, _short(value))
        if required and parameter.kind is not parameter.VAR_KEYWORD:
            shown.append(text)
        elif name in changes or _differs(value, parameter.default):
            shown.append(f"{name}={text}")
    torchs = type(module).__module__.startswith("torch.")
    return f"{'nn.' if torchs else ''}{type(module).__name__}({', '.join(shown)})"


def _differs(value: Any, default: Any) -> bool:
    plain = isinstance(value, int | float | str | tuple | bool) and value is not default
    return plain and _short(value) != _short(default)


def _short(value: Any) -> str:
    """`3` for `(3, 3)`, the way people write it."""
    if isinstance(value, tuple | list) and value and len(set(value)) == 1:
        return str(value[0])
    return repr(value) if isinstance(value, str) else str(value)
