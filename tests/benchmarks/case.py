"""One line of the zoo: a model that somebody else wrote, and the specs that it is traced with.

    Case("torchvision", "resnet18", partial(resnet18, weights=None), inputs=("B 3 H W",))

A case travels to worker processes, so `build` is a function of a module or a partial of one, never a lambda.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True, slots=True)
class Case:
    """A model by group and name, what builds it, and its inputs as `sf.trace` takes them."""

    group: str
    name: str
    build: Callable[[], nn.Module]
    inputs: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)
    hints: Mapping[str, int] = field(default_factory=dict)

    @property
    def spec(self) -> str:
        """The inputs as text: `B 3 H W`, `input_ids=B T:int64`."""
        return ", ".join([*map(_text, self.inputs), *(f"{name}={_text(value)}" for name, value in self.named.items())])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value).replace("'", "")


def on_meta(build: Callable[[], nn.Module]) -> nn.Module:
    """The model in evaluation mode, without memory for its weights where its constructor allows it."""
    try:
        with torch.device("meta"):
            return build().eval()
    except Exception:  # any: a constructor may read its weights; what is wrong on both devices raises below
        return build().eval()
