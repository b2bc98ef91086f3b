"""The dims that annotations bound before the error: which name has which size, and from which tensor.

>>> bound = Bound()
>>> bound.take(Attention.forward, {"x": x})
>>> bound.sizes["T"], bound.dims(x)
(Size(33, 'axis 1 of x'), (B, T, 16))
"""

from __future__ import annotations

import dis
import gc
import inspect
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from shapeflow.dims.annotation import Each, Fields, signature_of, specs_in
from shapeflow.dims.atoms import Symbol
from shapeflow.dims.dim import Dim
from shapeflow.dims.expr import Expr
from shapeflow.dims.spec import TensorSpec
from shapeflow.errors import ShapeflowError
from shapeflow.runtime.attributes import sizes_of
from shapeflow.runtime.explain.stack import Step
from shapeflow.runtime.explain.tensor import is_tensor

Dims = tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Size:
    """What a name stands for, and the axis that said so: `axis 1 of x`."""

    size: int
    origin: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """An axis that is not what its annotation says. `axis` is None where their number differs."""

    text: str
    spec: TensorSpec
    shape: tuple[int, ...]
    axis: int | None
    reason: str

    @property
    def where(self) -> str:
        return self.text if self.axis is None else f"axis {self.axis} of {self.text}"


class Bound:
    """Names of axes of one function's arguments, and the tensors that bear them."""

    def __init__(self) -> None:
        self.sizes: dict[str, Size] = {}
        self.conflicts: list[Conflict] = []
        self.values: Mapping[str, Any] = {}
        self.tensors: dict[str, torch.Tensor] = {}
        self._dims: dict[int, Dims] = {}
        self._owner: Any = None

    def take(self, function: Any, values: Mapping[str, Any], *, result: str = "", owner: Any = None) -> None:
        """Bind the names of all annotated parameters, in order; `result` is the name of a value that was returned.

        What jaxtyping would refuse is kept as a conflict. Annotations that cannot be read bind nothing. Whole numbers
        among the attributes of `owner` are sizes of their names, as `sf.enforce` takes them.
        """
        self.values, self._owner = values, owner
        try:
            signature = signature_of(function)
            annotations = {name: each.annotation for name, each in signature.parameters.items()}
            if result:
                annotations[result] = signature.return_annotation
            for name, annotation in annotations.items():
                for text, spec, value in _paired(name, specs_in(annotation), values.get(name)):
                    self._bind(text, spec, value)
        except (ShapeflowError, TypeError, ValueError):
            return

    def dims(self, tensor: torch.Tensor) -> Dims | None:
        """The axes of a tensor that an annotation named, each with the value that its name has."""
        return self._dims.get(id(tensor))

    def _bind(self, text: str, spec: TensorSpec, tensor: torch.Tensor) -> None:
        shape = tuple(tensor.shape)
        axes = _axes(spec, len(shape))
        if axes is None:
            self._refuse(text, spec, shape, None, f"has {_count(len(shape))}, the annotation says {_axes_asked(spec)}")
            return
        dims = []
        for axis, (dim, size) in enumerate(zip(axes, shape, strict=True)):
            reason = self._fault(dim, size, f"axis {axis} of {text}") if dim is not None else ""
            if reason:
                self._refuse(text, spec, shape, axis, reason)
            dims.append(_expr(dim, size, self.sizes))
        self._dims[id(tensor)] = tuple(dims)
        self.tensors[text] = tensor

    def _fault(self, dim: Dim, size: int, origin: str) -> str:
        """Why this size cannot be; "" where it can, and its name is bound from then on."""
        if dim.expr is None or (dim.broadcast and size == 1):
            return ""
        symbol = _symbol(dim)
        if symbol is not None and symbol.value is None:
            known = self.sizes.setdefault(symbol.name, self._attribute(symbol.name) or Size(size, origin))
            return "" if known.size == size else f"is {size}, {symbol.name} = {known.size} from {known.origin}"
        wanted = _value(dim.expr, self.sizes)
        if wanted is None or wanted == size:
            return ""
        return f"is {size}, the annotation says {dim}" + ("" if dim.expr.constant is not None else f" = {wanted}")

    def _attribute(self, name: str) -> Size | None:
        found = sizes_of(self._owner, (name,), "forward").get(name) if self._owner is not None else None
        return None if found is None else Size(found.size, found.where.replace(" this ", " "))

    def _refuse(self, text: str, spec: TensorSpec, shape: tuple[int, ...], axis: int | None, reason: str) -> None:
        self.conflicts.append(Conflict(text, spec, shape, axis, reason))


def bound_in(step: Step, function: Any, before: Sequence[Step] = ()) -> Bound:
    """What the annotations of a frame's function say of the arguments that it was called with.

    The steps before hold them as they came. A parameter that the function may have assigned anew is else not read.
    """
    bound, code = Bound(), step.code
    given = _given(step, function, before)
    if given is None:
        count = code.co_argcount + code.co_kwonlyargcount
        local, assigned = step.frame.f_locals, _assigned(code)
        given = {name: local[name] for name in code.co_varnames[:count] if name in local and name not in assigned}
    bound.take(function, given)
    return bound


def _given(step: Step, function: Any, before: Sequence[Step]) -> Mapping[str, Any] | None:
    """The arguments of a method of a module, from the frame that called it: torch's, or that of a check."""
    for each in reversed(before):
        args = each.frame.f_locals.get("args")
        if each.user or step.module is None:
            return None
        if not isinstance(args, tuple) or each.code.co_varnames[:1] not in (("self",), ("args",)):
            continue
        first = () if args and args[0] is step.module else (step.module,)
        try:
            given = inspect.signature(function).bind(*first, *args, **each.frame.f_locals.get("kwargs", {}))
        except TypeError:
            return None
        given.apply_defaults()
        return given.arguments
    return None


@lru_cache(maxsize=256)
def _assigned(code: types.CodeType) -> frozenset[str]:
    """The local names that a function assigns itself."""
    return frozenset(each.argval for each in dis.get_instructions(code) if each.opname in ("STORE_FAST", "STORE_DEREF"))


def functions_of(steps: Sequence[Step]) -> dict[types.CodeType, Any]:
    """The functions whose code these frames run."""
    wanted = {step.code for step in steps}
    holders = gc.get_referrers(*wanted) if wanted else []
    return {each.__code__: each for each in holders if isinstance(each, types.FunctionType)}


def _paired(text: str, spec: Any, value: Any) -> Iterator[tuple[str, TensorSpec, torch.Tensor]]:
    """Each tensor of a value with its spec and how it is reached: `batch.ids`, `states[1]`."""
    if isinstance(spec, TensorSpec):
        if is_tensor(value):
            yield text, spec, value
    elif isinstance(spec, Fields):
        for name, inner in spec.items():
            held = isinstance(value, dict)
            yield from _paired(
                f"{text}[{name!r}]" if held else f"{text}.{name}",
                inner,
                value.get(name) if isinstance(value, dict) else inspect.getattr_static(value, name, None),
            )
    elif isinstance(spec, Each) and isinstance(value, list | tuple | dict):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _paired(f"{text}[{key!r}]", spec.item, item)
    elif isinstance(spec, tuple) and isinstance(value, tuple | list):
        for at, (inner, item) in enumerate(zip(spec, value, strict=False)):
            yield from _paired(f"{text}[{at}]", inner, item)


def _axes(spec: TensorSpec, count: int) -> list[Dim | None] | None:
    """A dim for each axis, None below `*batch`; None where their number does not fit."""
    variadic = next((at for at, dim in enumerate(spec.dims) if dim.variadic), None)
    if variadic is None:
        return list(spec.dims) if len(spec.dims) == count else None
    free = count - (len(spec.dims) - 1)
    return None if free < 0 else [*spec.dims[:variadic], *[None] * free, *spec.dims[variadic + 1 :]]


def _symbol(dim: Dim) -> Symbol | None:
    """The one name that an axis consists of."""
    if dim.expr is None or len(dim.expr.symbols) != 1:
        return None
    (symbol,) = dim.expr.symbols
    return symbol if str(dim.expr) == symbol.name else None


def _expr(dim: Dim | None, size: int, sizes: Mapping[str, Size]) -> Expr:
    """The axis as a name that is worth its size; a number where it has none, or where the name is worth another."""
    if dim is None or dim.expr is None or dim.expr.constant is not None:
        return Expr.const(size)
    known = {each.name: sizes[each.name].size for each in dim.expr.symbols if each.name in sizes}
    pins = {each: Expr.symbol(each.name, known.get(each.name, each.value)) for each in dim.expr.symbols}
    expr = dim.expr.replace(pins)
    return expr if expr.value == size else Expr.const(size)


def _value(expr: Expr, sizes: Mapping[str, Size]) -> int | None:
    known = {
        each: Expr.const(sizes[each.name].size) for each in expr.symbols if each.value is None and each.name in sizes
    }
    return expr.replace(known).value


def _count(axes: int) -> str:
    return f"{axes} axis" if axes == 1 else f"{axes} axes"


def _axes_asked(spec: TensorSpec) -> str:
    variadic = any(dim.variadic for dim in spec.dims)
    return f"{len(spec.dims) - variadic}{' or more' if variadic else ''}: {' '.join(map(str, spec.dims))}"
