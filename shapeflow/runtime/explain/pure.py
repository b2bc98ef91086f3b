"""What may be looked up and called without an effect: stored attributes, functions of torch, arithmetic.

>>> attribute(model, "n_heads"), is_torchs(torch.matmul, "matmul")
(4, True)
"""

from __future__ import annotations

import ast
import copy
import inspect
import math
import operator
import types
from collections.abc import Callable
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


class Unseen(Exception):
    """The value of this expression is not known without running the user's code."""


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


def is_torchs(function: Any, name: str) -> bool:
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


def module_on_meta(module: nn.Module) -> nn.Module:
    """A copy without values: other threads may be running the module itself."""
    states: list[torch.Tensor] = [*module.parameters(), *module.buffers()]
    memo = {id(each): on_meta(each) for each in states}
    with torch.no_grad():
        twin = copy.deepcopy(module, memo)
    return twin


@lru_cache(maxsize=1)
def _torch_functions() -> frozenset[Any]:
    return frozenset(torch.overrides.get_testing_overrides())


def of_numbers(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    pure = isinstance(function, types.BuiltinFunctionType) and vars(math).get(function.__name__) is function
    bound = isinstance(getattr(function, "__self__", None), list | tuple | dict)
    if not (pure or bound or any(function is each for each in (*PURE, torch.Size, slice))):
        raise Unseen
    return function(*args, **kwargs)
