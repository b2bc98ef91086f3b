"""Names for fixed sizes: an annotation at a boundary names the axes that it declares.

`d_model = 32` is fixed, and its name is on the edge all the same, without guessing: a bare 32 becomes `d_model`
only where an annotation says so, or where the code itself used an attribute of that name. Never by value alone.

    >>> names.declare(x, parse_spec("B T d_model"))      # x had sizes B, T, 32
    >>> str(traced(x).signature.shape)
    'B T d_model'
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import nn

from shapeflow.dims.annotation import Each, Specs, signature_of, spec_of, specs_in
from shapeflow.dims.atoms import FloorDiv, Symbol
from shapeflow.dims.dim import Dim
from shapeflow.dims.env import DimEnv
from shapeflow.dims.expr import Expr
from shapeflow.dims.spec import TensorSpec
from shapeflow.errors import InputError, SpecError
from shapeflow.torch_private import DisableTorchFunction, FakeTensor, ShapeMode, is_dtensor, rename_axes
from shapeflow.trace.traced import Signatures, traced

MOST_PARTS = 64
"""Ranks that one axis may be cut among for its parts to be written as exact quotients."""


class Names:
    """Renames axes of fake tensors in place, so that whoever holds the tensor goes on with the names."""

    def __init__(self, env: DimEnv, mode: ShapeMode, signatures: Signatures) -> None:
        self.env, self.mode, self.signatures = env, mode, signatures
        self.values: dict[str, int] = {}
        self.unreadable: dict[str, str] = {}
        self._formulas: dict[str, Expr | None] = {}

    def note_formula(self, name: str, formula: Expr) -> None:
        """An attribute holds a quotient of sizes: `self.d_head = d_model // n_heads`. Two of one name are none."""
        if self._formulas.setdefault(name, formula) is not formula:
            self._formulas[name] = None

    def define_formulas(self) -> dict[Expr, Expr]:
        """Behind a run, each quotient that an attribute holds as a name with a definition, for the reader."""
        taken = {symbol.name for symbol in self.env.hints}
        found: dict[Expr, Expr] = {}
        for name, formula in self._formulas.items():
            if formula is not None and name not in taken and _is_quotient(formula):
                (symbol,) = Expr.symbol(name).symbols
                self.env.hints[symbol] = self.env.hint(formula)
                self.env.definitions[symbol] = formula
                found.setdefault(formula, Expr.symbol(name))
        return found

    def declare(self, tensor: torch.Tensor, spec: TensorSpec) -> None:
        """Give the fixed, still unnamed axes of `tensor` the names that `spec` declares."""
        known = traced(tensor)
        if known is None:
            return
        sizes = known.signature.sizes
        dims = _aligned(spec.dims, len(sizes))
        if dims is None:
            return
        named = tuple(self._named(size, dim) for size, dim in zip(sizes, dims, strict=True))
        if any(new is not old for new, old in zip(named, sizes, strict=True)):
            self._rename(tensor, named)

    def _named(self, size: Any, dim: Dim | None) -> Any:
        value = size if type(size) is int else size.value
        if dim is None or dim.expr is None or value is None or dim.expr.constant is not None:
            return size
        if dim.name is not None and Symbol(dim.name) in self.env.hints:
            return size  # a free name of the run: this axis is of a size of its own, such as 1
        if type(size) is not int and (dim.name is None or _is_symbol(size)):
            return size
        if dim.name is not None:
            self.values.setdefault(dim.name, value)
            return Expr.symbol(dim.name, value)
        known = {
            symbol: Expr.symbol(symbol.name, self.values[symbol.name])
            for symbol in dim.expr.symbols
            if symbol.name in self.values
        }
        formula = dim.expr.replace(known)
        return formula if formula.value == value else size

    def _rename(self, tensor: torch.Tensor, sizes: tuple[Any, ...]) -> None:
        known = traced(tensor)
        assert known is not None
        if type(tensor) is not FakeTensor:  # one that is spread: its sizes are those of its spec
            known.signature = self.signatures.renamed(known.signature, sizes)
        else:
            numbers = [self.env.number(size) if type(size) is Expr else size for size in sizes]
            self.env.quietly(rename_axes, self.mode, tensor, numbers)
            with DisableTorchFunction():
                known.signature = self.signatures.of(tensor)
        if known.record.outputs and known.index < len(known.record.outputs):
            known.record.outputs[known.index] = known.signature

    def declare_all(self, value: Any, specs: Specs | None) -> None:
        """`declare` through tuples, dicts and fields."""
        for _, tensor, spec in tensors_with(value, specs):
            self.declare(tensor, spec)

    def checked(self, tensor: Any, annotation: Any) -> None:
        """jaxtyping is about to check this tensor: the annotation names its axes first."""
        if type(tensor) is FakeTensor or is_dtensor(tensor):
            spec = self._spec(annotation)
            if spec is not None:
                self.declare(tensor, spec)

    def _spec(self, annotation: Any) -> TensorSpec | None:
        try:
            return spec_of(annotation)
        except SpecError as error:
            self.unreadable.setdefault(str(annotation), str(error))
            return None


def tensors_with(value: Any, specs: Specs | None, path: str = "") -> Iterator[tuple[str, torch.Tensor, TensorSpec]]:
    """Each fake tensor of a structure, with the way to it and the spec that belongs to it."""
    if specs is None or value is None:
        return
    if isinstance(specs, TensorSpec):
        if type(value) is FakeTensor:
            yield path, value, specs
    elif isinstance(specs, Each):
        items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
        for index, item in enumerate(items):
            yield from tensors_with(item, specs.item, f"{path}[{index}]")
    elif isinstance(specs, dict):
        for name, inner in specs.items():
            item = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
            yield from tensors_with(item, inner, f"{path}.{name}")
    elif isinstance(value, tuple | list) and len(value) == len(specs):
        for index, (item, inner) in enumerate(zip(value, specs, strict=True)):
            yield from tensors_with(item, inner, f"{path}[{index}]")


class ForwardSpecs:
    """The annotations of a function: one spec (or structure of specs) a parameter, and the result's.

    The first parameter of a `method` is its instance, whatever it is called.
    """

    __slots__ = ("code", "parameters", "positional", "result")

    def __init__(self, function: Any, *, method: bool) -> None:
        signature = signature_of(function)
        parameters = list(signature.parameters.items())[1 if method else 0 :]
        found = {name: specs_in(each.annotation) for name, each in parameters}
        self.positional = list(found)
        self.parameters = {name: spec for name, spec in found.items() if spec is not None}
        self.result = specs_in(signature.return_annotation)
        self.code = getattr(inspect.unwrap(function), "__code__", None)

    def __bool__(self) -> bool:
        return bool(self.parameters) or self.result is not None

    def names(self) -> Iterator[str]:
        """Every dim name in the annotations."""
        for specs in [*self.parameters.values(), self.result]:
            for spec in leaves(specs):
                for dim in spec.dims:
                    if dim.expr is not None:
                        yield from (symbol.name for symbol in dim.expr.symbols)


def leaves(specs: Specs | None) -> Iterator[TensorSpec]:
    """Every tensor spec in a structure."""
    if isinstance(specs, TensorSpec):
        yield specs
    elif isinstance(specs, Each):
        yield from leaves(specs.item)
    elif isinstance(specs, tuple | dict):
        for inner in specs.values() if isinstance(specs, dict) else specs:
            yield from leaves(inner)


@lru_cache(maxsize=4096)
def forward_specs(cls: type[nn.Module]) -> ForwardSpecs | str | None:
    """The annotations of a module class; None when it has none, text when they cannot be read."""
    if cls.__module__.startswith("torch."):
        return None
    try:
        return ForwardSpecs(cls.forward, method=True) or None
    except (SpecError, InputError) as error:
        return str(error)
    except (TypeError, ValueError):  # a forward without a Python signature
        return None


@lru_cache(maxsize=4096)
def dim_names(cls: type[nn.Module]) -> frozenset[str]:
    """Every dim name in the annotations of a class's methods."""
    names: set[str] = set()
    for base in cls.__mro__:
        if base is nn.Module or base.__module__.startswith("torch."):
            continue
        for member in list(vars(base).values()):
            if callable(member) and getattr(member, "__annotations__", None):
                try:
                    names.update(ForwardSpecs(member, method=True).names())
                except (SpecError, InputError, TypeError, ValueError):  # reported where the module runs
                    continue
    return frozenset(names)


def _aligned(dims: tuple[Dim, ...], rank: int) -> list[Dim | None] | None:
    """The dims axis by axis, None for those that `...` or `*name` takes; None when the ranks differ."""
    variadic = next((i for i, dim in enumerate(dims) if dim.variadic), None)
    if variadic is None:
        return list(dims) if len(dims) == rank else None
    extra = rank - (len(dims) - 1)
    return None if extra < 0 else [*dims[:variadic], *[None] * extra, *dims[variadic + 1 :]]


def exact_quotients(env: DimEnv) -> dict[Expr, Expr]:
    """`T//4 - 1` for `(T - 1)//4` and `T` for `4*(T//4)`, where the run asked that 4 divides T.

    Ranks cut an axis by rounding up, and put it together by multiplying.
    """
    found: dict[Expr, Expr] = {}
    for whole, parts in env.facts.divisible:
        found[parts * (whole // parts)] = whole
        for less in range(1, min(parts.constant or 0, MOST_PARTS)):
            rounded = (whole - less) // parts
            for monomial, _ in rounded.terms:
                if len(monomial) == 1 and isinstance(monomial[0][0], FloorDiv):
                    quotient = Expr.from_atom(monomial[0][0])
                    found[quotient] = whole // parts - 1 - (rounded - quotient)
    return found


def _is_quotient(formula: Expr) -> bool:
    (monomial, coefficient), *others = formula.terms or (((), 0),)
    if others or coefficient != 1 or len(monomial) != 1:
        return False
    atom, power = monomial[0]
    return isinstance(atom, FloorDiv) and power == 1


def _is_symbol(size: Any) -> bool:
    symbols = size.symbols
    return len(symbols) == 1 and size is Expr.from_atom(next(iter(symbols)))
