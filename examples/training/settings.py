"""The numbers of a run: options of the command line, and part of a checkpoint.

>>> Settings(d_model=48, n_heads=5).check(world=1)
Traceback (most recent call last):
    ...
training.settings.RunError: d_model = 48 does not divide by n_heads = 5
"""

import math
from dataclasses import dataclass, field, fields
from typing import Any


class RunError(Exception):
    """A mistake of whoever starts a run: told in one line, exit status 2."""


def setting(default: Any, text: str) -> Any:
    """A field with the text that `--help` shows."""
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What all examples have; each adds its own. The defaults take some minutes on two cores."""

    d_model: int = setting(128, "width of the residual stream")
    n_heads: int = setting(4, "attention heads of a layer; divides d_model")
    d_ff: int = setting(512, "hidden width of the feed-forward layers")
    n_layers: int = setting(4, "layers of a stack")
    steps: int = setting(600, "updates of the weights")
    batch: int = setting(32, "sequences of a step, over all ranks")
    rate: float = setting(2e-3, "the highest learning rate")
    warmup: int = setting(50, "steps over which the rate rises to it; then it falls along a cosine")
    decay: float = setting(0.1, "weight decay of the matrices")
    clip: float = setting(1.0, "the gradient's norm is cut to this")
    eval_every: int = setting(50, "steps from one evaluation to the next")
    eval_batches: int = setting(4, "batches of an evaluation")
    save_every: int = setting(50, "steps from one checkpoint to the next")
    seed: int = setting(0, "of the weights, of the order of the data, and of samples")

    def check(self, *, world: int) -> None:
        """Raises RunError for numbers that cannot be, alone or together, with `world` ranks."""
        for each in fields(self):
            value = getattr(self, each.name)
            least = 0 if each.name in MAY_BE_ZERO else None
            if not isinstance(value, str) and not (math.isfinite(value) and (value > 0 or value == least)):
                raise RunError(f"{each.name} = {value} must be {'0 or more' if least == 0 else 'positive'}")
        if self.d_model % self.n_heads:
            raise RunError(f"d_model = {self.d_model} does not divide by n_heads = {self.n_heads}")
        if self.batch % world:
            raise RunError(f"batch = {self.batch} does not divide by the {world} ranks")
        if self.warmup >= self.steps:
            raise RunError(f"warmup = {self.warmup} leaves none of the steps = {self.steps} at the full rate")

    def rate_at(self, step: int) -> float:
        """The learning rate of the step after `step` others: up in a line, down to a tenth along half a cosine."""
        if step < self.warmup:
            return self.rate * (step + 1) / self.warmup
        done = (step - self.warmup) / (self.steps - self.warmup)
        return self.rate * (0.1 + 0.9 * (1 + math.cos(math.pi * done)) / 2)


TINY: dict[str, Any] = {
    "d_model": 16,
    "n_heads": 2,
    "d_ff": 32,
    "steps": 60,
    "batch": 8,
    "rate": 1e-2,
    "warmup": 6,
    "eval_every": 10,
    "save_every": 10,
}
"""What the tiny presets share: seconds, for a first try and for the tests."""
MAY_BE_ZERO = ("seed", "warmup", "decay", "dropout")
FREE = ("eval_every", "eval_batches", "save_every")
"""What changes no loss, so that a resumed run may set it anew."""
