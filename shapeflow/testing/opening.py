"""How each assertion begins: inputs matched with the model, names given sizes, and the positions that it looks at.

>>> opened = opened_along(gpt, ("B T:int64",), Given(), axis=1, shows="position: causality shows")
>>> opened.count, opened.name
(5, 'Gpt')
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shapeflow.errors import InputError
from shapeflow.testing.change import length_of
from shapeflow.testing.example import Example, name_of
from shapeflow.testing.running import undisturbed
from shapeflow.testing.settle import settled


@dataclass(frozen=True, slots=True)
class Given:
    """What an assertion is told beside the inputs."""

    high: int | None = None
    sizes: Mapping[str, int] | None = None
    named: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """One set of inputs of a model, with `count` positions along the axis."""

    example: Example
    inputs: dict[str, Any]
    count: int
    name: str


def opened(module: Any, inputs: tuple[Any, ...], given: Given) -> Example:
    """The example of a model, with sizes at which it runs."""
    example = Example.of(module, inputs, given.sizes or {}, high=given.high, named=given.named)
    with undisturbed(module):
        return settled(module, example)


def opened_along(module: Any, inputs: tuple[Any, ...], given: Given, *, axis: int, shows: str) -> Opened:
    """The same with inputs made. Raises InputError where the axis has less than two positions, in the words `shows`."""
    example = opened(module, inputs, given)
    made = example.inputs(example.sizes())
    count = length_of(made, axis)
    if count < 2:
        raise InputError(f"axis {axis} has {count} {shows} with two or more")
    return Opened(example, made, count, name_of(module))


def refuse_without_effect(name: str, effects: Mapping[int, Any], what: str) -> None:
    """Raises AssertionError where no change had any effect, so that the assertion could not fail."""
    __tracebackhide__ = True
    if not any(effects.values()):
        raise AssertionError(
            f"nothing is shown of {name}: no output changes, whichever {what} of the input does"
            " (weights of zero, or inputs that it does not read?)"
        )
