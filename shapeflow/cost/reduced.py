"""A large model with one of each run of equal layers, to be traced in their stead: 58 equal layers are as good as one.

>>> with reduced(model) as names:
...     trace = sf.trace(model, "B T:int64")
>>> names.original("layers.1.mlp.weight"), names.stand_in("layers.41.mlp.weight")
('layers.3.mlp.weight', 'layers.3.mlp.weight')

Only `nn.ModuleList` and `nn.Sequential` are shortened, and put back behind the block.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import nn

from shapeflow.cost.inventory import joined

POSITIONS = re.compile(r"layer|idx|index|number|depth|block|position", re.IGNORECASE)
"""Attributes that say which of the equal layers one is."""


@dataclass(frozen=True, slots=True)
class Names:
    """`renamed` are the paths of parameters in the shortened model, `replaced` those of the modules that it lacks."""

    renamed: Mapping[str, str]
    replaced: Mapping[str, str]

    def original(self, path: str) -> str:
        """The path in the whole model of a parameter in the shortened one."""
        return self.renamed[path]

    def stand_in(self, path: str) -> str:
        """The path in the whole model of the parameter that was traced in the place of this one."""
        found = ""
        for part in path.split("."):
            found = joined(found, part)
            found = self.replaced.get(found, found)
        return found


@contextmanager
def reduced(model: nn.Module, *, nested: bool) -> Iterator[Names]:
    """The model without repeated layers; with `nested` also those in layers (experts in a list) are left out."""
    paths = {id(parameter): path for path, parameter in model.named_parameters()}
    replaced: dict[str, str] = {}
    kept: list[tuple[nn.Module, dict[str, Any]]] = []
    try:
        _shorten("", model, replaced, kept, nested)
        yield Names({path: paths[id(each)] for path, each in model.named_parameters()}, replaced)
    finally:
        for module, children in kept:
            vars(module)["_modules"] = children


def _shorten(
    path: str, module: nn.Module, replaced: dict[str, str], kept: list[tuple[nn.Module, dict[str, Any]]], nested: bool
) -> None:
    shorter = isinstance(module, nn.ModuleList | nn.Sequential) and _runs(path, module, replaced)
    for name, child in [*module._modules.items()]:
        within = joined(path, name)
        if child is not None and within not in replaced and (nested or not shorter):
            _shorten(within, child, replaced, kept, nested)
    if shorter:
        kept.append((module, module._modules))
        names = [name for name in module._modules if joined(path, name) not in replaced]
        numbered = isinstance(module, nn.ModuleList)
        vars(module)["_modules"] = {
            str(place) if numbered else name: module._modules[name] for place, name in enumerate(names)
        }


def _runs(path: str, module: nn.Module, replaced: dict[str, str]) -> bool:
    """Note which children have an equal one before them."""
    first: dict[Any, str] = {}
    found = False
    for name, child in module._modules.items():
        if child is not None and next(child.parameters(), None) is not None:
            same = first.setdefault(_likeness(child), joined(path, name))
            if same != joined(path, name):
                replaced[joined(path, name)] = same
                found = True
    return found


def _likeness(module: nn.Module) -> Any:
    """Equal for modules of the same classes with parameters of the same shapes and the same numbers in attributes."""
    numbers = tuple(
        (name, value)
        for name, value in vars(module).items()
        if type(value) in (int, bool, float, str) and not POSITIONS.search(name)
    )
    tensors = tuple(
        (name, tuple(tensor.shape))
        for table in (module._parameters, module._buffers)
        for name, tensor in table.items()
        if tensor is not None
    )
    children = tuple((name, _likeness(child)) for name, child in module._modules.items() if child is not None)
    return type(module), numbers, tensors, children
