"""`assert_permutation_equivariant`: other order in, the same other order out.

>>> assert_permutation_equivariant(encoder_without_positions, "B T d_model")
"""

from __future__ import annotations

from typing import Any

import torch

from shapeflow.testing.change import aligned, listed
from shapeflow.testing.opening import Given, opened_along
from shapeflow.testing.running import distance, tolerance_for, undisturbed
from shapeflow.trace.structure import map_tensors


def assert_permutation_equivariant(
    module: Any,
    *inputs: Any,
    axis: int = 1,
    tolerance: float | None = None,
    high: int | None = None,
    sizes: dict[str, int] | None = None,
    named: dict[str, Any] | None = None,
) -> None:
    """Positions along `axis` in another order give the same outputs in that order: `f(x[:, p]) == f(x)[:, p]`.

    Three orders are tried: reversed, shifted, random. All inputs with that axis are put in order. It is a failure, too,
    when the outputs are alike at all positions, as any order would then do.
    """
    __tracebackhide__ = True
    opening = opened_along(module, inputs, Given(high, sizes, named), axis=axis, shows="position: an order shows")
    example, given, count, name = opening.example, opening.inputs, opening.count, opening.name
    with undisturbed(module):
        plain = aligned(example.call(module, given), axis, count, name)
        if not any(_differing(each, each.flip(axis), axis, tolerance) for each in plain):
            raise AssertionError(f"nothing is shown of {name}: its outputs are alike at all positions of axis {axis}")
        for what, order in _orders(count).items():
            outputs = aligned(example.call(module, _ordered(given, order, axis)), axis, count, name)
            wrong = {
                at: gap
                for before, after in zip(plain, outputs, strict=True)
                for at, gap in _differing(before.index_select(axis, order), after, axis, tolerance).items()
            }
            if wrong:
                raise AssertionError(
                    f"{name} is not equivariant to permutations of axis {axis}, of {count} positions:\n"
                    f"  {what}, output {listed(wrong)} is another one (by up to {max(wrong.values()):.2g})"
                )


def _orders(count: int) -> dict[str, torch.Tensor]:
    shuffled = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    return {
        "reversed": torch.arange(count).flip(0),
        "shifted by one": torch.arange(count).roll(1),
        f"in the order {shuffled.tolist()}": shuffled,
    }


def _ordered(inputs: Any, order: torch.Tensor, axis: int) -> Any:
    def ordered(tensor: torch.Tensor) -> torch.Tensor:
        has = tensor.dim() > axis and tensor.shape[axis] == len(order)
        return tensor.index_select(axis, order.to(tensor.device)) if has else tensor

    return map_tensors(inputs, ordered)


def _differing(a: torch.Tensor, b: torch.Tensor, axis: int, tolerance: float | None) -> dict[int, float]:
    """The positions at which two outputs differ; sums in another order round otherwise."""
    gap = distance(a, b).movedim(axis, 0).flatten(1).amax(dim=1)
    allowed = tolerance_for(a, tolerance)
    return {at: float(gap[at]) for at in (gap > allowed).nonzero()[:, 0].tolist()}
