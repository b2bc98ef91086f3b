"""The plain arguments of an operator by name: numbers, texts, sizes; what is no tensor. Defaults are filled in.

>>> arguments_of(node)                          # F.conv2d(x, w, stride=2), in the torch.fx graph
(('stride', (2, 2)), ('padding', (0, 0)), ('dilation', (1, 1)), ('groups', 1))

However the model spells a call, `x.softmax(-1)` or `F.softmax(x, dim=-1)`, its arguments are the same.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import fx

from shapeflow.dims.expr import Expr
from shapeflow.torch_private import Parameter, overloads_of
from shapeflow.trace.result import Argument, Arguments

LEFT_OUT = frozenset({"out", "layout", "device", "pin_memory", "generator", "requires_grad", "cudnn_enable", "path"})
"""What says nothing of the model: where a tensor is, and how it is made."""
QUIET = frozenset({"alpha", "beta", "norm_type", "memory_format"})
"""Told only where it is not the default, as is every flag that is off."""
INDEXING: Mapping[Any, tuple[str, ...]] = {
    operator.getitem: ("self", "index"),
    operator.setitem: ("self", "index", "value"),
}

_NOTHING = object()


def arguments_of(node: fx.Node) -> Arguments:
    """The plain arguments of a call; none where nobody can say what they are called."""
    if node.target is getattr or node.op not in ("call_function", "call_method"):
        return ()
    bound = _bound(node)
    return tuple((name, value) for name, given in bound.items() if (value := _plain(given)) is not _NOTHING)


def likeness(node: fx.Node) -> Any:
    """Equal for calls whose plain arguments are equal: layers that repeat are read once."""
    return node.op, node.target, _like(node.args), _like(tuple(node.kwargs.items()))


def _like(value: Any) -> Any:
    if isinstance(value, fx.Node):
        return value.meta.get("size", str(value.target).startswith("_object_"))
    if isinstance(value, tuple | list):
        return tuple(map(_like, value))
    if isinstance(value, dict):
        return _like(tuple(value.items()))
    if isinstance(value, slice):
        return slice, _like(value.start), _like(value.stop), _like(value.step)
    return type(value), value  # 1, True and 1.0 are equal


def _bound(node: fx.Node) -> dict[str, Any]:
    if node.target in INDEXING:
        named = dict(zip(INDEXING[node.target], node.args, strict=False))
        return {"index": _index(named["index"])} | ({"value": named["value"]} if "value" in named else {})
    function = getattr(torch.Tensor, str(node.target), None) if node.op == "call_method" else node.target
    signature = _signature(function)
    if signature is not None:
        return _by_signature(signature, node)
    name = getattr(function, "__name__", str(node.target)).strip("_")
    tried = (_by_overload(each, node, strict=strict) for strict in (True, False) for each in overloads_of(name))
    return next((found for found in tried if found is not None), {})


@cache
def _signature(function: Any) -> inspect.Signature | None:
    """The signature of a Python function; builtins have none, and some wrappers one that says nothing."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    silent = any(each.kind is each.VAR_POSITIONAL for each in signature.parameters.values())
    return None if silent or not inspect.isfunction(function) else signature


def _by_signature(signature: inspect.Signature, node: fx.Node) -> dict[str, Any]:
    bound = signature.bind(*node.args, **node.kwargs)
    bound.apply_defaults()
    defaults = {name: parameter.default for name, parameter in signature.parameters.items()}
    return dict(_told(bound.arguments, defaults))


def _by_overload(parameters: Sequence[Parameter], node: fx.Node, *, strict: bool) -> dict[str, Any] | None:
    """The arguments as one overload takes them, None where it does not; `strict`: and no others are given by name."""
    positional = [each for each in parameters if not each.by_name]
    known = {each.name: each for each in parameters}
    given = _gathered(positional, node.args)
    names = {"input": "self"} if "self" in known else {}
    named = {names.get(name, name): value for name, value in node.kwargs.items()}
    if given is None or (strict and not named.keys() <= known.keys()):
        return None
    pairs = [*zip([each.name for each in positional], given, strict=False), *named.items()]
    values = {name: value for name, value in pairs if value is not None}
    missing = any(each.default is inspect.Parameter.empty and each.name not in values for each in parameters)
    if missing or not all(_fits(known[name].kind, value) for name, value in values.items() if name in known):
        return None
    defaults = {each.name: each.default for each in parameters}
    full = {each.name: _as_list(each, values.get(each.name, each.default)) for each in parameters}
    return dict(_told(full, defaults))


def _gathered(positional: Sequence[Parameter], args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The positional arguments; what is written one by one, as in `view(b, t, d)`, is one list."""
    if len(args) <= len(positional) and all(
        value is None or _fits(p.kind, value) for p, value in zip(positional, args, strict=False)
    ):
        return args
    for i, each in enumerate(positional[: len(args)]):
        inner = each.kind.removeprefix("Optional[").removeprefix("List[").rstrip("]")
        if "List[" in each.kind and all(_fits(inner, value) for value in args[i:]):
            return (*args[:i], args[i:])
    return None


def _fits(kind: str, value: Any) -> bool:
    """Whether an argument may be of a kind that a schema tells: `Tensor`, `Optional[List[int]]`, `number`."""
    if kind.startswith("Optional["):
        return value is None or _fits(kind[9:-1], value)
    if isinstance(value, fx.Node) and "size" not in value.meta:
        return kind in ("Tensor", "number", "float")  # a float that is made of sizes is a node as well
    if kind.startswith("List["):
        items = value if isinstance(value, tuple | list) else [value]
        return all(_fits(kind[5:-1], item) for item in items)
    return isinstance(value, _TYPES.get(kind, object))


_TYPES: Mapping[str, Any] = {
    "Tensor": (),
    "int": (int, fx.Node, torch.dtype, torch.layout, torch.memory_format),
    "float": (float, int, fx.Node),
    "number": (float, int, complex, fx.Node),
    "bool": bool,
    "str": str,
    "Device": (str, torch.device, int),
}


def _as_list(parameter: Parameter, value: Any) -> Any:
    """`stride=2` of a convolution as `(2, 2)`, as its default is `(1, 1)`."""
    default = parameter.default
    if "List[int]" in parameter.kind and isinstance(default, list) and default and type(value) is int:
        return (value,) * len(default)
    return value


def _told(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        hushed = name in QUIET or value is False
        if name in LEFT_OUT or name.startswith("_") or (hushed and value == defaults.get(name)):
            continue
        yield name, value


def _plain(value: Any) -> Any:
    """A number, a text, a size or several of them; `_NOTHING` for tensors, None, and objects."""
    if isinstance(value, fx.Node):
        return value.meta.get("size", _NOTHING)
    if isinstance(value, bool | int | float | str | Expr):
        return value
    if isinstance(value, torch.dtype | torch.memory_format | torch.device | complex):
        return str(value).removeprefix("torch.")
    if isinstance(value, tuple | list):
        items = [_plain(item) for item in value]
        return _NOTHING if not items or any(item is _NOTHING for item in items) else tuple(items)
    return _NOTHING


def _index(index: Any) -> str:
    """What stands in the brackets: `:, -1`, `..., None`; `tensor` for each that is one."""
    if isinstance(index, tuple):
        return ", ".join(map(_index, index))
    if isinstance(index, slice):
        ends = [index.start, index.stop] + ([] if index.step is None else [index.step])
        return ":".join("" if end is None else _index(end) for end in ends)
    if isinstance(index, list):
        return f"[{', '.join(map(_index, index))}]"
    if isinstance(index, fx.Node):  # the graph keeps an Ellipsis as an object of its own
        return "..." if str(index.target).startswith("_object_") else str(index.meta.get("size", "tensor"))
    return str(index)


def spelt(arguments: Arguments, spell: Callable[[Expr], Expr]) -> Arguments:
    """The same with other words for the sizes in it."""
    return tuple((name, _spelt(value, spell)) for name, value in arguments)


def _spelt(value: Argument, spell: Callable[[Expr], Expr]) -> Argument:
    if isinstance(value, tuple):
        return tuple(_spelt(item, spell) for item in value)
    return _number(spell(value)) if isinstance(value, Expr) else value


def _number(size: Expr) -> int | Expr:
    return size if size.constant is None else size.constant


def named(arguments: Arguments, made: tuple[Expr, ...]) -> Arguments:
    """The sizes that `view` and its like are given, by the names of the axes that they make; -1 stays."""
    return tuple((name, _axes(value, made) if name in ("size", "shape") else value) for name, value in arguments)


def _axes(value: Argument, made: tuple[Expr, ...]) -> Argument:
    if not isinstance(value, tuple) or len(value) != len(made):
        return value
    return tuple(size if size == -1 else _number(dim) for size, dim in zip(value, made, strict=True))
