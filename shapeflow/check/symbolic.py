"""A class made of symbols where nobody gave its constructor numbers: `d_model % n_heads == 0` is then a requirement.

>>> symbolic(MultiHeadAttention, {"d_model": 64, "n_heads": 4})
Symbolic(recipe=..., names=('d_model', 'n_heads'), numbers={})

Only where an argument bears the name of a dim: then all widths are symbols, also those that no annotation names.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from shapeflow.check.constructed import annotated_names
from shapeflow.check.sizing import COUNTS
from shapeflow.errors import InputError
from shapeflow.trace.construct import Recipe, construct


@dataclass(frozen=True, slots=True)
class Symbolic:
    """The recipe, the names that may be any size, and the arguments that are numbers all the same."""

    recipe: Recipe
    names: tuple[str, ...]
    numbers: Mapping[str, object]

    def __str__(self) -> str:
        numbers = "".join(f", {name}={value!r}" for name, value in self.numbers.items())
        return f"any {', '.join(self.names)}{numbers}"


def symbolic(kind: type[nn.Module], arguments: Mapping[str, object]) -> Symbolic | None:
    """`kind(**arguments)` with symbols for the sizes among the arguments; None where no name of them is a dim."""
    dims = annotated_names(kind)
    needed = [name for name, value in _flat(arguments).items() if type(value) is int]
    if not any(name in dims for name in needed):
        return None
    names = tuple(name for name in needed if name in dims or not COUNTS.fullmatch(name))
    others = {name: value for name, value in arguments.items() if name not in names}
    try:
        recipe = construct(kind, dict.fromkeys(names), **others).eval()
    except InputError:  # an argument that says it is no integer, such as a rate
        return None
    numbers = {name: value for name, value in _flat(others).items() if name not in names}
    return Symbolic(recipe, names, numbers)


def _flat(arguments: Mapping[str, object]) -> dict[str, object]:
    """The arguments, with those fields of a configuration in its place that have no default."""
    found: dict[str, object] = {}
    for name, value in arguments.items():
        if not dataclasses.is_dataclass(value) or inspect.isclass(value):
            found[name] = value
            continue
        missing = dataclasses.MISSING
        needed = [each for each in dataclasses.fields(value) if each.default is each.default_factory is missing]
        found |= {each.name: getattr(value, each.name) for each in needed}
    return found
