"""Parameters that a model does not register: modules and parameters kept in plain lists, tuples, dicts and sets.

`model.parameters()` does not see them, so no optimiser trains them and no checkpoint holds them, though the forward
may well use them.

>>> [str(each) for each in unregistered(net)]      # self.convs = [nn.Conv2d(3, 3, 3)]
['convs[0]: 84 parameters of Conv2d']
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy

from shapeflow.cost.inventory import joined
from shapeflow.trace.traced import size_key

DEEPEST = 3
"""How many containers may lie within each other: `self.towers["left"][0]`."""
CONTAINERS = frozenset({list, tuple, dict, set, frozenset})


@dataclass(frozen=True, slots=True)
class Unregistered:
    """Where it is kept, what it is, and how many parameters it has."""

    path: str
    kind: str
    parameters: int

    def __str__(self) -> str:
        return f"{self.path}: {self.parameters:,} parameters of {self.kind}"


def unregistered(model: nn.Module) -> tuple[Unregistered, ...]:
    """What is kept out of the model's sight and has parameters that are registered nowhere in it."""
    found: list[Unregistered] = []
    known: set[int] = set()
    for where, kept in _kept(model):
        known = known or {id(parameter) for parameter in model.parameters()}
        parameters = {id(each): each for each in _parameters(kept) if id(each) not in known}
        known |= parameters.keys()
        if parameters:
            found.append(Unregistered(where, type(kept).__name__, _size(parameters)))
    return tuple(found)


def _kept(model: nn.Module) -> Iterator[tuple[str, nn.Module | nn.Parameter]]:
    """Modules and parameters in plain containers of any module, and where."""
    waiting, seen = [("", model)], {id(model)}
    while waiting:
        path, module = waiting.pop()
        for name, value in vars(module).items():
            if type(value) in CONTAINERS and value and not name.startswith("_") and _may_hold(value):
                yield from _within(value, joined(path, name), DEEPEST)
        for name, child in reversed(module._modules.items()):
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                waiting.append((joined(path, name), child))


def _may_hold(value: Any) -> bool:
    """Most containers are strides and names: one look at the first item tells."""
    return isinstance(value, dict) or type(next(iter(value))) not in (int, float, str, bool)


def _within(value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, nn.Module | nn.Parameter):
        yield path, value
    elif type(value) in CONTAINERS and depth:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from _within(item, f"{path}[{key!r}]", depth - 1)


def _parameters(kept: nn.Module | nn.Parameter) -> list[nn.Parameter]:
    return [kept] if isinstance(kept, nn.Parameter) else list(kept.parameters())


def _size(parameters: dict[int, nn.Parameter]) -> int:
    return sum(size_key(each.numel()) for each in parameters.values() if not is_lazy(each))
