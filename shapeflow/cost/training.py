"""What training holds besides activations: parameters, their gradients, and the states of the optimiser.

>>> bytes_of_training(cost.parameters, optimizer="adam", precision="mixed")
16 bytes for each parameter that is trained, 2 for each that is frozen
"""

from __future__ import annotations

from dataclasses import dataclass

from shapeflow.dims.expr import Expr
from shapeflow.errors import InputError
from shapeflow.importer import closest

STATES = {
    "sgd": 0,
    "momentum": 1,
    "adam": 2,
    "adamw": 2,
    "adagrad": 1,
    "rmsprop": 1,
    "lion": 1,
}
"""Numbers that an optimiser keeps for each parameter: momentum, second moment. `momentum` is SGD with it."""


@dataclass(frozen=True, slots=True)
class Precision:
    """Bytes of a parameter, of its gradient, of one number of the optimiser's state, and of its master copy."""

    parameter: int
    gradient: int
    state: int
    master: int


PRECISIONS = {
    "float32": Precision(4, 4, 4, 0),
    "mixed": Precision(
        2, 2, 4, 4
    ),  # half-precision copies to compute with, float32 copies to update (ZeRO, section 3.1)
    "bfloat16": Precision(2, 2, 2, 0),
    "float16": Precision(2, 2, 2, 0),
    "float64": Precision(8, 8, 8, 0),
}


@dataclass(frozen=True, slots=True)
class TrainingMemory:
    """Bytes, by what holds them; `states` are the optimiser's, a master copy among them."""

    parameters: Expr
    gradients: Expr
    states: Expr

    @property
    def total(self) -> Expr:
        return self.parameters + self.gradients + self.states


def training_memory(
    trained: dict[int, Expr], frozen: dict[int, Expr], *, optimizer: str, precision: str | None
) -> TrainingMemory:
    """From counts of parameters by bytes of their dtype. Without a `precision` everything is as the parameters are.

    Raises InputError for an optimiser or a precision that is unknown.
    """
    known_states = STATES[known("optimizer", optimizer, STATES)]
    if precision is None:
        as_they_are = [(count, Precision(size, size, size, 0)) for size, count in trained.items()]
        still = sum((count * size for size, count in frozen.items()), Expr.const(0))
    else:
        chosen = PRECISIONS[known("precision", precision, PRECISIONS)]
        as_they_are = [(count, chosen) for count in trained.values()]
        still = sum((count * chosen.parameter for count in frozen.values()), Expr.const(0))
    return TrainingMemory(
        still + sum((count * each.parameter for count, each in as_they_are), Expr.const(0)),
        sum((count * each.gradient for count, each in as_they_are), Expr.const(0)),
        sum((count * (known_states * each.state + each.master) for count, each in as_they_are), Expr.const(0)),
    )


def known(what: str, name: str, table: dict) -> str:
    """The name in lower case, if the table has it."""
    lower = name.lower()
    if lower not in table:
        raise InputError(f"no {what} is called {name!r}{closest(lower, table)}; there are: {', '.join(table)}")
    return lower
