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
from typing import Any

import torch
from torch import nn

CONTAINERS = (list, dict, set, OrderedDict, deque)


@contextmanager
def preserved(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Put back attributes, parameters, buffers, hooks, containers, train/eval mode and random state, come what may."""
    notes = [_Note(module) for module in modules]
    generators = _random_state()
    grad_enabled = torch.is_grad_enabled()
    try:
        yield
    finally:
        for note in notes:
            note.restore()
        _restore_random_state(generators)
        torch.set_grad_enabled(grad_enabled)


class _Note:
    """One module's attributes, and the content of those that are containers."""

    __slots__ = ("attributes", "contents", "module")

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.attributes = dict(vars(module))
        self.contents = [(value, _copy(value)) for value in self.attributes.values() if type(value) in CONTAINERS]

    def restore(self) -> None:
        vars(self.module).clear()
        vars(self.module).update(self.attributes)
        for container, content in self.contents:
            if not _same(container, content):
                _refill(container, content)


def _copy(container: Any) -> Any:
    return list(container.items()) if isinstance(container, dict) else list(container)


def _same(container: Any, content: list[Any]) -> bool:
    now = _copy(container)
    if isinstance(container, dict):
        return len(now) == len(content) and all(a is c and b is d for (a, b), (c, d) in zip(now, content, strict=True))
    return len(now) == len(content) and all(a is b for a, b in zip(now, content, strict=True))


def _refill(container: Any, content: list[Any]) -> None:
    container.clear()
    if isinstance(container, (dict, set)):
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
