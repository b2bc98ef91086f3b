"""Signatures whose annotations are objects, also where they were written as text.

>>> def attend(x: "Float[Tensor, 'B T d']", causal: "bool" = True): ...
>>> signature_of(attend).parameters["causal"].annotation
<class 'bool'>

Text comes from `from __future__ import annotations` and from quotes; decorators keep the function it belongs to.
"""

from __future__ import annotations

import functools
import inspect
import re
import typing
from collections.abc import Callable
from typing import Any

from shapeflow.errors import InputError

_TENSOR_LIKE = re.compile(r"""\w\s*\[[^\[\]]*,\s*['"]""")  # Name[type, "text"]


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """The signature of a function, method, partial, wrapped function or class, with annotations that are objects.

    Text that does not evaluate raises InputError when it looks like an array type; other text stays as it is.
    """
    signature = inspect.signature(function)
    inner = _innermost(function)
    scope, local = getattr(inner, "__globals__", {}), _local_scope(inner)
    of = f"of {getattr(inner, '__qualname__', inner)}"

    def resolved(annotation: object, what: str) -> object:
        return annotation if annotation is signature.empty else evaluated(annotation, scope, local, f"{what} {of}")

    parameters = [
        each.replace(annotation=resolved(each.annotation, f"`{each.name}`")) for each in signature.parameters.values()
    ]
    result = resolved(signature.return_annotation, "the result")
    return signature.replace(parameters=parameters, return_annotation=result)


def _innermost(function: Any) -> Any:
    """The function that was written, below partials, methods, and what wraps it (jaxtyped, beartype, no_grad)."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif inspect.ismethod(function):
            function = function.__func__
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif inspect.isclass(function):
            function = function.__init__
        elif inspect.isroutine(function):
            return function
        else:
            function = type(function).__call__


def _local_scope(function: object) -> dict[str, object]:
    """The names that a nested function can see, of those around it, and its type parameters."""
    local = type_parameters(function)
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=True):
        try:
            local[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return local


def type_parameters(owner: object) -> dict[str, object]:
    """The `T` of `def f[T]` and `class C[T]`, which Python has from 3.12 on."""
    return {each.__name__: each for each in getattr(owner, "__type_params__", ())}


def evaluated(annotation: object, scope: dict[str, Any], local: dict[str, Any], what: str) -> object:
    """The annotation as an object. Text that does not evaluate stays; if it looks like a tensor's, InputError."""

    def holder() -> None: ...

    holder.__annotations__ = {"it": annotation}
    try:
        return typing.get_type_hints(holder, scope, local, include_extras=True)["it"]
    except Exception as error:  # an annotation is code and may raise anything; jaxtyping raises ValueError
        text = annotation.__forward_arg__ if isinstance(annotation, typing.ForwardRef) else str(annotation)
        if not _TENSOR_LIKE.search(text):
            return annotation
        raise InputError(
            f"the annotation of {what} cannot be read: {text}\n    {type(error).__name__}: {error}\n"
            "its names must exist at run time, not for type checkers only; or give the input a spec of its own"
        ) from error
