"""Shapes of the recurrent operators: one node each, never unrolled over time.

>>> RULES[torch.lstm](x, (h, c), weights, True, 2, 0.0, False, False, True)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from shapeflow.torch_private import lstm_functions


def _shapes(x: Any, hidden: Any, layers: int, bidirectional: bool, batch_first: bool, cell: bool) -> list[torch.Tensor]:
    """Output and last states of a padded batch: `(T, B, D*H)` or `(B, T, D*H)`, states as they came in."""
    states = list(hidden) if cell else [hidden]
    directions = 2 if bidirectional else 1
    # the last state has `proj_size` features where there is a projection, and so has the output
    output = x.new_empty((*x.shape[:-1], directions * states[0].shape[-1]))
    return [output, *(state.new_empty(state.shape) for state in states)]


def _rule(name: str) -> Callable[..., tuple[torch.Tensor, ...]]:
    cell = name == "lstm"

    def run(x: Any, second: Any, third: Any, fourth: Any, *rest: Any) -> tuple[torch.Tensor, ...]:
        if isinstance(
            fourth, list | tuple
        ):  # packed: data, batch_sizes, hidden, weights, bias, layers, p, train, two-way
            _check(x, third, fourth, cell)
            return tuple(_shapes(x, third, rest[1], rest[4], False, cell))
        _check(x, second, third, cell)  # padded: input, hidden, weights, bias, layers, p, train, two-way, batch_first
        return tuple(_shapes(x, second, rest[0], rest[3], rest[4], cell))

    run.__name__ = name
    return run


def _check(x: Any, hidden: Any, weights: Any, cell: bool) -> None:
    """The input has the width that the first layer's weight takes."""
    expected = weights[0].shape[1]
    if x.shape[-1] != expected:
        raise RuntimeError(f"input.size(-1) must be equal to input_size. Expected {expected}, got {x.shape[-1]}")


RULES: dict[Any, Callable[..., Any]] = {function: _rule(name) for name, function in lstm_functions().items()}
"""Own shape rules by function: torch's decompositions loop over the time axis, and so would fix its size."""
