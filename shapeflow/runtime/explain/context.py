"""`explain`: a context manager and a decorator that adds a note to errors on their way out, and does nothing else.

>>> with sf.explain():
...     model(ids)
>>> @sf.explain
... def step(batch): ...
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, TypeVar, overload

from shapeflow.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])


class Explaining:
    """What `explain()` gives: it holds nothing, so one may be entered any number of times, by any number of threads."""

    __slots__ = ()

    def __enter__(self) -> Explaining:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        if error is not None:
            _annotate(error)
        return False

    def __call__(self, target: F) -> F:
        return _explained(target)


@overload
def explain(target: None = None, /) -> Explaining: ...
@overload
def explain(target: F, /) -> F: ...
def explain(target: Any = None, /) -> Any:
    """Explain the errors that leave a block (`with sf.explain():`), a function, or a module's `forward`.

    As a decorator, with brackets or without, it takes functions (also coroutines and generators) and nn.Module classes.
    An error keeps its type and its text, and gets one note (PEP 678): the module's path, the failing line, the tensors
    on it with the names that annotations give their axes, the first axis that disagrees, cause and fix. Everything is
    read from the traceback: without an error nothing is recorded. Raises InputError for what is neither.
    """
    return Explaining() if target is None else _explained(target)


def _explained(target: Any) -> Any:
    if inspect.isclass(target):
        return _explained_class(target)
    if not (inspect.isroutine(target) or isinstance(target, functools.partial) or hasattr(target, "__wrapped__")):
        kind = type(target).__name__
        raise InputError(
            f"sf.explain() decorates functions and classes of modules, not a {kind}; "
            "around a call write: with sf.explain(): ..."
        )
    wrapper = _wrapper(target)
    return functools.update_wrapper(wrapper, target)


def _explained_class(target: type) -> type:
    """The same class, with its own `forward` explained."""
    forward = vars(target).get("forward")
    if forward is None:
        raise InputError(f"{target.__qualname__} has no forward of its own for sf.explain() to decorate")
    target.forward = _explained(forward)  # pyright: ignore[reportAttributeAccessIssue]
    return target


def _wrapper(target: Callable[..., Any]) -> Callable[..., Any]:
    """The call with a note for its errors; plain `try`, which torch.compile reads without breaking its graph."""
    if inspect.iscoroutinefunction(target):

        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            try:
                return await target(*args, **kwargs)
            except Exception as error:  # any: it gets its note and goes on
                _annotate(error)
                raise

        return coroutine
    if inspect.isgeneratorfunction(target):

        def generator(*args: Any, **kwargs: Any) -> Any:
            try:
                return (yield from target(*args, **kwargs))
            except Exception as error:  # any: it gets its note and goes on
                _annotate(error)
                raise

        return generator
    if inspect.isasyncgenfunction(target):

        async def iterator(*args: Any, **kwargs: Any) -> Any:
            try:
                async for each in target(*args, **kwargs):
                    yield each
            except Exception as error:  # any: it gets its note and goes on
                _annotate(error)
                raise

        return iterator

    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            return target(*args, **kwargs)
        except Exception as error:  # any: it gets its note and goes on
            _annotate(error)
            raise

    return function


def _annotate(error: BaseException) -> None:
    """Add the note. What an error needs is imported when there is one."""
    from shapeflow.runtime.explain.note import annotate

    annotate(error)
