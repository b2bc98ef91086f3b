"""What an expression of the failing line was worth, without running it again.

Names, attributes and items are looked up in the frame; what torch computes of them is computed for its shape alone, on
`meta`. The user's own functions and modules are not called, nor is anything with an effect: then there is no value.

>>> Evaluator(frame).value(ast.parse("x.flatten(1)", mode="eval").body).shape
torch.Size([4, 490])
"""

from __future__ import annotations

import ast
import builtins
import copy
import inspect
import math
import operator
import types
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import nn

BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.MatMult: operator.matmul,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}
COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
    ast.Not: operator.not_,
}
PURE = frozenset({len, int, float, bool, str, abs, min, max, sum, round, range, list, tuple, dict, zip, enumerate})
"""Builtins that are called, on numbers and containers."""
ATTRIBUTES = frozenset("shape ndim dtype device T mT H mH data real imag requires_grad is_cuda".split())
FACTORIES = frozenset("zeros ones empty full rand randn randint arange linspace eye tril_indices triu_indices".split())
UNMOVED = frozenset("cpu cuda contiguous".split())
"""Methods that a tensor on `meta` has no need of, or refuses."""
EFFECTS = frozenset("backward item tolist numpy register_hook share_memory_ set_ data_ptr __setstate__".split())
MOST_ITEMS = 64


class Unseen(Exception):
    """The value of this expression is not known without running the user's code."""


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
        if not tensors and not _is_torchs(function, name):
            return _of_numbers(function, args, kwargs)
        if name in UNMOVED and args and args[0] is tensors[0]:
            return args[0]
        if name in EFFECTS or not _is_torchs(function, name):
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
            self.twins[id(module)] = _module_on_meta(module)
        return self.twins[id(module)]

    def _keep(self, tensor: torch.Tensor, device: str) -> torch.Tensor:
        if not tensor.is_meta:
            raise Unseen
        self._kept.append(tensor)
        self._devices[id(tensor)] = device
        return tensor


def mapped(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The value with each tensor in it changed: in tuples, lists and dictionaries."""
    if issubclass(type(value), torch.Tensor):
        return change(value)
    if type(value) is dict:
        return {key: mapped(item, change) for key, item in value.items()}
    if type(value) is slice:
        return slice(*(mapped(item, change) for item in (value.start, value.stop, value.step)))
    if not issubclass(type(value), list | tuple) or isinstance(value, torch.Size):
        return value
    items = [mapped(item, change) for item in value]
    return type(value)(items) if type(value) in (list, tuple) or hasattr(value, "n_fields") else type(value)(*items)


def attribute(held: Any, name: str) -> Any:
    """An attribute that is merely stored: a property would be the user's code. Raises Unseen."""
    if isinstance(held, torch.Tensor):
        if name not in ATTRIBUTES:
            raise Unseen
        return getattr(held, name) if name in ("shape", "ndim", "dtype", "device") else getattr(on_meta(held), name)
    if isinstance(held, nn.Module):
        stored = dict(
            [*held.named_children(), *held.named_buffers(recurse=False), *held.named_parameters(recurse=False)]
        )
        if name in stored:
            return stored[name]
    found = inspect.getattr_static(held, name, None)
    if isinstance(found, types.MemberDescriptorType) or type(found).__name__ == "_tuplegetter":
        return getattr(held, name)
    if found is None and name not in getattr(held, "__dict__", {}) and not hasattr(type(held), name):
        raise Unseen
    if not isinstance(held, types.ModuleType | type) and (callable(found) and not isinstance(found, nn.Module)):
        raise Unseen
    if hasattr(type(found), "__get__") and not isinstance(held, types.ModuleType):
        raise Unseen
    return found


def on_meta(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without its values: same sizes, strides and dtype."""
    if tensor.is_meta and type(tensor) is torch.Tensor:
        return tensor
    if type(tensor) not in (torch.Tensor, nn.Parameter) or tensor.layout != torch.strided:
        raise Unseen
    return torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device="meta")


def _is_torchs(function: Any, name: str) -> bool:
    """Whether it is one of torch's functions or modules, of those that compute."""
    if isinstance(function, nn.Module):
        return all(is_plain(each) for each in function.modules())
    if function in BINARY.values() or function in UNARY.values() or function in COMPARED.values():
        return True
    if function is operator.getitem or (name in FACTORIES and getattr(torch, name) is function):
        return True
    return isinstance(function, types.FunctionType | types.BuiltinFunctionType | types.MethodDescriptorType) and (
        function in _torch_functions()
    )


def is_plain(module: nn.Module) -> bool:
    """A module of torch's own with nothing hung onto it."""
    hooks = any(held for name, held in vars(module).items() if name.endswith("_hooks"))
    return type(module).__module__.startswith("torch.nn.modules.") and not hooks and "forward" not in vars(module)


def _module_on_meta(module: nn.Module) -> nn.Module:
    """A copy without values: other threads may be running the module itself."""
    states: list[torch.Tensor] = [*module.parameters(), *module.buffers()]
    memo = {id(each): on_meta(each) for each in states}
    with torch.no_grad():
        twin = copy.deepcopy(module, memo)
    return twin


@lru_cache(maxsize=1)
def _torch_functions() -> frozenset[Any]:
    return frozenset(torch.overrides.get_testing_overrides())


def _of_numbers(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    pure = isinstance(function, types.BuiltinFunctionType) and vars(math).get(function.__name__) is function
    bound = isinstance(getattr(function, "__self__", None), list | tuple | dict)
    if not (pure or bound or any(function is each for each in (*PURE, torch.Size, slice))):
        raise Unseen
    return function(*args, **kwargs)
