"""Goes on behind a module that raised, with the shape that its annotation promises or its class is made for.

>>> rescue = Rescue(attempt)
>>> attempt.stack.rescue = rescue
>>> attempt.run()
>>> [str(failure.error) for failure in rescue.failures]     # every fault of one run, not the first alone
['mat1 and mat2 shapes cannot be multiplied ...', 'The size of tensor a ...']
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from shapeflow.dims.env import DimEnv
from shapeflow.dims.expr import Expr
from shapeflow.dims.spec import TensorSpec
from shapeflow.torch_private import DisableTorchFunction
from shapeflow.trace.names import ForwardSpecs, forward_specs, tensors_with
from shapeflow.trace.source import raised_by_us
from shapeflow.trace.traced import size_key

if TYPE_CHECKING:
    from shapeflow.trace.attempt import Attempt
    from shapeflow.trace.recorder import Failure

NOTHING = object()
"""What `rescue` gives for a module that promises nothing."""
MOST = 16
"""After so many faults nobody reads on."""
CHANNELS: dict[type[nn.Module], tuple[int, str]] = {
    nn.Linear: (-1, "in_features"),
    nn.modules.conv._ConvNd: (1, "in_channels"),
    nn.modules.batchnorm._NormBase: (1, "num_features"),
    nn.GroupNorm: (1, "num_channels"),
    nn.RNNBase: (-1, "input_size"),
}
"""The axis of the input that a layer of torch is built for, and the attribute that holds its size."""


class Rescue:
    """Keeps the failures of an attempt, and makes results in the place of those that never came."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.failures: list[Failure] = []

    def __call__(
        self, run: Any, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], error: Exception
    ) -> Any:
        """The result to go on with; `NOTHING` when nobody knows its shape, and the error goes on."""
        failed = self.attempt.recorder.failed
        if failed is None or failed.error is not error or len(self.failures) >= MOST or raised_by_us(error):
            return NOTHING
        if any(known.error is error for known in self.failures):
            return NOTHING
        result = self._promised(module, args, kwargs)
        if result is NOTHING:
            result = self._as_built(run, module, args, kwargs)
        if result is not NOTHING:
            self.failures.append(failed)
            error.__traceback__ = _with_callers(error.__traceback__, sys._getframe(1))
            self.attempt.stack.failing = None
        return result

    def _promised(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        specs = forward_specs(type(module))
        if not isinstance(specs, ForwardSpecs) or not isinstance(specs.result, TensorSpec):
            return NOTHING
        known = _bound(specs, args, kwargs)
        sizes = [_size(dim.expr, known, module) if dim.expr is not None else None for dim in specs.result.dims]
        if any(size is None for size in sizes) or any(dim.variadic for dim in specs.result.dims):
            return NOTHING
        return self._tensor([size for size in sizes if size is not None], specs.result.dtype)

    def _tensor(self, sizes: list[Expr], dtype: str) -> torch.Tensor:
        env: DimEnv = self.attempt.env
        with DisableTorchFunction():
            return torch.empty(
                [env.number(size) for size in sizes], dtype=getattr(torch, dtype), device=self.attempt.ledger.device
            )

    def _as_built(self, run: Any, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The layer's result for an input of the size that it was built for."""
        found = next((each for kind, each in CHANNELS.items() if isinstance(module, kind)), None)
        if found is None or not args or not isinstance(args[0], torch.Tensor):
            return NOTHING
        axis, attribute = found
        with DisableTorchFunction():
            sizes = list(args[0].shape)
            if len(sizes) <= max(axis, 0):
                return NOTHING
            sizes[axis] = getattr(module, attribute)
            fitting = torch.empty(sizes, dtype=args[0].dtype, device=args[0].device)
        try:
            return run(module, fitting, *args[1:], **kwargs)
        except Exception:  # it was not this size: the first error says more
            return NOTHING


def _with_callers(trace: TracebackType | None, frame: FrameType | None) -> TracebackType | None:
    """The traceback as if nobody had caught the error: whoever explains it looks for the user's line in it."""
    while frame is not None:
        trace = TracebackType(trace, frame, frame.f_lasti, frame.f_lineno)
        frame = frame.f_back
    return trace


def _bound(specs: ForwardSpecs, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Expr]:
    """The names that the arguments of a call give a size."""
    known: dict[str, Expr] = {}
    for name, value in [*zip(specs.positional, args, strict=False), *kwargs.items()]:
        for _, tensor, spec in tensors_with(value, specs.parameters.get(name)):
            if len(spec.dims) != tensor.dim() or any(dim.variadic for dim in spec.dims):
                continue
            with DisableTorchFunction():
                keys = [size_key(size) for size in tensor.shape]
            for dim, key in zip(spec.dims, keys, strict=True):
                if dim.name is not None:
                    known.setdefault(dim.name, key if isinstance(key, Expr) else Expr.const(key))
    return known


def _size(expr: Expr, known: Mapping[str, Expr], module: nn.Module) -> Expr | None:
    values = {}
    for symbol in expr.symbols:
        attribute = vars(module).get(symbol.name)
        if isinstance(attribute, torch.SymInt):
            attribute = size_key(attribute)
        if isinstance(attribute, Expr | int) and not isinstance(attribute, bool):
            values[symbol] = attribute if isinstance(attribute, Expr) else Expr.const(attribute)
        elif symbol.name in known:
            values[symbol] = known[symbol.name]
        else:
            return None
    return expr.replace(values)
