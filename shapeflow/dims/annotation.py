"""jaxtyping annotations -> `TensorSpec`.

>>> str(spec_of(Int[Tensor, "B T"] | None))
'B T:int64'
>>> specs_in(tuple[Float[Tensor, "B T"], int])
(TensorSpec(...), None)

`dim_str` is parsed, as jaxtyping's own `.dims` has lost the labels. What cannot be read is an error, never `Any`.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, Union

from shapeflow.dims.dtype import DEFAULT_DTYPE, DTYPES
from shapeflow.dims.signature import evaluated, signature_of, type_parameters
from shapeflow.dims.spec import TensorSpec, parse_spec
from shapeflow.errors import SpecError

__all__ = ["Each", "Fields", "Specs", "alternatives", "signature_of", "spec_of", "specs_in"]

Specs: TypeAlias = "TensorSpec | tuple[Specs | None, ...] | Fields | Each"

_WRAPPERS = (typing.Annotated, typing.Required, typing.NotRequired, typing.Final, typing.ClassVar)
_BRACED = re.compile(r"(?<!\S)#?([\w+\-*/%()]*\{[^{}]*\}[\w+\-*/%()]*)+(?!\S)")
_ATTRIBUTE = re.compile(r"#?\{\s*self\.(\w+)\s*\}")
_OURS_ALONE = {
    "<": "jaxtyping takes a bound for a size: declare it with the input instead",
    ">": "jaxtyping takes a bound for a size: declare it with the input instead",
    "^": "`^` is no power to jaxtyping, write `**`",
    ":": "the dtype of an annotation stands in front",
}


@dataclass(frozen=True, slots=True)
class Each:
    """Any number of the same: `list[X]`, `tuple[X, ...]`, `dict[str, X]`."""

    item: Specs


class Fields(dict[str, "Specs | None"]):
    """The specs of a class with fields, by name. `kind` is that class: a dataclass, NamedTuple or TypedDict."""

    def __init__(self, kind: type, specs: Mapping[str, Specs | None]) -> None:
        super().__init__(specs)
        self.kind = kind


def spec_of(annotation: object) -> TensorSpec | None:
    """The spec of a jaxtyping array type, or of the first one of a union; None when there is none.

    Raises SpecError for an array type whose shape or dtype cannot be read.
    """
    return next(iter(alternatives(annotation)), None)


def alternatives(annotation: object) -> tuple[TensorSpec, ...]:
    """The specs of all array types of a union, in order, without repeats."""
    specs = map(_array_spec, _options(annotation))
    return tuple(dict.fromkeys(spec for spec in specs if spec is not None))


def specs_in(annotation: object) -> Specs | None:
    """The specs inside an annotation, in its own structure; None when it holds no array type.

    A tuple gives a tuple, a dataclass, NamedTuple or TypedDict its `Fields`, both with None for what is no tensor.
    Of a union it is the first member that holds an array type.
    """
    return _specs(annotation, ())


def _specs(annotation: object, outer: tuple[object, ...]) -> Specs | None:
    for option in _options(annotation):
        found = _array_spec(option)
        if found is None and not any(option is each for each in outer):  # fields may be of the class' own type
            found = _structure(option, (*outer, option))
        if found is not None:
            return found
    return None


def _options(annotation: Any) -> Iterator[object]:
    """The members of a union, each without the wrappers that say nothing of its type."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in _WRAPPERS:
        inner = inner[:1]
    elif isinstance(annotation, typing.TypeVar):
        inner = (annotation.__bound__,) if annotation.__bound__ else annotation.__constraints__
    elif isinstance(annotation, dataclasses.InitVar):
        inner = (annotation.type,)
    elif isinstance(annotation, typing.NewType):
        inner = (annotation.__supertype__,)
    elif type(alias := origin or annotation).__name__ == "TypeAliasType":  # typing's, or typing_extensions' before 3.12
        inner = (_filled(alias.__value__, alias.__type_params__, inner),)
    elif origin not in (Union, types.UnionType):
        yield annotation
        return
    for option in inner:
        yield from _options(option)


def _structure(annotation: object, outer: tuple[object, ...]) -> Specs | None:
    kind, inner = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    if not inspect.isclass(kind):
        return None
    if names := _field_names(kind):
        hints = _field_hints(kind, inner)
        fields = Fields(kind, {name: _specs(hints.get(name), outer) for name in names})
        return fields if any(spec is not None for spec in fields.values()) else None
    if issubclass(kind, tuple) and inner[1:] != (...,):
        items = tuple(_specs(each, outer) for each in inner)
        return items if any(spec is not None for spec in items) else None
    if not inner or not issubclass(kind, Iterable):
        return None
    item = _specs(inner[-1 if issubclass(kind, Mapping) else 0], outer)  # a Counter names its keys alone
    return None if item is None else Each(item)


def _field_names(kind: type) -> tuple[str, ...]:
    if dataclasses.is_dataclass(kind):
        return tuple(each.name for each in dataclasses.fields(kind))
    if typing.is_typeddict(kind):
        return tuple(inspect.get_annotations(kind))
    return getattr(kind, "_fields", ()) if issubclass(kind, tuple) else ()


def _field_hints(kind: type, arguments: tuple[object, ...]) -> dict[str, object]:
    """The resolved annotations of a class with fields; `arguments` fill the parameters of a generic one."""
    hints: dict[str, object] = {}
    for base in reversed(kind.__mro__):
        scope = vars(sys.modules[base.__module__]) if base.__module__ in sys.modules else {}
        local = {**vars(base), **type_parameters(base)}
        for name, annotation in inspect.get_annotations(base).items():
            hints[name] = evaluated(annotation, scope, local, f"the field `{name}` of {base.__qualname__}")
    parameters = getattr(kind, "__parameters__", ())
    return {name: _filled(hint, parameters, arguments) for name, hint in hints.items()}


def _filled(hint: Any, parameters: Iterable[object], arguments: Iterable[object]) -> object:
    """`list[T]` with T = int is `list[int]`; parameters without an argument stay."""
    known: dict[object, object] = dict(zip(parameters, arguments, strict=False))
    if isinstance(hint, typing.TypeVar):
        return known.get(hint, hint)
    inner = getattr(hint, "__parameters__", ())
    return hint[tuple(known.get(each, each) for each in inner)] if known and inner else hint


def _array_spec(annotation: object) -> TensorSpec | None:
    jaxtyping: Any = sys.modules.get("jaxtyping")  # whoever wrote the annotation has imported it
    if jaxtyping is None or not inspect.isclass(annotation):
        return None
    if issubclass(annotation, jaxtyping.AbstractDtype):
        name = annotation.__name__
        raise SpecError(name, len(name), "an array type and a shape are missing", f'{name}[Tensor, "B T"]')
    if not issubclass(annotation, jaxtyping.AbstractArray) or annotation is jaxtyping.AbstractArray:
        return None
    return _read(annotation)


def _read(annotation: Any) -> TensorSpec:
    """The spec of a jaxtyping array type; an error shows the whole annotation."""
    array = getattr(annotation.array_type, "__name__", str(annotation.array_type))
    before = f'{annotation.dtype.__name__}[{array}, "'
    try:
        _refuse_ours_alone(annotation.dim_str)
        spec = parse_spec(_BRACED.sub(_without_braces, annotation.dim_str))
    except SpecError as error:
        hint = f'{before}{error.hint}"]' if error.hint else ""
        shown = f'{before}{error.text}"]'
        raise SpecError(shown, len(before) + error.position, error.reason, hint) from None  # the same, as it is written
    dtype = _dtype(annotation.dtypes)
    if dtype is None:
        raise SpecError(f'{before}{annotation.dim_str}"]', 0, f"torch has no dtype of {annotation.dtype.__name__}")
    return replace(spec, dtype=dtype)


def _refuse_ours_alone(dim_str: str) -> None:
    """What is in our grammar, but means another thing to jaxtyping: its own check would refuse the right sizes."""
    for at, char in enumerate(dim_str):
        if char in _OURS_ALONE:
            raise SpecError(dim_str, at, _OURS_ALONE[char], _without_ours(dim_str))


def _without_braces(axis: re.Match[str]) -> str:
    """`{self.d}` is the axis `d`; other braces read a value when the code runs: the axis has no name until then."""
    attribute = _ATTRIBUTE.fullmatch(axis[0])
    return attribute[1] if attribute else "_"


def _without_ours(dim_str: str) -> str:
    return re.sub(r"([<>]=?[\w*]*)+|:\s*\w*", "", dim_str).replace("^", "**")


def _dtype(allowed: object) -> str | None:
    """The most usual dtype that an annotation allows; jaxtyping compares names, or matches patterns with them."""
    if not isinstance(allowed, (tuple, list)):  # its sentinel for any
        return DEFAULT_DTYPE
    for dtype in DTYPES:
        if any(each.match(dtype) if isinstance(each, re.Pattern) else each == dtype for each in allowed):
            return dtype
    return None
