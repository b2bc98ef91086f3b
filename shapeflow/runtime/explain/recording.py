"""An evaluator that remembers of each tensor which operator made it, on which line, from which tensors.

>>> recorder.value(node)
>>> recorder.made[id(tensor)].operator
'conv2d'

The user's own modules and functions are not called: their statements are gone through with the same evaluator.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import types
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from shapeflow.check.cause.modular import operator_of
from shapeflow.check.cause.parameters import ALIASES
from shapeflow.runtime.explain.body import Body, function_at, parameters_of
from shapeflow.runtime.explain.evaluate import Evaluator
from shapeflow.runtime.explain.pure import Unseen, is_plain, mapped
from shapeflow.trace.functions import operator_name
from shapeflow.trace.result import Location
from shapeflow.trace.source import short_path

Key = tuple[int, int, int]
"""A node of a syntax tree, how often it was evaluated before, and which of its tensors: the same in each world."""
DEEPEST = 12
MOST_OPERATORS = 4000
"""What takes more is not followed to its end: an explanation should be there at once."""
WHOLE = (nn.RNNBase, nn.MultiheadAttention, nn.Transformer)


@dataclass(frozen=True, slots=True)
class Made:
    """How a tensor came about. `path` is that of the module, `inputs` are tensors, parameters last."""

    key: Key
    tensor: torch.Tensor = field(repr=False)
    operator: str
    path: str
    kind: str
    location: Location | None
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    inputs: tuple[torch.Tensor, ...] = field(repr=False)


@dataclass
class Memory:
    """What the recorders of one world have in common: one for each function that is gone through."""

    paths: Mapping[int, str]
    twins: dict[int, nn.Module]
    made: dict[int, Made] = field(default_factory=dict)
    by_key: dict[Key, torch.Tensor] = field(default_factory=dict)
    counts: Counter[int] = field(default_factory=Counter)


class Recorder(Evaluator):
    """Evaluates in one function; `path` is that of the module whose code it is."""

    def __init__(
        self,
        local: dict[str, Any],
        scope: Mapping[str, Any],
        memory: Memory,
        file: str,
        *,
        path: str = "",
        depth: int = 0,
    ) -> None:
        super().__init__(local, scope)
        self.names, self.memory, self.file, self.path, self.depth = local, memory, file, path, depth
        self.twins = memory.twins
        self._node: ast.AST | None = None
        self._known: dict[int, Any] = {}

    def once(self, node: ast.AST) -> Any:
        """The value of an expression, the same object each time. Raises Unseen."""
        if id(node) not in self._known:
            self._known[id(node)] = self.value(node)
        return self._known[id(node)]

    def _value(self, node: ast.AST) -> Any:
        if id(node) in self._known:
            return self._known[id(node)]
        before, self._node = self._node, node
        try:
            return super()._value(node)
        finally:
            self._node = before

    def _with(self, name: str, value: Any) -> Evaluator:
        inner = Recorder(
            {**self.names, name: value}, self.scope, self.memory, self.file, path=self.path, depth=self.depth
        )
        inner._devices, inner._kept = self._devices, self._kept
        return inner

    def function(self, node: ast.Call) -> tuple[Any, tuple[Any, ...]]:
        """What a call calls; a method of the user's own module is its function, with the module in front."""
        if isinstance(node.func, ast.Attribute):
            held = self.known(node.func.value)
            found = inspect.getattr_static(type(held), node.func.attr, None)
            stored = issubclass(type(held), nn.Module) and node.func.attr not in vars(held)
            if stored and isinstance(found, types.FunctionType):
                return found, (held,)
        return super().function(node)

    def _run(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if type(function) is nn.Sequential and len(args) == 1 and not kwargs and _quiet(function):
            (value,) = args
            for child in function:
                value = self._run(child, (value,), {})
            return value
        if isinstance(function, nn.Module) and not is_plain(function):
            return self._gone_through(type(function).forward, (function, *args), kwargs, function)
        if isinstance(function, types.FunctionType) and not function.__module__.startswith("torch"):
            return self._gone_through(function, args, kwargs, None)
        result = super()._run(function, args, kwargs)
        self._note(function, args, kwargs, result)
        return result

    def _gone_through(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], module: nn.Module | None
    ) -> Any:
        """What a function of the user's returns, statement by statement."""
        while hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        if self.depth >= DEEPEST or not isinstance(function, types.FunctionType) or (module and not _quiet(module)):
            raise Unseen
        definition = function_at(function.__code__)
        if definition is None:
            raise Unseen
        path = self.path if module is None else self.memory.paths.get(id(module), self.path)
        inner = Recorder(
            parameters_of(function, args, kwargs),
            function.__globals__,
            self.memory,
            function.__code__.co_filename,
            path=path,
            depth=self.depth + 1,
        )
        inner._devices, inner._kept = self._devices, self._kept
        return Body(inner, inner.names).result(definition)

    def _note(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        node = self._node
        if len(self.memory.made) > MOST_OPERATORS:
            raise Unseen
        count = self.memory.counts[id(node)]
        self.memory.counts[id(node)] += 1
        tensors: list[torch.Tensor] = []
        mapped(result, lambda each: tensors.append(each) or each)
        inputs: list[torch.Tensor] = []
        mapped([args, kwargs], lambda each: inputs.append(each) or each)
        operator, path, kind = self._operator(function)
        if isinstance(function, nn.Module):
            inputs += function.parameters(recurse=False)
        for at, tensor in enumerate(tensors):
            key = (id(node), count, at)
            same = any(each is tensor for each in inputs)  # written in place, or returned as it is
            if id(tensor) not in self.memory.made and not same:
                location = self._location(node)
                made = Made(key, tensor, operator, path, kind, location, args, kwargs, tuple(inputs))
                self.memory.made[id(tensor)] = made
            self.memory.by_key[key] = tensor

    def _operator(self, function: Any) -> tuple[str, str, str]:
        if not isinstance(function, nn.Module):
            name = operator_name(function)
            return ALIASES.get(name, name), self.path, ""
        path = self.memory.paths.get(id(function), "")
        name = type(function).__name__
        operator = operator_of(function, {})[0] if not isinstance(function, WHOLE) else name
        return operator.lower() if operator == name and not isinstance(function, WHOLE) else operator, path, name

    def _location(self, node: ast.AST | None) -> Location | None:
        line = getattr(node, "lineno", 0)
        return Location(short_path(self.file), line, linecache.getline(self.file, line).strip()) if line else None


def _quiet(module: nn.Module) -> bool:
    """Whether nothing is hung onto the module itself that would run beside its forward."""
    hooks = any(held for name, held in vars(module).items() if name.endswith("_hooks"))
    return not hooks and "forward" not in vars(module)
