"""The model is left as it was: what a forward may change is noted before and put back after.

>>> with preserved(model):
...     model(fake)          # may set attributes, append to lists, update buffers, draw random numbers
"""

from __future__ import annotations

import random
import sys
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import nn

CONTAINERS = (list, dict, set, deque)
LEAVES = (str, bytes, int, float, complex, type(None), type, torch.Tensor, torch.dtype, torch.device, FunctionType,
          MethodType, ModuleType)  # fmt: skip
"""What holds nothing that a forward could change without our tensors noticing."""
DEEPEST = 6


@contextmanager
def preserved(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Put back attributes, parameters, buffers, hooks, containers, train/eval mode and random state, come what may."""
    notes = Notes()
    for module in modules:
        notes.take(module)
    generators = _random_state()
    grad_enabled = torch.is_grad_enabled()
    try:
        yield
    finally:
        notes.restore()
        _restore_random_state(generators)
        torch.set_grad_enabled(grad_enabled)


class Notes:
    """What modules, containers and plain objects hold, as far as it can be reached from the modules."""

    def __init__(self) -> None:
        self._attributes: dict[int, tuple[Any, dict[str, Any]]] = {}
        self._contents: dict[int, tuple[Any, list[Any]]] = {}

    def take(self, value: Any, depth: int = 0) -> None:
        """Note an object and what it holds."""
        if isinstance(value, LEAVES) or depth > DEEPEST or id(value) in self._attributes or id(value) in self._contents:
            return
        depth = 0 if isinstance(value, nn.Module) else depth
        if isinstance(value, CONTAINERS):
            content = _copy(value)
            self._contents[id(value)] = value, content
            for item in content:
                self.take(item, depth + 1)
        elif isinstance(value, tuple):
            for item in value:
                self.take(item, depth + 1)
        elif (held := getattr(value, "__dict__", None)) is not None:
            self._attributes[id(value)] = value, dict(held)
            for item in list(held.values()):
                self.take(item, depth + 1)

    def restore(self) -> None:
        """Put everything back as it was noted."""
        for value, attributes in self._attributes.values():
            if not _same_attributes(vars(value), attributes):
                vars(value).clear()
                vars(value).update(attributes)
        for container, content in self._contents.values():
            if not _same(_copy(container), content):
                _refill(container, content)


def _copy(container: Any) -> list[Any]:
    return list(container.items()) if isinstance(container, dict) else list(container)


def _same(now: list[Any], before: list[Any]) -> bool:
    return len(now) == len(before) and all(_is(a, b) for a, b in zip(now, before, strict=True))


def _is(a: Any, b: Any) -> bool:
    """The same object, or items of a dict that are the same."""
    return a is b or (type(a) is tuple and type(b) is tuple and len(a) == len(b) and all(map(_identical, a, b)))


def _identical(a: Any, b: Any) -> bool:
    return a is b


def _same_attributes(now: dict[str, Any], before: dict[str, Any]) -> bool:
    return now.keys() == before.keys() and all(now[name] is value for name, value in before.items())


def _refill(container: Any, content: list[Any]) -> None:
    container.clear()
    if isinstance(container, dict):
        kind: Any = OrderedDict if isinstance(container, OrderedDict) else dict  # an OrderedDict keeps its order itself
        for key, value in content:
            kind.__setitem__(container, key, value)
    elif isinstance(container, set):
        container.update(content)
    else:
        container.extend(content)


def _random_state() -> tuple[Any, ...]:
    numpy = sys.modules.get("numpy")
    return random.getstate(), torch.get_rng_state(), numpy.random.get_state() if numpy else None


def _restore_random_state(state: tuple[Any, ...]) -> None:
    python, cpu, numpy_state = state
    random.setstate(python)
    torch.set_rng_state(cpu)
    if numpy_state is not None:
        sys.modules["numpy"].random.set_state(numpy_state)
