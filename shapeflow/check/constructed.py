"""The sizes that modules were made with: `d_model` of a module's annotation means the argument of its constructor.

>>> with remembered_sizes():
...     block = Block(64, 4)                 # def __init__(self, d_model, n_heads): keeps neither
>>> block.d_model
64

A finished module has lost what it was made with, so this looks on: `nn.Module.__init__` is called by the constructor,
whose arguments are the names of its frame. Fields of a configuration count as arguments.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Any

from torch import nn

from shapeflow.dims.annotation import signature_of, specs_in
from shapeflow.dims.spec import TensorSpec
from shapeflow.errors import InputError, SpecError
from shapeflow.trace.structure import tensors_in

MOST_FRAMES = 12
"""Constructors of base classes, and wrappers that check types, between a class' own and that of `nn.Module`."""


@contextmanager
def remembered_sizes() -> Iterator[None]:
    """Modules made in the block get an attribute for each size that their annotations name and nothing else holds."""
    made: list[tuple[nn.Module, dict[str, int]]] = []
    before = nn.Module.__init__

    def looking_on(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        before(self, *args, **kwargs)
        names = annotated_names(type(self))
        if names:
            found = _arguments(self, sys._getframe(1))
            made.append((self, {name: size for name, size in found.items() if name in names}))

    nn.Module.__init__ = looking_on  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module.__init__ = before  # type: ignore[method-assign]
        for module, sizes in made:
            for name, size in sizes.items():
                if not hasattr(module, name):
                    setattr(module, name, size)


def _arguments(module: nn.Module, frame: FrameType | None) -> dict[str, int]:
    """The integers that the constructors of a module were called with; those of the outermost one count."""
    found: dict[str, int] = {}
    for _ in range(MOST_FRAMES):
        if frame is None:
            break
        code = frame.f_code
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if code.co_name == "__init__" and names and frame.f_locals.get(names[0]) is module:
            for name in names[1:]:
                found |= _sizes(name, frame.f_locals.get(name))
        frame = frame.f_back
    return found


def _sizes(name: str, value: object) -> dict[str, int]:
    """An argument as sizes by name: itself, or the fields of a configuration."""
    given: dict[str, object] = {name: value}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        given = {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    return {each: size for each, size in given.items() if isinstance(size, int) and not isinstance(size, bool)}


@cache
def annotated_names(kind: type[nn.Module]) -> frozenset[str]:
    """The names of axes in the annotations of a class' `forward`."""
    try:
        signature = signature_of(kind.forward)
        annotations = [each.annotation for each in signature.parameters.values()]
        specs = [specs_in(annotation) for annotation in [*annotations, signature.return_annotation]]
    except (InputError, SpecError, TypeError, ValueError):  # the check will tell what is wrong with it
        return frozenset()
    found = (spec for each in specs for _, spec in tensors_in(each, at=TensorSpec))
    dims = (dim.expr for spec in found for dim in spec.dims if dim.expr is not None)
    return frozenset(symbol.name for expr in dims for symbol in expr.symbols)
