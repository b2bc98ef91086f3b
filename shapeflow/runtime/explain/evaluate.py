"""What an expression of the failing line was worth, without running it again.

Names, attributes and items are looked up in the frame; what torch computes of them is computed for its shape alone, on
`meta`. The user's own functions and modules are not called, nor is anything with an effect: then there is no value.

>>> Evaluator(frame).value(ast.parse("x.flatten(1)", mode="eval").body).shape
torch.Size([4, 490])
"""

from __future__ import annotations

import ast
import builtins
import operator
import types
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from shapeflow.runtime.explain.pure import (
    BINARY,
    COMPARED,
    EFFECTS,
    FACTORIES,
    UNARY,
    UNMOVED,
    Unseen,
    attribute,
    is_torchs,
    mapped,
    module_on_meta,
    of_numbers,
    on_meta,
)

MOST_ITEMS = 64


class Evaluator:
    """Evaluates expressions in a frame, or among any names. `devices` are those of tensors that stand for real ones."""

    def __init__(self, local: Mapping[str, Any], scope: Mapping[str, Any] | None = None) -> None:
        self.local, self.scope = local, scope or {}
        self.twins: dict[int, nn.Module] = {}
        self._devices: dict[int, str] = {}
        self._kept: list[torch.Tensor] = []  # ids stay theirs while they live

    @staticmethod
    def of(frame: types.FrameType) -> Evaluator:
        return Evaluator(frame.f_locals, frame.f_globals)

    def value(self, node: ast.AST) -> Any:
        """The value of an expression; a tensor that torch would have computed is one on `meta`. Raises Unseen."""
        try:
            return self._value(node)
        except Unseen:
            raise
        except Exception as error:  # whatever the pieces do with each other: not this line's error, but no value
            raise Unseen from error

    def known(self, node: ast.AST, default: Any = None) -> Any:
        """The value, or `default` where there is none."""
        try:
            return self.value(node)
        except Unseen:
            return default

    def device(self, tensor: torch.Tensor) -> str:
        return self._devices.get(id(tensor), str(tensor.device))

    def _value(self, node: ast.AST) -> Any:
        handler = getattr(self, f"_{type(node).__name__.lower()}", None)
        if handler is None:
            raise Unseen
        return handler(node)

    def _constant(self, node: ast.Constant) -> Any:
        return node.value

    def _name(self, node: ast.Name) -> Any:
        for names in (self.local, self.scope, vars(builtins)):
            if node.id in names:
                return names[node.id]
        raise Unseen

    def _namedexpr(self, node: ast.NamedExpr) -> Any:
        return self._value(node.target)

    def _attribute(self, node: ast.Attribute) -> Any:
        return attribute(self._value(node.value), node.attr)

    def _subscript(self, node: ast.Subscript) -> Any:
        held, index = self._value(node.value), self._value(node.slice)
        if isinstance(held, torch.Tensor):
            return self._run(operator.getitem, (held, index), {})
        if isinstance(held, list | tuple | dict | str | nn.ModuleList | nn.Sequential | nn.ModuleDict):
            return held[index]
        if isinstance(held, nn.ParameterList | nn.ParameterDict):
            return held[index]
        raise Unseen

    def _slice(self, node: ast.Slice) -> slice:
        return slice(*(None if part is None else self._value(part) for part in (node.lower, node.upper, node.step)))

    def _tuple(self, node: ast.Tuple) -> tuple[Any, ...]:
        return tuple(self._items(node.elts))

    def _list(self, node: ast.List) -> list[Any]:
        return self._items(node.elts)

    def _items(self, nodes: list[ast.expr]) -> list[Any]:
        found: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                found += self._value(node.value)
            else:
                found.append(self._value(node))
        return found

    def _listcomp(self, node: ast.ListComp | ast.GeneratorExp) -> list[Any]:
        loop, *more = node.generators
        if more or loop.ifs or not isinstance(loop.target, ast.Name):
            raise Unseen
        held = self._value(loop.iter)
        if not isinstance(held, list | tuple | range | nn.ModuleList | nn.Sequential) or len(held) > MOST_ITEMS:
            raise Unseen
        return [self._with(loop.target.id, each)._value(node.elt) for each in held]

    _generatorexp = _listcomp

    def _with(self, name: str, value: Any) -> Evaluator:
        inner = Evaluator({**self.local, name: value}, self.scope)
        inner._devices, inner._kept = self._devices, self._kept
        return inner

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        return self._run(UNARY[type(node.op)], (self._value(node.operand),), {})

    def _binop(self, node: ast.BinOp) -> Any:
        return self._run(BINARY[type(node.op)], (self._value(node.left), self._value(node.right)), {})

    def _compare(self, node: ast.Compare) -> Any:
        if len(node.ops) > 1 or type(node.ops[0]) not in COMPARED:
            raise Unseen
        return self._run(COMPARED[type(node.ops[0])], (self._value(node.left), self._value(node.comparators[0])), {})

    def _ifexp(self, node: ast.IfExp) -> Any:
        return self._value(node.body if self._value(node.test) else node.orelse)

    def _boolop(self, node: ast.BoolOp) -> Any:
        found: Any = None
        for each in node.values:
            found = self._value(each)
            if bool(found) is isinstance(node.op, ast.Or):
                return found
        return found

    def _call(self, node: ast.Call) -> Any:
        function, first = self.function(node)
        args, kwargs = self.arguments(node)
        return self._run(function, (*first, *args), kwargs)

    def function(self, node: ast.Call) -> tuple[Any, tuple[Any, ...]]:
        """What a call calls, and the tensor in front of the method if it is a tensor's."""
        if isinstance(node.func, ast.Attribute):
            held = self._value(node.func.value)
            if issubclass(type(held), torch.Tensor):
                return getattr(torch.Tensor, node.func.attr), (held,)
            if isinstance(held, list | tuple | dict) and node.func.attr in ("keys", "values", "items", "index"):
                return getattr(held, node.func.attr), ()
            return attribute(held, node.func.attr), ()
        return self._value(node.func), ()

    def arguments(self, node: ast.Call) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call by position and by name."""
        kwargs: dict[str, Any] = {}
        for keyword in node.keywords:
            given = self.value(keyword.value)
            kwargs |= given if keyword.arg is None else {keyword.arg: given}
        return tuple(self._items(node.args)), kwargs

    def _run(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call that has none but its result; tensors go through it without their values."""
        tensors: list[torch.Tensor] = []
        mapped([args, kwargs], lambda each: tensors.append(each) or each)
        name = getattr(function, "__name__", "")
        if not tensors and not is_torchs(function, name):
            return of_numbers(function, args, kwargs)
        if name in UNMOVED and args and args[0] is tensors[0]:
            return args[0]
        if name in EFFECTS or not is_torchs(function, name):
            raise Unseen
        device = self.device(tensors[0]) if tensors else str(kwargs.get("device") or torch.get_default_device())
        args, kwargs = mapped(args, on_meta), mapped(kwargs, on_meta)
        if "device" in kwargs or name in FACTORIES:
            kwargs["device"] = "meta"
        if isinstance(function, nn.Module):
            function = self._twin(function)
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            result = function(*args, **kwargs)
        return mapped(result, lambda each: self._keep(each, device))

    def _twin(self, module: nn.Module) -> nn.Module:
        if id(module) not in self.twins:
            self.twins[id(module)] = module_on_meta(module)
        return self.twins[id(module)]

    def _keep(self, tensor: torch.Tensor, device: str) -> torch.Tensor:
        if not tensor.is_meta:
            raise Unseen
        self._kept.append(tensor)
        self._devices[id(tensor)] = device
        return tensor
