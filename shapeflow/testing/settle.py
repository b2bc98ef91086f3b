"""Sizes of names that the model itself fixes and nothing tells: found by trial, among the sizes of its parameters.

>>> settled(nn.Linear(32, 64), Example.of(nn.Linear(32, 64), ("B T d",), {})).fixed
{'d': 32}
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import nn

from shapeflow.testing.example import Example

MOST_SIZES = 32


def settled(module: Any, example: Example) -> Example:
    """The example with one more name fixed, where the model runs at no other size; the same where it does as it is.

    The last names are tried first, as features stand last. Nothing is found for a model that needs two.
    """
    if _runs(module, example):
        return example
    for name in reversed(example.free):
        for size in _sizes(module):
            if example.within(name, size) == size:
                trial = replace(example, fixed={**example.fixed, name: size})
                if _runs(module, trial):
                    return trial
    return example


def _runs(module: Any, example: Example) -> bool:
    try:
        example.call(module, example.inputs(example.sizes()))
    except Exception:  # whatever a model raises at wrong sizes; when none fits, the assertion tells it
        return False
    return True


def _sizes(module: Any) -> list[int]:
    """The sizes of a model's parameters, in their order; of a weight what it takes before what it gives."""
    if not isinstance(module, nn.Module):
        return []
    sizes = (size for each in module.parameters() for size in (*each.shape[1:], *each.shape[:1]))
    return [size for size in dict.fromkeys(sizes) if size > 1][:MOST_SIZES]
