"""The arguments of a class or a factory: which are sizes, and where a name goes when it is a configuration's field.

>>> others = {"vocab": 100, "max_len": 64, "n_heads": 4, "d_ff": 8, "n_layers": 2}
>>> constructor = constructor_of(GPT, ("d_model",), others)
>>> constructor({"d_model": 32})            # GPT(GPTConfig(d_model=32, vocab=100, ...))
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from shapeflow.dims.annotation import signature_of
from shapeflow.errors import InputError

VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, slots=True)
class Constructor:
    """Calls `maker` with fixed `arguments` and given sizes.

    `config` is the argument that some of them are `fields` of: one of `arguments`, or one that `made_by` makes.
    """

    maker: Callable[..., nn.Module]
    arguments: Mapping[str, Any]
    config: str = ""
    fields: tuple[str, ...] = ()
    made_by: Callable[..., Any] | None = None

    @property
    def name(self) -> str:
        return getattr(self.maker, "__name__", type(self.maker).__name__)

    def __call__(self, sizes: Mapping[str, Any]) -> nn.Module:
        inner = {name: size for name, size in sizes.items() if name in self.fields}
        arguments = {**self.arguments, **{name: size for name, size in sizes.items() if name not in inner}}
        if self.made_by is not None:
            own = {name: arguments.pop(name) for name in self.fields if name in arguments}
            arguments[self.config] = self.made_by(**own, **inner)
        elif inner:
            arguments[self.config] = dataclasses.replace(arguments[self.config], **inner)
        made = self.maker(**arguments)
        if not isinstance(made, nn.Module):
            raise InputError(f"{self.name} makes {type(made).__name__}, no nn.Module")
        return made


def constructor_of(maker: Callable[..., Any], names: tuple[str, ...], arguments: Mapping[str, Any]) -> Constructor:
    """The constructor with its arguments sorted. Raises InputError for what does not fit its signature."""
    if isinstance(maker, nn.Module):
        raise InputError(f"{type(maker).__name__} is built already: give the class or a factory")
    if not callable(maker):
        raise InputError(f"a class or a factory makes modules, not {type(maker).__name__}")
    parameters = _parameters(maker)
    known = _known(maker, parameters, arguments, [*names, *arguments])
    title = known.name
    for name in names:
        if name in arguments:
            raise InputError(f"{name} of {title} is given as {arguments[name]!r} and is to be a symbol")
    _refuse_unknown(title, [*names, *arguments], parameters, known)
    for name in names:
        _refuse_no_size(title, parameters[name] if name in parameters else _field(known, name))
    _refuse_missing(title, parameters, known, {*names, *arguments})
    return known


def _parameters(maker: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    try:
        return dict(signature_of(maker).parameters)
    except InputError:  # an annotation that does not resolve
        return dict(inspect.signature(maker).parameters)


def _known(
    maker: Callable[..., Any],
    parameters: Mapping[str, inspect.Parameter],
    arguments: Mapping[str, Any],
    wanted: list[str],
) -> Constructor:
    """The constructor; with the argument whose fields the other names are, if there is one."""
    inner = {name for name in wanted if name not in parameters}
    for name, value in arguments.items():
        fields = _fields(value)
        if name in parameters and inner & fields.keys():
            return Constructor(maker, arguments, name, tuple(fields))
    for name, parameter in parameters.items():
        kind = parameter.annotation
        fields = _fields(kind) if isinstance(kind, type) else {}
        if name not in arguments and inner & fields.keys():
            return Constructor(maker, arguments, name, tuple(fields), kind)
    return Constructor(maker, arguments)


def _fields(config: Any) -> dict[str, dataclasses.Field[Any]]:
    if not dataclasses.is_dataclass(config):
        return {}
    return {each.name: each for each in dataclasses.fields(config) if each.init}


def _field(known: Constructor, name: str) -> inspect.Parameter:
    """A field of the configuration as if it were an argument."""
    kind: Any = known.made_by or type(known.arguments.get(known.config))
    found = _fields(kind).get(name)
    default = inspect.Parameter.empty
    if found is not None and found.default is not dataclasses.MISSING:
        default = found.default
    try:
        hint = typing.get_type_hints(kind).get(name, inspect.Parameter.empty)
    except (NameError, TypeError):  # an annotation that does not resolve says nothing
        hint = inspect.Parameter.empty
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _refuse_unknown(
    title: str, wanted: list[str], parameters: Mapping[str, inspect.Parameter], known: Constructor
) -> None:
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        return
    choices = [name for name, each in parameters.items() if each.kind not in VARIADIC] + list(known.fields)
    for name in wanted:
        if name not in choices:
            near = difflib.get_close_matches(name, choices, n=1)
            more = f"; did you mean {near[0]}?" if near else f"; it takes {', '.join(choices) or 'nothing'}"
            raise InputError(f"{title} has no argument {name}{more}")


def _refuse_no_size(title: str, parameter: inspect.Parameter) -> None:
    """A flag, a rate, a text: no formula can be made of them."""
    hint, default = parameter.annotation, parameter.default
    options = typing.get_args(hint) or (hint,)
    plain = [each for each in options if each in (int, bool, float, str)]
    kind = plain[0] if plain and int not in plain else None
    if hint is inspect.Parameter.empty and type(default) in (bool, float, str):
        kind = type(default)
    if kind is not None:
        raise InputError(f"{parameter.name} of {title} is a {kind.__name__}, no size: only integers can be symbols")


def _refuse_missing(
    title: str, parameters: Mapping[str, inspect.Parameter], known: Constructor, given: set[str]
) -> None:
    needed = [
        name
        for name, each in parameters.items()
        if each.default is each.empty and each.kind not in VARIADIC and name != known.config
    ]
    if known.made_by is not None:
        needed += [name for name in known.fields if _field(known, name).default is inspect.Parameter.empty]
        factories = {
            name for name, each in _fields(known.made_by).items() if each.default_factory is not dataclasses.MISSING
        }
        needed = [name for name in needed if name not in factories]
    missing = [name for name in needed if name not in given]
    if missing:
        raise InputError(f"{title} needs {', '.join(missing)}: a name among the symbols, or a value")
