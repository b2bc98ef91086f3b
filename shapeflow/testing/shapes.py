"""`assert_shapes`: a model gives the shapes that a line of text says, at several sizes.

>>> assert_shapes(gpt, "B T:int64 -> B T vocab")
>>> assert_shapes(attention, "B T d, B S d -> B T d, B n_heads T S", d=16)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from shapeflow.dims.dim import Dim
from shapeflow.dims.spec import TensorSpec, parse_spec
from shapeflow.errors import InputError, SpecError
from shapeflow.runtime.explain.origin import reason
from shapeflow.testing.example import Example, attribute_of, name_of
from shapeflow.testing.opening import Given, opened
from shapeflow.testing.running import tensors_of, undisturbed
from shapeflow.testing.sizes import size_sets


def assert_shapes(module: Any, shapes: str, *, high: int | None = None, **sizes: int) -> None:
    """Run the model at several sizes and compare the shapes of its outputs with those on the right of the arrow.

    Inputs and outputs are specs between commas, one for each tensor, in order. A name is one size throughout: that of
    a keyword (`d_model=32`), of `d_model=32` in the text, of the model's attribute of this name, or the only one at
    which the model runs. Other names are free: they are run at primes and at 1, or within their bounds (`T<=64`). A
    name on the right only has one size in all runs. A dtype is compared where the text gives one. Runs are in eval
    mode.
    """
    __tracebackhide__ = True
    inputs, outputs = _read(shapes)
    names = {
        symbol.name for spec in outputs for dim in spec.dims if dim.expr is not None for symbol in dim.expr.symbols
    }
    given = {name: size for name, size in sizes.items() if name not in names or _has(inputs, name)}
    example = opened(module, tuple(inputs), Given(high, given))
    known = {**{name: attribute_of(module, name) for name in names}, **sizes}
    seen = {name: size for name, size in known.items() if size is not None}
    origins = {name: "as it was given" if name in sizes else f"an attribute of {name_of(module)}" for name in seen}
    with undisturbed(module):
        for chosen in size_sets(example):
            expected = Expected({**seen, **chosen}, dict(origins))
            faults = expected.faults(outputs, _run(module, example, chosen))
            if faults:
                raise AssertionError(_told(module, shapes, chosen, faults))
            seen |= {name: size for name, size in expected.sizes.items() if name not in chosen}
            origins |= {name: f"as at {_sizes(chosen)}" for name in seen if name not in origins}


def _read(shapes: str) -> tuple[list[str], list[TensorSpec]]:
    left, arrow, right = shapes.partition("->")
    if not arrow:
        raise SpecError(shapes, len(shapes), "an arrow and the shapes of the outputs are missing", f"{shapes} -> B T")
    outputs = [parse_spec(part.strip()) for part in _parts(right)]
    if all(dim.expr is None for spec in outputs for dim in spec.dims) and any(spec.dims for spec in outputs):
        raise InputError(f"{right.strip()!r} takes any sizes: name an axis of the output, or nothing can fail")
    return [part.strip() for part in _parts(left)], outputs


def _parts(text: str) -> list[str]:
    """The specs between commas, but those within brackets: `max(H,W)`."""
    parts, depth = [""], 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return parts


def _has(inputs: list[str], name: str) -> bool:
    specs = [parse_spec(each) for each in inputs]
    return any(symbol.name == name for spec in specs for dim in spec.dims if dim.expr for symbol in dim.expr.symbols)


def _run(module: Any, example: Example, sizes: Mapping[str, int]) -> list[tuple[str, torch.Tensor]]:
    __tracebackhide__ = True
    try:
        return tensors_of(example.call(module, example.inputs(sizes)))
    except Exception as error:  # whatever the model raises at these sizes, it is told with them
        raise AssertionError(f"{name_of(module)} raises at {_sizes(sizes)}: {reason(error)}{_hint(example)}") from error


def _hint(example: Example) -> str:
    """A name that is free and should not be is the usual reason."""
    free = ", ".join(example.free)
    return f"\n  {free} may be any size here; fix one (d_model=32) or bound it (T<=64)" if free else ""


@dataclass
class Expected:
    """The sizes that hold in one run, and where those that the input does not give come from."""

    sizes: dict[str, int]
    origins: dict[str, str]

    def faults(self, specs: Sequence[TensorSpec], outputs: list[tuple[str, torch.Tensor]]) -> list[str]:
        """A line for each axis that is not as it should be."""
        if len(specs) != len(outputs):
            shapes = ", ".join(f"{path} {_shape(tensor)}" for path, tensor in outputs)
            return [f"  {len(outputs)} tensors come out, {len(specs)} are written: {shapes}"]
        return [
            fault for spec, (path, tensor) in zip(specs, outputs, strict=True) for fault in self._of(spec, path, tensor)
        ]

    def _of(self, spec: TensorSpec, path: str, tensor: torch.Tensor) -> list[str]:
        dims = _expanded(spec.dims, tensor.dim())
        if dims is None:
            return [f"  {path} has {tensor.dim()} axes, {_shape(tensor)}, not those of {str(spec)!r}"]
        found = [
            f"  axis {axis} of {path} is {size}, {reason}"
            for axis, (dim, size) in enumerate(zip(dims, tensor.shape, strict=True))
            if dim is not None and (reason := self._fault(dim, size))
        ]
        dtype = str(tensor.dtype).removeprefix("torch.")
        if ":" in spec.text and dtype != spec.dtype:
            found.append(f"  {path} is {dtype}, not {spec.dtype}")
        return found

    def _fault(self, dim: Dim, size: int) -> str:
        """Why an axis is wrong, "" where it is right; a new name gets its size here."""
        if dim.expr is None or (dim.broadcast and size == 1):
            return ""
        unknown = [symbol.name for symbol in dim.expr.symbols if symbol.value is None and symbol.name not in self.sizes]
        if unknown and str(dim.expr) == unknown[0]:
            self.sizes[unknown[0]] = size
            return ""
        if unknown:
            raise InputError(f"{unknown[0]} of {dim} stands in no input, so that its size is not known")
        wanted = dim.expr.at(**self.sizes)
        if wanted == size:
            return ""
        text = str(dim)
        origin = self.origins.get(text, "")
        return f"{text} is {wanted}{f', {origin}' if origin else ''}" if text != str(wanted) else f"not {wanted}"


def _expanded(dims: tuple[Dim, ...], rank: int) -> list[Dim | None] | None:
    """A dim for each axis, None for those of `*batch`; None where their number does not fit."""
    variadic = next((at for at, dim in enumerate(dims) if dim.variadic), None)
    if variadic is None:
        return list(dims) if len(dims) == rank else None
    free = rank - (len(dims) - 1)
    return None if free < 0 else [*dims[:variadic], *[None] * free, *dims[variadic + 1 :]]


def _told(module: Any, shapes: str, sizes: Mapping[str, int], faults: list[str]) -> str:
    return "\n".join([f"{name_of(module)} is not {shapes!r} at {_sizes(sizes)}:", *faults])


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {size}" for name, size in sizes.items()) or "its one size"


def _shape(tensor: torch.Tensor) -> str:
    return " ".join(map(str, tensor.shape)) or "scalar"
