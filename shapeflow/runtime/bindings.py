"""What the names of a call are bound to, and where: the words of an error, beside jaxtyping's record of sizes.

>>> names = Bindings({"d_model": Found(32, "an attribute of this Block")})
>>> names.misfit(Float[Tensor, "B T d_model"], (2, 5, 33), "x")
'axis 2 is 33, and d_model is 32 (an attribute of this Block)'
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from shapeflow.dims.annotation import spec_of
from shapeflow.dims.dim import Dim
from shapeflow.dims.expr import Expr
from shapeflow.dims.spec import TensorSpec
from shapeflow.errors import SpecError

_NAME = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True, slots=True)
class Found:
    """A size and the place that gave it: `axis 1 of x`."""

    size: Any
    where: str


class Bindings:
    """The names bound so far in one call, in order."""

    __slots__ = ("groups", "names")

    def __init__(self, names: Mapping[str, Found] | None = None) -> None:
        self.names: dict[str, Found] = dict(names or {})
        self.groups: dict[str, tuple[tuple[Any, ...], str]] = {}

    def bind(self, annotation: Any, shape: Sequence[Any], what: str) -> None:
        """Remember which axes of a value that fits bound which names."""
        spec = readable_spec(annotation)
        for axis, dim in [] if spec is None else list(_aligned(spec, len(shape))):
            if isinstance(axis, slice):
                if dim.name is not None and dim.name not in self.groups:
                    self.groups[dim.name] = tuple(shape[axis]), f"the axes {_axes(axis)} of {what}"
            elif _is_name(dim) and not (dim.broadcast and shape[axis] == 1):
                assert dim.name is not None
                self.names.setdefault(dim.name, Found(shape[axis], f"axis {axis} of {what}"))

    def misfit(self, annotation: Any, shape: Sequence[Any], what: str) -> str:
        """The first axis that disagrees, or "" where none is found: the spec may be one that only jaxtyping reads."""
        spec = readable_spec(annotation)
        if spec is None:
            return ""
        variadic = any(dim.variadic for dim in spec.dims)
        least = len(spec.dims) - variadic
        if len(shape) < least or (len(shape) > least and not variadic):
            return f"it has {_count(len(shape), 'axis', 'axes')}, not {least}{' or more' if variadic else ''}"
        local = Bindings(self.names)
        local.groups.update(self.groups)
        for axis, dim in _aligned(spec, len(shape)):
            said = local._group(dim, shape[axis]) if isinstance(axis, slice) else local._axis(dim, axis, shape[axis])
            if said:
                return said
            one = Bindings() if isinstance(axis, slice) else local
            if one is local and _is_name(dim) and not (dim.broadcast and shape[axis] == 1):
                assert dim.name is not None
                local.names.setdefault(dim.name, Found(shape[axis], f"axis {axis} of {what}"))
        return ""

    def _axis(self, dim: Dim, axis: int, size: Any) -> str:
        if dim.expr is None or (dim.broadcast and size == 1):
            return ""
        if _is_name(dim):
            assert dim.name is not None
            known = self.names.get(dim.name)
            same = known is None or known.size == size
            return "" if same else f"axis {axis} is {size}, and {dim.name} is {known.size} ({known.where})"  # type: ignore[union-attr]
        sizes = {symbol.name: self.names.get(symbol.name) for symbol in dim.expr.symbols if symbol.value is None}
        if any(each is None for each in sizes.values()):
            return ""
        expected = dim.expr.at(**{name: each.size for name, each in sizes.items() if each is not None})
        if expected == size:
            return ""
        means = "" if dim.expr.value is not None else f" = {expected}"
        places = ", ".join(f"{name} = {each.size}: {each.where}" for name, each in sizes.items() if each is not None)
        return f"axis {axis} is {size}, not {dim}{means}" + (f" ({places})" if places else "")

    def _group(self, dim: Dim, sizes: Sequence[Any]) -> str:
        known = None if dim.name is None else self.groups.get(dim.name)
        if known is None or dim.broadcast or tuple(sizes) == known[0]:
            return ""
        return f"*{dim.name} is {shape_text(sizes)}, and {shape_text(known[0])} before ({known[1]})"

    def __str__(self) -> str:
        groups = [f"*{name}={shape_text(sizes)} ({where})" for name, (sizes, where) in self.groups.items()]
        return ", ".join([*(f"{name}={each.size} ({each.where})" for name, each in self.names.items()), *groups])


@lru_cache(maxsize=4096)
def readable_spec(annotation: Any) -> TensorSpec | None:
    """The spec of an array type; None for one that only jaxtyping reads (`"{n} d"` reads a value)."""
    try:
        return spec_of(annotation)
    except SpecError:
        return None


def names_in(annotation: Any) -> set[str]:
    """The names of single axes that an array type reads or binds."""
    words = (word.rpartition("=")[2] for word in re.sub(r"\{[^{}]*\}", "", annotation.dim_str).split())
    return {
        name for word in words if not word.lstrip("#?").startswith(("*", "_", "...")) for name in _NAME.findall(word)
    }


def shape_text(shape: Sequence[Any]) -> str:
    """`2 5 32`, as in a spec."""
    return " ".join(map(str, shape)) or "a scalar"


def _is_name(dim: Dim) -> bool:
    return not dim.variadic and dim.name is not None and dim.expr is Expr.symbol(dim.name)


def _aligned(spec: TensorSpec, rank: int) -> Iterator[tuple[int | slice, Dim]]:
    """Each dim with its axis; the variadic one with a slice of axes."""
    extra = rank - (len(spec.dims) - 1)
    axis = 0
    for dim in spec.dims:
        if dim.variadic:
            yield slice(axis, axis + extra), dim
            axis += extra
        else:
            yield axis, dim
            axis += 1


def _axes(axes: slice) -> str:
    return f"{axes.start} to {axes.stop - 1}" if axes.stop - axes.start > 1 else str(axes.start)


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
