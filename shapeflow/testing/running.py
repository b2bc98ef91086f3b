"""Runs a model for a test and leaves it as it was.

>>> with undisturbed(model):
...     outputs = tensors_of(model(x))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from shapeflow.trace.state import preserved
from shapeflow.trace.structure import tensors_in


@contextmanager
def undisturbed(*models: Any, training: bool | None = False, gradients: bool = False) -> Iterator[None]:
    """Run models in eval mode (`training=None`: in their own) without gradients, from the same random state.

    Modes, buffers, attributes and the random state are put back at the end, whatever happens.
    """
    modules = list(dict.fromkeys(each for model in models if isinstance(model, nn.Module) for each in model.modules()))
    modes = [(each, each.training) for each in modules]
    buffers = [(each, each.detach().clone()) for module in modules for each in module.buffers(recurse=False)]
    with preserved(modules), torch.random.fork_rng(), torch.set_grad_enabled(gradients):
        try:
            if training is not None:
                for each in modules:
                    each.training = training
            yield
        finally:
            with torch.no_grad():
                for each, before in buffers:
                    each.copy_(before)
            for each, mode in modes:
                each.training = mode


def drawing_alike(module: Any, seed: int = 0) -> Callable[..., Any]:
    """The model, with the same random state at each call. For use within `undisturbed`."""

    def run(*args: Any, **kwargs: Any) -> Any:
        torch.manual_seed(seed)
        return module(*args, **kwargs)

    run.__name__ = getattr(module, "__name__", "") or type(module).__name__
    return run


def tensors_of(output: Any) -> list[tuple[str, torch.Tensor]]:
    """The tensors of an output with the way to each, `output` for a single one."""
    return [(path if path[:1].isidentifier() else f"output{path}", tensor) for path, tensor in tensors_in(output)]


SAME_KERNEL = 32
"""Roundings between two runs of the same shapes: rows of a product do not know of each other."""
OTHER_ORDER = 10_000
"""Roundings between sums in another order, or of another size."""


def tolerance_for(tensor: torch.Tensor, tolerance: float | None, roundings: int = OTHER_ORDER) -> float:
    """How far numbers may be apart: so many roundings of the greatest one, unless it is given."""
    if tolerance is not None:
        return tolerance
    if not tensor.is_floating_point() and not tensor.is_complex():
        return 0.0
    finite = tensor.abs()[tensor.isfinite()]
    greatest = float(finite.max()) if finite.numel() else 0.0
    return roundings * torch.finfo(tensor.dtype).eps * max(greatest, 1e-30)


def distance(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """How far apart numbers are, each with each; two NaN or two equal infinities are not, NaN and a number are."""
    if not a.is_floating_point() and not a.is_complex():
        return (a != b).to(torch.float64)
    gap = (a.to(torch.complex128) - b.to(torch.complex128)).abs()
    gap = torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, gap)
    return torch.where(gap.isnan(), torch.inf, gap)
