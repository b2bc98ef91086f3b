"""Which positions of the output change when one position of the input is another one.

>>> effects = effects_of(model, example, sizes, axis=1)
>>> effects[3]                                           # input position 3 changes outputs 3, 4 and 5, by so much
{3: 0.21, 4: 0.08, 5: 0.11}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from shapeflow.errors import InputError
from shapeflow.testing.example import Example, name_of
from shapeflow.testing.running import SAME_KERNEL, distance, tensors_of, tolerance_for
from shapeflow.trace.structure import map_tensors, tensors_in

Effects = dict[int, dict[int, float]]
MOST_POSITIONS = 48


def effects_of(
    module: Any, example: Example, inputs: Mapping[str, Any], *, axis: int, tolerance: float | None
) -> Effects:
    """For each position of the inputs along an axis: the positions of the outputs that it changes, and how much.

    Raises InputError where inputs or outputs have no such axis, and where the model is not the same twice.
    """
    count = length_of(inputs, axis)
    plain = aligned(example.call(module, inputs), axis, count, name_of(module))
    again = aligned(example.call(module, inputs), axis, count, name_of(module))
    if any((distance(a, b) > tolerance_for(a, tolerance)).any() for a, b in zip(plain, again, strict=True)):
        raise InputError(
            f"{name_of(module)} gives other numbers for the same inputs, so that nothing can be told from a change; "
            "switch off what it draws at random"
        )
    found: Effects = {}
    for position in _positions(count):
        changed = aligned(
            example.call(module, with_another(inputs, position, axis, count)), axis, count, name_of(module)
        )
        found[position] = _changed(plain, changed, axis, tolerance)
    return found


def _changed(
    plain: list[torch.Tensor], changed: list[torch.Tensor], axis: int, tolerance: float | None
) -> dict[int, float]:
    """The positions along an axis on which any output differs, with the greatest difference."""
    found: dict[int, float] = {}
    for before, after in zip(plain, changed, strict=True):
        gap = distance(before, after).movedim(axis, 0).flatten(1).amax(dim=1)
        for position in (gap > tolerance_for(before, tolerance, SAME_KERNEL)).nonzero()[:, 0].tolist():
            found[position] = max(found.get(position, 0.0), float(gap[position]))
    return dict(sorted(found.items()))


def _positions(count: int) -> Iterable[int]:
    """All positions; of a great many a part, with the first and the last."""
    if count <= MOST_POSITIONS:
        return range(count)
    return sorted({round(at * (count - 1) / (MOST_POSITIONS - 1)) for at in range(MOST_POSITIONS)})


def length_of(inputs: Mapping[str, Any], axis: int) -> int:
    """How many positions the first input has along the axis."""
    for name, tensor in tensors_in(inputs):
        if tensor.dim() <= axis:
            raise InputError(f"{name} has {tensor.dim()} axes, so there is no axis {axis}: say which with axis=...")
        return tensor.shape[axis]
    raise InputError("there is no tensor among the inputs")


def aligned(output: Any, axis: int, count: int, name: str) -> list[torch.Tensor]:
    """The tensors of an output that have as many positions along the axis as the input."""
    tensors = tensors_of(output)
    found = [tensor for _, tensor in tensors if tensor.dim() > axis and tensor.shape[axis] == count]
    if not found:
        shapes = ", ".join(f"{path} {tuple(tensor.shape)}" for path, tensor in tensors) or "no tensor"
        raise InputError(f"no output of {name} has {count} positions on axis {axis}, as the input has: {shapes}")
    return found


def with_another(inputs: Mapping[str, Any], position: int, axis: int, count: int) -> Any:
    """The inputs with other values at one position, in each tensor that has as many positions there as the first."""

    def changed(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() <= axis or tensor.shape[axis] != count:
            return tensor
        result = tensor.clone()
        result.select(axis, position).copy_(_other(tensor.select(axis, position), position))
        return result

    return map_tensors(inputs, changed)


def _other(values: torch.Tensor, seed: int) -> torch.Tensor:
    """Other values of the same kind; whole numbers stay among those that are valid: one less, or 1 for 0."""
    if values.dtype == torch.bool:
        return ~values
    if not values.is_floating_point() and not values.is_complex():
        return torch.where(values > 0, values - 1, values + 1)
    generator = torch.Generator().manual_seed(seed + 1)
    drawn = torch.randn(values.shape, generator=generator).to(values)
    return values + drawn * (1 + values.abs())


def listed(positions: Iterable[int]) -> str:
    """`0-3, 7`: runs of positions, written short."""
    runs: list[list[int]] = []
    for position in sorted(positions):
        if runs and runs[-1][-1] == position - 1:
            runs[-1].append(position)
        else:
            runs.append([position])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
