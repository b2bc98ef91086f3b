"""What a model is traced with: specs, tensors, structures of them, plain values, or nothing but its annotations.

>>> bound = bind(model.forward, ("B T:int64",), {})
>>> bound.arguments
{'ids': TensorSpec('B T:int64')}
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

from shapeflow.dims.annotation import Each, Fields, Specs, signature_of, specs_in
from shapeflow.dims.spec import TensorSpec, parse_spec
from shapeflow.errors import InputError
from shapeflow.trace.structure import copied_with, tensors_in

EXAMPLE = '"B T:int64", "B 3 224 224", a tensor, or a tuple, dict or dataclass of these'


@dataclasses.dataclass(frozen=True, slots=True)
class Bound:
    """Inputs by parameter name, in the order of the call: `positional` names first, then those given by keyword.

    A value is a `TensorSpec`, a tensor, a structure of them, or a plain Python value. `declared` holds what the
    annotations say of each, to name the axes of tensors that are given as such. `made_of` are the free sizes that the
    module itself is made of, when a `Recipe` is traced.
    """

    positional: dict[str, Any]
    keyword: dict[str, Any]
    declared: dict[str, Specs | None]
    made_of: tuple[str, ...] = ()

    @property
    def arguments(self) -> dict[str, Any]:
        return {**self.positional, **self.keyword}


def bind(function: Callable[..., Any], inputs: tuple[Any, ...], named: Mapping[str, Any], name: str) -> Bound:
    """Match inputs with the parameters of `function`; what is left out comes from annotations, or is an error."""
    signature = signature_of(function)
    if not signature.parameters:
        raise InputError(f"{name} takes no inputs: there is no shape to follow through it")
    arguments = _matched(signature, inputs, named, name)
    declared = {each.name: specs_in(each.annotation) for each in signature.parameters.values()}
    _fill_from_annotations(signature, arguments, declared, name)
    read = {key: _read(value, signature.parameters.get(key), key) for key, value in arguments.items()}
    _check_agreement(read)
    positional = _positional(signature, read)
    return Bound(positional, {key: value for key, value in read.items() if key not in positional}, declared)


def _matched(
    signature: inspect.Signature, inputs: tuple[Any, ...], named: Mapping[str, Any], name: str
) -> dict[str, Any]:
    try:
        bound = signature.bind_partial(*inputs, **named)
    except TypeError as error:
        raise InputError(f"{name} takes {_parameters(signature)}: {_plainly(str(error), signature, named)}") from None
    arguments: dict[str, Any] = {}
    for key, value in bound.arguments.items():
        kind = signature.parameters[key].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            arguments |= {f"{key}_{index}": item for index, item in enumerate(value)}
        elif kind is inspect.Parameter.VAR_KEYWORD:
            arguments |= value
        else:
            arguments[key] = value
    return arguments


def _plainly(reason: str, signature: inspect.Signature, named: Mapping[str, Any]) -> str:
    import difflib

    unknown = [key for key in named if key not in signature.parameters]
    if unknown and "unexpected keyword" in reason:
        near = difflib.get_close_matches(unknown[0], signature.parameters, n=1)
        return f"there is no input {unknown[0]!r}" + (f"; did you mean {near[0]!r}?" if near else "")
    return reason


def _parameters(signature: inspect.Signature) -> str:
    return (
        "(" + ", ".join(str(each).partition(":")[0].partition("=")[0] for each in signature.parameters.values()) + ")"
    )


def _fill_from_annotations(
    signature: inspect.Signature, arguments: dict[str, Any], declared: dict[str, Specs | None], name: str
) -> None:
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    missing = []
    for each in signature.parameters.values():
        if each.kind in variadic or each.name in arguments or each.default is not each.empty:
            continue
        specs = declared[each.name]
        if specs is None:
            missing.append(each.name)
        else:
            arguments[each.name] = _example(specs)
    none_given = not arguments and any(each.kind in variadic for each in signature.parameters.values())
    if missing or none_given:
        what = ", ".join(missing) or "its inputs"
        raise InputError(
            f"{name} needs {what}: give {'one' if len(missing) == 1 else 'each'} as {EXAMPLE}; "
            "or annotate forward with jaxtyping"
        )


def _example(specs: Specs) -> Any:
    """A structure of specs as an input: one item where there may be any number."""
    if isinstance(specs, Each):
        return [_example(specs.item)]
    if isinstance(specs, Fields):
        return _filled(specs.kind, {key: _example(inner) for key, inner in specs.items() if inner is not None})
    if isinstance(specs, tuple):
        return tuple(None if inner is None else _example(inner) for inner in specs)
    return specs


def _filled(kind: type, values: dict[str, Any]) -> Any:
    """An object with these fields; a dataclass without its constructor, which may check the types of what it gets."""
    if not dataclasses.is_dataclass(kind):
        return kind(**values)
    made = object.__new__(kind)
    for field in dataclasses.fields(kind):
        if field.name in values:
            value = values[field.name]
        elif field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        else:
            value = field.default
        if value is dataclasses.MISSING:
            raise InputError(f"{kind.__name__} needs {field.name}, which is no tensor: give one of your own")
        object.__setattr__(made, field.name, value)
    return made


def _read(value: Any, parameter: inspect.Parameter | None, key: str) -> Any:
    """Text becomes a spec, also inside structures; unless the parameter is one for text."""
    if isinstance(value, str):
        return value if parameter is not None and _takes_text(parameter) else parse_spec(value)
    if isinstance(value, TensorSpec | torch.Tensor):
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_read(item, None, key) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(_read(item, None, key) for item in value)
    if type(value) is dict:
        return {name: _read(item, None, key) for name, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: _read(getattr(value, field.name), None, key) for field in dataclasses.fields(value)}
        return copied_with(value, parts)
    return value


def _check_agreement(arguments: dict[str, Any]) -> None:
    """One name has one size: `B d=4` beside `B d=5` is a slip."""
    sizes: dict[str, int] = {}
    for key, value in arguments.items():
        for _, spec in tensors_in(value, at=TensorSpec):
            for symbol in (symbol for dim in spec.dims if dim.expr is not None for symbol in dim.expr.symbols):
                if symbol.value is not None and sizes.setdefault(symbol.name, symbol.value) != symbol.value:
                    raise InputError(
                        f"{symbol.name} is {sizes[symbol.name]} in one input and {symbol.value} in {key}: {spec}"
                    )


def _takes_text(parameter: inspect.Parameter) -> bool:
    return (
        isinstance(parameter.default, str)
        or parameter.annotation is str
        or "str" in str(parameter.annotation).split(" | ")
    )


def _positional(signature: inspect.Signature, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments that are passed by position: the leading ones, and those of `*args`."""
    found: dict[str, Any] = {}
    for each in signature.parameters.values():
        if each.kind is inspect.Parameter.VAR_POSITIONAL:
            found |= {key: value for key, value in arguments.items() if key.startswith(f"{each.name}_")}
        if each.kind not in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD):
            break
        if each.name not in arguments:
            break
        found[each.name] = arguments[each.name]
    return found
