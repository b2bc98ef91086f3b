"""Real inputs for a model from specs: sizes for the names, values for the tensors.

>>> example = Example.of(gpt, ("B T:int64",), {})
>>> example.free, example.fixed
(('B', 'T'), {'d_model': 32})
>>> example.inputs({"B": 3, "T": 7})["ids"].shape
torch.Size([3, 7])
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from shapeflow.dims.dim import Dim
from shapeflow.dims.dtype import DEFAULT_DTYPE
from shapeflow.dims.expr import Expr
from shapeflow.dims.spec import TensorSpec
from shapeflow.errors import InputError
from shapeflow.trace.inputs import Bound, bind
from shapeflow.trace.structure import map_tensors, tensors_in

PRIMES = (3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47)
CONFIGS = ("config", "cfg", "args", "hparams")
"""Attributes of modules that hold their settings."""


@dataclass(frozen=True, slots=True)
class Example:
    """The inputs of one model. `fixed` are names that have one size only, `ranges` the bounds of the free ones.

    `high` is the number that random whole numbers stay below. Tensors are made on `device`; those of a spec that names
    no dtype are of `dtype`, the model's own.
    """

    bound: Bound
    fixed: Mapping[str, int]
    ranges: Mapping[str, tuple[int, int | None]]
    high: int
    device: torch.device
    dtype: torch.dtype

    @staticmethod
    def of(
        module: Any,
        inputs: tuple[Any, ...],
        sizes: Mapping[str, int],
        *,
        high: int | None = None,
        named: Mapping[str, Any] | None = None,
    ) -> Example:
        """Match inputs with the model's parameters; names get their sizes from `sizes`, or attributes of modules.

        Raises InputError for inputs that do not fit the signature, and for a size of a name that no input has.
        """
        function = module.forward if isinstance(module, nn.Module) else module
        bound = bind(function, inputs, named or {}, name_of(module))
        specs = [spec for _, spec in tensors_in(bound.arguments, at=TensorSpec)]
        ranges = dict(_ranges(specs))
        for name in sizes:
            if name not in ranges:
                raise InputError(f"no input has an axis {name}; there are: {', '.join(ranges) or 'none with a name'}")
        pinned = dict(_pinned(specs))
        fixed = {name: size for name in ranges if (size := _fixed(module, name, pinned)) is not None} | dict(sizes)
        return Example(bound, fixed, ranges, _high(module) if high is None else high, *_home(module))

    @property
    def free(self) -> tuple[str, ...]:
        """The names that may have any size, in the order of the inputs."""
        return tuple(name for name in self.ranges if name not in self.fixed)

    def sizes(self, start: int = 0) -> dict[str, int]:
        """A prime for each free name, all different, from the `start`-th on, and the fixed sizes."""
        numbers = {name: PRIMES[(start + at) % len(PRIMES)] for at, name in enumerate(self.free)}
        return {**{name: self.within(name, size) for name, size in numbers.items()}, **self.fixed}

    def within(self, name: str, size: int) -> int:
        """A size brought within the bounds of its name."""
        low, high = self.ranges[name]
        size = size if size >= low else low + size
        return size if high is None else min(size, high)

    def inputs(self, sizes: Mapping[str, int], *, seed: int = 0) -> dict[str, Any]:
        """Inputs by parameter name, with random values for what was given as a spec."""
        generator = torch.Generator().manual_seed(seed)

        def made(spec: TensorSpec) -> torch.Tensor:
            dtype = getattr(torch, spec.dtype) if ":" in spec.text or spec.dtype != DEFAULT_DTYPE else self.dtype
            return random_tensor(shape_of(spec, sizes), dtype, self.high, generator).to(self.device)

        return map_tensors(self.bound.arguments, made, at=TensorSpec)

    def call(self, module: Any, inputs: Mapping[str, Any]) -> Any:
        """Run the model on inputs by parameter name."""
        given = [inputs[name] for name in self.bound.positional]
        return module(*given, **{name: inputs[name] for name in self.bound.keyword})


def name_of(module: Any) -> str:
    """What a message calls the model."""
    return getattr(module, "__name__", "") or type(module).__name__


def shape_of(spec: TensorSpec, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of a spec at these sizes; an axis without a name, and those of `*batch`, are 2."""
    return tuple(2 if dim.expr is None else dim.expr.at(**sizes) for dim in spec.dims)


def random_tensor(shape: tuple[int, ...], dtype: torch.dtype, high: int, generator: torch.Generator) -> torch.Tensor:
    """Normal numbers; whole ones from 0 on, below `high`; or truth values."""
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    if not dtype.is_floating_point and not dtype.is_complex:
        return torch.randint(0, max(high, 1), shape, generator=generator).to(dtype)
    return torch.randn(shape, generator=generator).to(dtype)


def _ranges(specs: list[TensorSpec]) -> Iterator[tuple[str, tuple[int, int | None]]]:
    """Every name of the specs with its bounds, the narrowest of all that are given."""
    found: dict[str, tuple[int, int | None]] = {}
    for dim in (dim for spec in specs for dim in spec.dims if dim.expr is not None):
        for symbol in sorted(_expr(dim).symbols, key=str):
            low, high = found.get(symbol.name, (1, None))
            if str(dim.expr) == symbol.name:
                low = max(low, dim.low or low)
                high = dim.high if high is None else min(high, dim.high or high)
            found[symbol.name] = (low, high)
    yield from found.items()


def _pinned(specs: list[TensorSpec]) -> Iterator[tuple[str, int]]:
    for dim in (dim for spec in specs for dim in spec.dims if dim.expr is not None):
        yield from ((symbol.name, symbol.value) for symbol in _expr(dim).symbols if symbol.value is not None)


def _expr(dim: Dim) -> Expr:
    assert dim.expr is not None
    return dim.expr


def _fixed(module: Any, name: str, pinned: Mapping[str, int]) -> int | None:
    """`H=224` of a spec, or the attribute of this name, of the model or of its parts where all agree."""
    return pinned[name] if name in pinned else attribute_of(module, name)


def attribute_of(module: Any, name: str) -> int | None:
    """The whole number that a model, its settings, or modules in it have under a name; None where they differ."""
    if not isinstance(module, nn.Module):
        return None
    own = _numbers(module, name)
    found = own or {number for each in module.modules() for number in _numbers(each, name)}
    return found.pop() if len(found) == 1 else None


def _numbers(module: nn.Module, name: str) -> set[int]:
    holders = [module, *(vars(module).get(each) for each in CONFIGS)]
    found = [each.get(name) if isinstance(each, dict) else getattr(each, name, None) for each in holders]
    return {number for number in found if type(number) is int and number > 0}


def _home(module: Any) -> tuple[torch.device, torch.dtype]:
    """Device and dtype of the model's first parameter of real numbers."""
    parameters = module.parameters() if isinstance(module, nn.Module) else ()
    first = next((each for each in parameters if each.is_floating_point()), torch.empty(0))
    return first.device, first.dtype


def _high(module: Any) -> int:
    """The number of rows of the smallest table of embeddings: indices below it are in all of them."""
    modules = module.modules() if isinstance(module, nn.Module) else ()
    rows = [each.num_embeddings for each in modules if isinstance(each, nn.Embedding | nn.EmbeddingBag)]
    return min(rows, default=2)
