"""The integer attributes of an instance that bear the name of a dim: `self.d_model` says what `d_model` is.

Where it has none, its settings say it: `self.config.d_model`, or `self.cfg["d_model"]`.

An attribute that the call itself assigns (`self.T = x.shape[1]`) is what the last call left, and says nothing.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, lru_cache
from types import CodeType, FunctionType
from typing import Any

from shapeflow.runtime.bindings import Found

CONFIGS = ("config", "cfg")
"""Attributes that hold settings; the first that is there counts."""


def sizes_of(instance: Any, names: Iterable[str], method: str) -> dict[str, Found]:
    """The sizes that an instance gives to names; those that `method` or `forward` assign are left out."""
    own = getattr(instance, "__dict__", {})
    assigned = assigned_by(type(instance), method)
    owner = type(instance).__qualname__.rpartition("<locals>.")[2]
    found: dict[str, Found] = {}
    for name in names:
        if name in assigned:
            continue
        value = own[name] if name in own else _of_class(instance, name)
        if type(value) is int:
            found[name] = Found(value, f"an attribute of this {owner}")
        elif value is None and (held := next((each for each in CONFIGS if own.get(each) is not None), "")):
            (size,) = settings(own[held], (name,))
            if size is not None:
                found[name] = Found(size, f"{held}.{name} of this {owner}")
    return found


def settings(holder: Any, names: Iterable[str]) -> tuple[int | None, ...]:
    """The whole numbers that an object of settings, or a dictionary, has under these names."""
    values = (holder.get(name) if isinstance(holder, dict) else getattr(holder, name, None) for name in names)
    return tuple([value if type(value) is int else None for value in values])


def is_in_key(instance: Any, name: str) -> bool:
    """Whether the key of a call reads this size: it is the instance's own, or of its settings, and not of its class."""
    return name in getattr(instance, "__dict__", {}) or not hasattr(type(instance), name)


def _of_class(instance: Any, name: str) -> Any:
    """A constant of the class, a slot, or a property; `nn.Module.__getattr__` is not asked for what is missing."""
    value = inspect.getattr_static(type(instance), name, None)
    if type(value) is int:
        return value
    if isinstance(value, property | cached_property) or inspect.ismemberdescriptor(value):
        try:
            return getattr(instance, name)
        except AttributeError:  # not there yet: `__init__` is still running
            return None
    return None


@lru_cache(maxsize=4096)
def assigned_by(cls: type, method: str) -> frozenset[str]:
    """Attributes that a call assigns: in the method, in `forward`, or in a method of the class that they mention."""
    methods = _methods(cls)
    found: set[str] = set()
    reached: set[str] = set()
    waiting = [name for name in (method, "forward", "__call__") if name in methods]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            for code in _codes(methods[name].__code__):
                found |= _stored(code)
                waiting += [each for each in code.co_names if each in methods]
    return frozenset() if method == "__init__" else frozenset(found)


def _methods(cls: type) -> dict[str, FunctionType]:
    """The functions of the user's classes, each below what wraps it."""
    found: dict[str, FunctionType] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.partition(".")[0] not in ("torch", "builtins"):
            for name, value in vars(base).items():
                function = _function(value)
                if function is not None and name != "__init__":
                    found[name] = function
    return found


def _function(value: Any) -> FunctionType | None:
    value = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    inner: Callable[..., Any] = inspect.unwrap(value) if callable(value) else value
    return inner if isinstance(inner, FunctionType) else None


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _stored(code: CodeType) -> set[str]:
    return {step.argval for step in dis.get_instructions(code) if step.opname == "STORE_ATTR"}
