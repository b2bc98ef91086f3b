"""`assert_batch_independent`: what becomes of a sample does not depend on the others in its batch.

>>> assert_batch_independent(net, "B 3 H=32 W=32")
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from shapeflow.testing.change import Effects, aligned, effects_of, length_of, listed
from shapeflow.testing.example import Example, name_of
from shapeflow.testing.opening import Given, opened_along, refuse_without_effect
from shapeflow.testing.running import distance, drawing_alike, tensors_of, tolerance_for, undisturbed
from shapeflow.trace.structure import map_tensors


def assert_batch_independent(
    module: Any,
    *inputs: Any,
    axis: int = 0,
    tolerance: float | None = None,
    training: bool = False,
    high: int | None = None,
    sizes: dict[str, int] | None = None,
    named: dict[str, Any] | None = None,
) -> None:
    """Each sample along `axis` gets the same output whatever the others are, and alone.

    Each sample is changed in turn, and the outputs of the others must stay; then each is run alone. It is a failure,
    too, when a changed sample changes nothing. `training=True` looks at the model in training mode, where batch norm
    does mix samples; dropout draws the same there in all runs, and where it does draw, samples are not run alone.
    """
    __tracebackhide__ = True
    opening = opened_along(module, inputs, Given(high, sizes, named), axis=axis, shows="sample: independence shows")
    example, given, name = opening.example, opening.inputs, opening.name
    with undisturbed(module, training=training):
        run = drawing_alike(module) if training else module
        effects = effects_of(run, example, given, axis=axis, tolerance=tolerance)
        refuse_without_effect(name, effects, "sample")
        _refuse_leaks(name, effects, axis)
        draws = training and _draws(module, example, given)
        alone = [] if draws else _differing_alone(run, example, given, axis, tolerance)
    if alone:
        raise AssertionError(
            f"{name}: sample {listed(alone)} of {opening.count} gets another output alone than in the batch"
        )


def _refuse_leaks(name: str, effects: Effects, axis: int) -> None:
    __tracebackhide__ = True
    lines = []
    for sample, changed in effects.items():
        others = {at: gap for at, gap in changed.items() if at != sample}
        if others:
            gap = max(others.values())
            lines.append(f"  input {sample} changes output {listed(others)} (by up to {gap:.2g})")
    if lines:
        raise AssertionError(f"{name} mixes the samples of axis {axis}:\n" + "\n".join(lines))


def _draws(module: Any, example: Example, inputs: Mapping[str, Any]) -> bool:
    """Whether the model draws at random: what it draws for a batch says nothing of a sample."""
    one, other = (tensors_of(example.call(drawing_alike(module, seed), inputs)) for seed in (0, 1))
    return any((distance(a, b) > tolerance_for(a, None)).any() for (_, a), (_, b) in zip(one, other, strict=True))


def _differing_alone(
    module: Any, example: Example, inputs: Mapping[str, Any], axis: int, tolerance: float | None
) -> list[int]:
    """The samples whose output is another one when they are the whole batch. Kernels may round otherwise there."""
    count = length_of(inputs, axis)
    together = aligned(example.call(module, inputs), axis, count, name_of(module))
    found = []
    for sample in range(count):
        alone = aligned(example.call(module, _only(inputs, sample, axis, count)), axis, 1, name_of(module))
        for whole, single in zip(together, alone, strict=True):
            allowed = tolerance_for(whole, tolerance)
            if (distance(whole.narrow(axis, sample, 1), single) > allowed).any():
                found.append(sample)
    return sorted(set(found))


def _only(inputs: Mapping[str, Any], sample: int, axis: int, count: int) -> Any:
    def narrowed(tensor: torch.Tensor) -> torch.Tensor:
        has = tensor.dim() > axis and tensor.shape[axis] == count
        return tensor.narrow(axis, sample, 1) if has else tensor

    return map_tensors(inputs, narrowed)
