"""`assert_gradients_reach_all_parameters`: nothing that should be trained stays as it is.

>>> assert_gradients_reach_all_parameters(gpt, "B T:int64")
"""

from __future__ import annotations

from fnmatch import fnmatch
from typing import Any

import torch
from torch import nn

from shapeflow.errors import InputError
from shapeflow.testing.example import name_of
from shapeflow.testing.opening import Given, opened
from shapeflow.testing.running import tensors_of, undisturbed


def assert_gradients_reach_all_parameters(
    module: nn.Module,
    *inputs: Any,
    ignore: tuple[str, ...] | list[str] | str = (),
    high: int | None = None,
    sizes: dict[str, int] | None = None,
    named: dict[str, Any] | None = None,
) -> None:
    """Each parameter that is trained gets a gradient that is finite and not all zero.

    The loss is a random sum of all outputs, in the mode that the model is in. Frozen parameters
    (`requires_grad=False`) are left out, as are those whose path fits `ignore` (`"pos.*"`). Gradients that are there
    already stay.
    """
    __tracebackhide__ = True
    patterns = (ignore,) if isinstance(ignore, str) else tuple(ignore)
    example = opened(module, inputs, Given(high, sizes, named))
    trained = {path: each for path, each in module.named_parameters() if each.requires_grad}
    for pattern in patterns:
        if not any(fnmatch(path, pattern) for path in trained):
            raise InputError(f"ignore={pattern!r} fits no parameter that is trained")
    if not trained:
        raise AssertionError(f"nothing is shown of {name_of(module)}: it has no parameter that is trained")
    with undisturbed(module, training=None, gradients=True):
        torch.manual_seed(0)
        loss = _loss(module, example.call(module, example.inputs(example.sizes())))
        gradients = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
    found = dict(zip(trained, gradients, strict=True))
    wanted = {path: each for path, each in found.items() if not any(fnmatch(path, pattern) for pattern in patterns)}
    lines = [
        *_listed("no gradient, the output does not depend on it", [p for p, g in wanted.items() if g is None]),
        *_listed("a gradient of zeros", [p for p, g in wanted.items() if g is not None and not g.any()]),
        *_listed("a gradient that is not finite", [p for p, g in wanted.items() if _infinite(g)]),
    ]
    if lines:
        raise AssertionError("\n".join([f"gradients do not reach all parameters of {name_of(module)}:", *lines]))


def _loss(module: Any, output: Any) -> torch.Tensor:
    """A sum of all outputs with random weights: a plain one has no gradient behind a softmax or a norm."""
    terms = [(each * torch.randn_like(each)).sum().real for _, each in tensors_of(output) if each.requires_grad]
    if not terms:
        raise AssertionError(f"no output of {name_of(module)} has a gradient: is it detached, or under no_grad?")
    return torch.stack([term.double() for term in terms]).sum()


def _infinite(gradient: torch.Tensor | None) -> bool:
    return gradient is not None and not bool(gradient.isfinite().all())


def _listed(what: str, paths: list[str]) -> list[str]:
    return [f"  {path}: {what}" for path in paths]
