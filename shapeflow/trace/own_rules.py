"""Functions of torch whose own code would fix a size: their shapes are given here instead, and they stay one node.

>>> RULES[torch.linspace](0, 1, T).shape
torch.Size([T])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from shapeflow.trace import rnn


def _spaced(start: Any, end: Any, steps: Any, base: float = 10.0, **options: Any) -> torch.Tensor:
    """`linspace` and `logspace` take the number of steps as a plain integer."""
    return torch.empty((steps,), dtype=options.get("dtype"), device=options.get("device"))


RULES: dict[Any, Callable[..., Any]] = {**rnn.RULES, torch.linspace: _spaced, torch.logspace: _spaced}
"""By function, as the model calls it."""
