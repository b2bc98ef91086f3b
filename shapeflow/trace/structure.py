"""Tensors inside other things: tuples, dicts, dataclasses, caches, distributions, any object that holds some.

>>> [str(path) for path, _ in tensors_in(output)]
['logits', 'past_key_values.layers[0].keys', 'past_key_values.layers[0].values']
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch

from shapeflow.torch_private import is_mesh

DEEPEST = 12
OPAQUE = (str, bytes, int, float, complex, bool, type(None), type, Enum, torch.nn.Module, torch.dtype, torch.device,
          torch.Generator, torch.SymInt, torch.SymFloat, torch.SymBool, types.FunctionType, types.BuiltinFunctionType,
          types.MethodType, types.ModuleType)  # fmt: skip
"""What holds no tensor, or is none of our business (a module's parameters are not its output)."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Where the `number`-th tensor of a structure goes."""

    number: int


def tensors_in(value: Any, *, at: type | tuple[type, ...] = torch.Tensor) -> list[tuple[str, Any]]:
    """Each tensor (or instance of `at`) with the way to it (`logits`, `state[0]`), in order."""
    return list(_walk(value, "", set(), 0, at))


def _walk(value: Any, path: str, seen: set[int], depth: int, at: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, at):
        yield path, value
        return
    parts = _parts(value, path)
    if not parts or id(value) in seen or depth > DEEPEST:
        return
    seen.add(id(value))
    for below, part in parts:
        yield from _walk(part, below, seen, depth + 1, at)


def _parts(value: Any, path: str) -> list[tuple[str, Any]]:
    if isinstance(value, OPAQUE) or is_mesh(value):
        return []
    fields = getattr(value, "_fields", None)
    if isinstance(value, tuple) and fields is not None:
        return [(_join(path, name), getattr(value, name)) for name in fields]
    if isinstance(value, list | tuple | set | frozenset):
        return [(f"{path}[{index}]", item) for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        return [(_join(path, str(name)), item) for name, item in value.items()]
    return [(_join(path, name), item) for name, item in attributes(value).items()]


def attributes(value: Any) -> dict[str, Any]:
    """The attributes of an object, in `__dict__` or in slots."""
    found = dict(getattr(value, "__dict__", {}))
    for cls in type(value).__mro__:
        slots = vars(cls).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, name) and not name.startswith("__"):
                found[name] = getattr(value, name)
    return found


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def map_tensors(value: Any, change: Callable[[Any], Any], *, at: type | tuple[type, ...] = torch.Tensor) -> Any:
    """The same structure with `change` applied to every tensor (or every instance of `at`); what holds none is kept."""
    return _map(value, change, at, {}, 0)


def _map(value: Any, change: Callable[[Any], Any], at: Any, done: dict[int, Any], depth: int) -> Any:
    if isinstance(value, at):
        return change(value)
    if isinstance(value, OPAQUE) or is_mesh(value) or depth > DEEPEST:
        return value
    if id(value) in done:
        return done[id(value)]
    done[id(value)] = value

    def inner(item: Any) -> Any:
        return _map(item, change, at, done, depth + 1)

    result = _mapped(value, inner)
    done[id(value)] = result
    return result


def _mapped(value: Any, inner: Callable[[Any], Any]) -> Any:
    if isinstance(value, tuple):
        items = [inner(item) for item in value]
        if _unchanged(value, items):
            return value
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, list):
        items = [inner(item) for item in value]
        return value if _unchanged(value, items) else _copied(value, list.__setitem__, slice(None), items)
    if isinstance(value, dict):
        changed = {name: inner(item) for name, item in value.items()}
        if _unchanged(value.values(), changed.values()):
            return value
        result = copy.copy(value)
        for name, item in changed.items():
            result[name] = item
        return _with_attributes(result, {name: inner(item) for name, item in attributes(value).items()})
    if isinstance(value, set | frozenset):
        return value
    held = attributes(value)
    changed = {name: inner(item) for name, item in held.items()}
    return value if _unchanged(held.values(), changed.values()) else copied_with(value, changed)


def _unchanged(before: Any, after: Any) -> bool:
    return all(a is b for a, b in zip(before, after, strict=True))


def _copied(value: Any, setter: Callable[..., Any], key: Any, items: Any) -> Any:
    result = copy.copy(value)
    setter(result, key, items)
    return result


def copied_with(value: Any, parts: dict[str, Any]) -> Any:
    """A copy of an object with other attributes: frozen dataclasses too."""
    return _with_attributes(copy.copy(value), parts)


def _with_attributes(target: Any, values: dict[str, Any]) -> Any:
    for name, item in values.items():
        if getattr(target, name, None) is not item:
            object.__setattr__(target, name, item)
    return target
