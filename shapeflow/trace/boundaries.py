"""Annotated boundaries: each tensor that goes in or out of a module or function whose signature says its shape.

>>> [(each.owner, each.what, str(each.spec), each.dims) for each in boundaries.declared]
[('Block.split_heads', 'x', 'B T d_model', (B, T, d_model)), ('Block.split_heads', 'the result', ...)]

The annotation names axes that are bare numbers (`Names`), and what it said is kept for the checker to judge. No import
hook is needed: annotated functions and methods of the user's own modules are wrapped while a model runs.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any

from torch import nn

from shapeflow.dims.annotation import Specs
from shapeflow.dims.expr import Expr
from shapeflow.dims.spec import TensorSpec
from shapeflow.errors import InputError, SpecError
from shapeflow.trace.names import ForwardSpecs, Names, tensors_with
from shapeflow.trace.source import Place, place
from shapeflow.trace.traced import Traced, traced

RESULT = "the result"


@dataclass(frozen=True, slots=True)
class Declared:
    """What an annotation says of a tensor, and the tensor's axes at that time. `call` is one call of the owner.

    `place` is the line that calls for an argument, and the line that made the tensor for a result.
    """

    owner: str
    what: str
    spec: TensorSpec
    dims: tuple[Expr, ...]
    dtype: str
    call: int
    module: str
    instance: nn.Module | None
    place: Place | None


class Boundaries:
    """Sees values at boundaries: names their axes, and keeps what was declared."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.declared: list[Declared] = []
        self.path: Callable[[], str] = lambda: ""
        self._calls = 0

    def enter(self, owner: str, specs: ForwardSpecs, args: Iterable[Any], kwargs: dict[str, Any], instance: Any) -> int:
        """The arguments of a call; the number of the call, for `leave`."""
        self._calls += 1
        caller = place(3)
        for name, value in [*zip(specs.positional, args, strict=False), *kwargs.items()]:
            self._see(owner, name, value, specs.parameters.get(name), self._calls, instance, lambda _: caller)
        return self._calls

    def leave(self, owner: str, specs: ForwardSpecs, result: Any, call: int, instance: Any) -> None:
        """The result of a call."""
        self._see(owner, RESULT, result, specs.result, call, instance, lambda known: _made_in(specs.code, known))

    def declared_by_call(self) -> list[Declared]:
        """What was declared, call by call: a call's arguments and its result stand together."""
        return sorted(self.declared, key=lambda each: each.call)

    def _see(
        self,
        owner: str,
        what: str,
        value: Any,
        specs: Specs | None,
        call: int,
        instance: Any,
        where: Callable[[Traced], Place | None],
    ) -> None:
        if specs is None or value is None:
            return
        module = instance if isinstance(instance, nn.Module) else None
        for path, tensor, spec in tensors_with(value, specs):
            known = traced(tensor)
            if known is not None:
                shape = known.signature.shape  # as it is before the annotation names its axes
                self.declared.append(
                    Declared(owner, what + path, spec, shape.dims, shape.dtype, call, self.path(), module, where(known))
                )
                self.names.declare(tensor, spec)

    @contextmanager
    def watching(self, modules: Iterable[ModuleType]) -> Iterator[None]:
        """Wrap every annotated function and method of these modules; a module's `forward` is seen when it is called."""
        changed: list[tuple[Any, str, Any]] = []
        try:
            for module in dict.fromkeys(modules):  # __main__ goes by two names in a child process
                for owner, name, function in _functions(module):
                    method = owner is not module
                    specs = _specs_of(function, method=method)
                    if specs is not None:
                        changed.append((owner, name, vars(owner)[name]))
                        setattr(owner, name, self._wrapped(function, specs, method=method))
            yield
        finally:
            for owner, name, function in reversed(changed):
                setattr(owner, name, function)

    def _wrapped(self, function: FunctionType, specs: ForwardSpecs, *, method: bool) -> Any:
        owner = function.__qualname__

        @functools.wraps(function)
        def seen(*args: Any, **kwargs: Any) -> Any:
            instance = args[0] if method and args else None
            call = self.enter(owner, specs, args[1:] if method else args, kwargs, instance)
            result = function(*args, **kwargs)
            self.leave(owner, specs, result, call, instance)
            return result

        return seen


def _made_in(code: CodeType | None, known: Traced) -> Place | None:
    """The line of a function that made its result; its last line where the result was made elsewhere."""
    made = known.record.place
    if code is None or (made is not None and made[0] is code):
        return made
    return code, max((line for _, _, line in code.co_lines() if line is not None), default=code.co_firstlineno)


def _functions(module: ModuleType) -> Iterator[tuple[Any, str, FunctionType]]:
    """Functions and methods that are written in this module, with whoever holds them."""
    for name, value in list(vars(module).items()):
        if getattr(value, "__module__", None) != module.__name__:
            continue
        if isinstance(value, FunctionType):
            yield module, name, value
        elif inspect.isclass(value):
            for inner, member in list(vars(value).items()):
                is_forward = inner == "forward" and issubclass(value, nn.Module)
                if isinstance(member, FunctionType) and not is_forward and not inner.startswith("__"):
                    yield value, inner, member


@functools.lru_cache(maxsize=8192)
def _specs_of(function: FunctionType, *, method: bool) -> ForwardSpecs | None:
    """The specs of a function's annotations; None where there are none, or none that can be read."""
    if not function.__annotations__:
        return None
    try:
        return ForwardSpecs(function, method=method) or None
    except (SpecError, InputError, TypeError, ValueError):  # reported where the checker reads the module
        return None
