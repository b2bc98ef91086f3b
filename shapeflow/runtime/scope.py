"""Names across the methods of one instance: during one call, a name that two of them use is one size.

A call of the module (`forward`) opens a scope, and so does a method that is called from outside, or again while it
runs. The methods that it calls on the same instance share it, in the same thread.

Two uses are no contradiction. A method that is called twice with different sizes, as `split_heads` for queries and
for keys, leaves its name open. And a method may be called for another of its caller's axes, `split_heads(k)` where the
caller's `S` goes for `T`: the size is that of another name, which the method itself does not use.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shapeflow.runtime.bindings import Found

OPENING = ("forward", "__call__")


@dataclass(slots=True)
class Scope:
    """Who runs, and which sizes each method gave to each name; None where it gave two."""

    active: list[Any] = field(default_factory=list)
    names: dict[str, dict[Any, Found | None]] = field(default_factory=dict)

    def clash(self, method: Any, found: Mapping[str, Found]) -> Clash | None:
        """The first name that another method gave another size."""
        for name, here in found.items():
            for other, there in self.names.get(name, {}).items():
                differs = other is not method and there is not None and there.size != here.size
                if differs and not self._stands_for_another(other, method, here.size):
                    assert there is not None
                    return Clash(name, here, there, other)
        return None

    def add(self, method: Any, found: Mapping[str, Found]) -> None:
        """What a method bound."""
        for name, here in found.items():
            known = self.names.setdefault(name, {})
            before = known.get(method, here)
            known[method] = here if before is not None and before.size == here.size else None

    def _stands_for_another(self, other: Any, method: Any, size: int) -> bool:
        for name, known in self.names.items():
            there = known.get(other)
            if there is not None and there.size == size and name not in method.names:
                return True
        return False


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
