"""Names across the methods of one instance: during one call, a name that two of them use is one size.

A call of the module (`forward`) opens a scope, and so does a method that is called from outside, or again while it
runs. The methods that it calls on the same instance share it, in the same thread.

Two uses are no contradiction. A method that is called twice with different sizes, as `split_heads` for queries and
for keys, leaves its name open. And a method may be called for another of its caller's axes, `split_heads(k)` where the
caller's `S` goes for `T`: the size is that of another name, which the method itself does not use.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from shapeflow.runtime.bindings import Found
from shapeflow.torch_private import skip_frames

OPENING = ("forward", "__call__")


@dataclass(frozen=True, slots=True)
class Opener:
    """Stands for a method without annotations that opens a scope."""

    name: str
    names: tuple[str, ...] = ()


def opening(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with a scope for what it calls on its instance."""
    opener = Opener(function.__name__)

    @functools.wraps(function)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if torch.compiler.is_dynamo_compiling():
            return function(self, *args, **kwargs)
        scope, before = enter(self, opener)
        try:
            return function(self, *args, **kwargs)
        finally:
            leave(self, scope, before)

    skip_frames(wrapper, calls_users=True)
    return wrapper


@dataclass(slots=True)
class Scope:
    """Who runs, and which sizes each method gave to each name; None where it gave two."""

    active: list[Any] = field(default_factory=list)
    names: dict[str, dict[Any, Found | None]] = field(default_factory=dict)

    def agree(self, method: Any, found: Mapping[str, Found]) -> Clash | None:
        """Add what a method bound, or give the first name that another method gave another size."""
        for name, here in found.items():
            known = self.names.setdefault(name, {})
            if known.get(method) is here:
                continue  # the same call as before: whoever came meanwhile was compared with it
            before = known.get(method, here)
            open_name = before is None or before.size != here.size
            for other, there in known.items():
                if other is not method and there is not None and there.size != here.size:
                    if not self._stands_for_another(method, here.size):
                        return Clash(name, here, there, other)
                    open_name = True
            known[method] = None if open_name else here
        return None

    def _stands_for_another(self, method: Any, size: int) -> bool:
        """Whether a size is one that this call has under a name which the method itself does not use."""
        return any(
            there is not None and there.size == size
            for name, known in self.names.items()
            if name not in method.names
            for there in known.values()
        )


@dataclass(frozen=True, slots=True)
class Clash:
    """A name that two methods of one instance gave different sizes in one call."""

    name: str
    here: Found
    there: Found
    other: Any


class _Running(threading.local):
    def __init__(self) -> None:
        self.scopes: dict[int, Scope] = {}


_running = _Running()


def enter(instance: Any, method: Any) -> tuple[Scope, Scope | None]:
    """The scope of a method that begins, and the one that it puts aside: give both to `leave`."""
    scopes = _running.scopes
    before = scopes.get(id(instance))
    scope = before
    if scope is None or method.name in OPENING or method in scope.active:
        scope = scopes[id(instance)] = Scope()
    scope.active.append(method)
    return scope, before


def leave(instance: Any, scope: Scope, before: Scope | None) -> None:
    """The method ends, whether it returned or raised."""
    scope.active.pop()
    if before is None:
        del _running.scopes[id(instance)]
    else:
        _running.scopes[id(instance)] = before
