"""The function whose annotation did not hold, when jaxtyping, beartype or `sf.enforce` refused a value.

>>> refusal = refused_in(stack, error)
>>> refusal.bound.conflicts[0].reason
'is 6, T = 5 from axis 1 of x'
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from shapeflow.runtime.explain.bound import Bound
from shapeflow.runtime.explain.stack import Stack, Step
from shapeflow.trace.result import Location
from shapeflow.trace.source import location

RESULT = "the result"
CHECKERS = ("jaxtyping", "beartype", "typeguard", "shapeflow")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A call that a check refused: what it was given, by parameter, and what the annotations bound of it."""

    function: types.FunctionType
    values: Mapping[str, Any]
    bound: Bound

    @property
    def location(self) -> Location:
        """The line of its `def`."""
        found = location((self.function.__code__, self.function.__code__.co_firstlineno))
        assert found is not None
        return found

    @property
    def wrong_type(self) -> str:
        """The first value that is no such array at all: `ids is int64, the annotation asks for Float`."""
        annotations = inspect.get_annotations(self.function)
        for name, value in self.values.items():
            asked = annotations.get("return" if name == RESULT else name)
            kind = getattr(getattr(asked, "dtype", None), "__name__", "")
            if kind and not isinstance(value, torch.Tensor):
                return f"{name} is a {type(value).__name__}, the annotation asks for {kind}[Tensor, ...]"
            if kind and not isinstance(value, _any_shape(asked)):
                return f"{name} is {str(value.dtype).removeprefix('torch.')}, the annotation asks for {kind}"
        return ""


def refused_in(stack: Stack, error: BaseException) -> Refusal | None:
    """The refused call, from the frames of the check, which hold the function and its arguments."""
    inside = stack.inside
    if not inside or not _checks(inside[-1]):
        return None
    for step in inside:
        local = step.frame.f_locals
        function = _written(local.get("__beartype_func") or local.get("fn") or local.get("function"))
        if function is not None and isinstance(local.get("args"), tuple) and _checks(step):
            found = _refusal(function, local, error, ours=_name(step).startswith("shapeflow."))
            if found is not None:
                return found
    return None


def _checks(step: Step) -> bool:
    return _name(step).partition(".")[0] in CHECKERS or "beartype" in step.code.co_filename


def _name(step: Step) -> str:
    return step.frame.f_globals.get("__name__") or ""


def _written(function: Any) -> types.FunctionType | None:
    """The function as the user wrote it."""
    function = inspect.unwrap(function) if callable(function) else None
    return function if isinstance(function, types.FunctionType) else None


def _refusal(
    function: types.FunctionType, local: Mapping[str, Any], error: BaseException, *, ours: bool
) -> Refusal | None:
    kwargs = {name: each for name, each in local.get("kwargs", {}).items() if name != local.get("output_name")}
    try:
        arguments = inspect.signature(function).bind(*local["args"], **kwargs)
    except TypeError:  # a call with wrong arguments is told by Python itself
        return None
    arguments.apply_defaults()
    values = dict(arguments.arguments)
    returned = local.get("out", local.get("result")) if "out" in local or "result" in local else None
    if returned is None and "Return" in type(error).__name__:
        returned = local.get("__beartype_pith_0")
    if returned is not None:
        values[RESULT] = returned
    bound = Bound()
    first = next(iter(values.values()), None)
    owner = first if ours and issubclass(type(first), torch.nn.Module) else None
    bound.take(function, values, result=RESULT if RESULT in values else "", owner=owner)
    return Refusal(function, values, bound)


def _any_shape(annotation: Any) -> Any:
    return annotation.dtype[annotation.array_type, "..."]
