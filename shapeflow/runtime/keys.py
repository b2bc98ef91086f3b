"""The part of a value that decides whether it fits: two values of one key both fit, or neither does.

A call whose arguments have a key that was seen, and passed, is not checked again: shapes and dtypes of arrays, classes
of other values. What has no such part (a protocol, an iterator) has no key, and is checked at every call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shapeflow.runtime.forms import (
    Anything,
    Array,
    Either,
    Fields,
    Form,
    Items,
    Kind,
    Named,
    Other,
    Table,
    Tuple,
    Values,
    inside,
)

UNKEYED = (AttributeError, TypeError, RuntimeError, ValueError)
"""What reading a key raises for a value that has none: no `shape`, an unhashable size, a nested tensor."""

Key = Callable[[Any], Any]
_WALKED = (list, tuple, set, frozenset)


def has_key(form: Form) -> bool:
    """Whether values of this form have keys. Braces read other values, so arrays with them have none."""
    return not any(
        isinstance(each, Other) or (isinstance(each, Array) and "{" in each.annotation.dim_str) for each in inside(form)
    )


def is_simple(form: Form) -> bool:
    """Whether the class alone decides."""
    match form:
        case Kind():
            return True
        case Either(options=options):
            return all(map(is_simple, options))
    return False


def is_array_or_none(form: Form) -> bool:
    """`Float[Tensor, "B T"] | None`, or several arrays."""
    match form:
        case Either(options=options):
            return all(isinstance(each, Array) or each == Kind(type(None)) for each in options)
    return False


def expression(form: Form, value: str, function: str) -> str:
    """Source that gives the key of the variable `value`; `function` is the name under which `key_of(form)` is known."""
    if isinstance(form, Anything):
        return ""
    if isinstance(form, Array):
        return f"type({value}), {value}.shape, {value}.dtype"
    if is_simple(form):
        return f"type({value})"
    if is_array_or_none(form):
        return f"None if {value} is None else (type({value}), {value}.shape, {value}.dtype)"
    return f"{function}({value})"


def key_of(form: Form) -> Key:
    """A function that gives the key of a value."""
    match form:
        case Anything():
            return lambda value: None
        case Array():
            return _array
        case Kind():
            return type
        case Values():
            return lambda value: (type(value), value)
        case Either(options=options):
            return _either(options)
        case Tuple(items=items):
            keys = tuple(map(key_of, items))
            return lambda value: (type(value), *(key(each) for key, each in zip(keys, value, strict=True)))
        case Named(fields=fields):
            named = tuple(key_of(each) for _, each in fields)
            return lambda value: (type(value), *(key(each) for key, each in zip(named, value, strict=True)))
        case Items(item=item):
            return _items(key_of(item))
        case Table(key=name, item=item):
            return _table(key_of(name), key_of(item))
        case Fields(fields=fields):
            return _fields({name: key_of(each) for name, each in fields})
        case Other():
            return _none
    raise AssertionError(form)


def _array(value: Any) -> Any:
    return type(value), value.shape, value.dtype


def _none(value: Any) -> Any:
    raise TypeError("this value has no key")


def _either(options: tuple[Form, ...]) -> Key:
    """An array tells itself; one option with a structure reads the rest, and more than one has no key."""
    structures = [each for each in options if not isinstance(each, Array | Kind | Values)]
    literal = any(isinstance(each, Values) for each in options)
    inner = key_of(structures[0]) if len(structures) == 1 else _none

    def key(value: Any) -> Any:
        if hasattr(value, "shape"):
            return _array(value)
        if structures and isinstance(value, (*_WALKED, Mapping)):
            return inner(value)
        return (type(value), value) if literal else type(value)

    return key


def _items(item: Key) -> Key:
    def key(value: Any) -> Any:
        if not isinstance(value, _WALKED):
            return _none(value)
        return type(value), tuple([item(each) for each in value])

    return key


def _table(name: Key, item: Key) -> Key:
    return lambda value: (type(value), tuple([(name(k), item(v)) for k, v in value.items()]))


def _fields(keys: Mapping[str, Key]) -> Key:
    return lambda value: (type(value), tuple([(k, keys[k](v) if k in keys else None) for k, v in value.items()]))
