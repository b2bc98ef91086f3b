"""What an annotation asks of a value, read once: arrays, the containers that hold them, classes, and the rest.

>>> form_of(list[Float[Tensor, "B T"]] | None)
Either(options=(Items(kind=<class 'list'>, item=Array(...)), Kind(kind=<class 'NoneType'>)))

What is no array and no container of arrays is beartype's: a class is one `isinstance`, all else `Other`.
"""

from __future__ import annotations

import abc
import collections
import collections.abc
import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from shapeflow.runtime.memo import AbstractArray


@dataclass(frozen=True, slots=True)
class Anything:
    """No annotation, `Any`, `object`: nothing to check."""


@dataclass(frozen=True, slots=True)
class Array:
    """A jaxtyping array type."""

    annotation: Any


@dataclass(frozen=True, slots=True)
class Kind:
    """A class: its instances fit, whatever they hold."""

    kind: Any


@dataclass(frozen=True, slots=True)
class Values:
    """`Literal["error", "zero"]`."""

    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """A union: the first option that fits."""

    options: tuple[Form, ...]


@dataclass(frozen=True, slots=True)
class Items:
    """`list[X]`, `Sequence[X]`, `tuple[X, ...]`: every item is looked at."""

    kind: Any
    item: Form


@dataclass(frozen=True, slots=True)
class Tuple:
    """`tuple[X, Y]`: one form for each place."""

    items: tuple[Form, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """`dict[K, X]`: every key and every value is looked at."""

    kind: Any
    key: Form
    item: Form


@dataclass(frozen=True, slots=True)
class Fields:
    """A TypedDict: its fields by name, and those that may be missing."""

    kind: Any
    fields: tuple[tuple[str, Form], ...]
    optional: frozenset[str]


@dataclass(frozen=True, slots=True)
class Named:
    """A NamedTuple: a form for each field."""

    kind: Any
    fields: tuple[tuple[str, Form], ...]


@dataclass(frozen=True, slots=True)
class Other:
    """What only beartype reads: protocols, validators, containers without arrays."""

    hint: Any


Form: TypeAlias = "Anything | Array | Kind | Values | Either | Items | Tuple | Table | Fields | Named | Other"

_NOTHING_TO_CHECK = (Any, object, inspect.Parameter.empty, typing.Self, typing.NoReturn, typing.Never)
_TABLES = (dict, collections.OrderedDict, collections.defaultdict)
_ABSTRACT_TABLES = (collections.abc.Mapping, collections.abc.MutableMapping)
_ITEMS = (list, set, frozenset, collections.deque)
_ABSTRACT_ITEMS = (
    collections.abc.Sequence,
    collections.abc.MutableSequence,
    collections.abc.Collection,
    collections.abc.Iterable,
    collections.abc.Set,
)


def form_of(hint: Any, *, every_item: bool | None = None) -> Form:
    """The form of an annotation that is an object.

    `every_item`: True looks at all items of all containers; False at one of each, as beartype does; None, the default,
    at all items where they hold arrays, and at one of a list of numbers, which may be long.
    """
    return _Reader(every_item).form(hint)


def is_array(hint: Any) -> bool:
    """Whether an annotation is a jaxtyping array type."""
    return isinstance(hint, type(AbstractArray)) and hint is not AbstractArray


def is_named_tuple(hint: Any) -> bool:
    """Whether it is a class of tuples whose fields have names and annotations."""
    return isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields")


def inside(form: Form) -> Iterator[Form]:
    """The form and all forms within it."""
    yield form
    for part in _parts(form):
        yield from inside(part)


def arrays_in(form: Form) -> list[Any]:
    """The jaxtyping array types of a form."""
    return [each.annotation for each in inside(form) if isinstance(each, Array)]


def _parts(form: Form) -> tuple[Form, ...]:
    match form:
        case Either(options=parts) | Tuple(items=parts):
            return parts
        case Items(item=item):
            return (item,)
        case Table(key=key, item=item):
            return (key, item)
        case Fields(fields=fields) | Named(fields=fields):
            return tuple(part for _, part in fields)
    return ()


def _is_for_readers_alone(hint: Any) -> bool:
    """A protocol that is not `@runtime_checkable`: typing itself refuses to look whether an object follows it."""
    protocol = typing.get_origin(hint) or hint
    return getattr(protocol, "_is_protocol", False) and not getattr(protocol, "_is_runtime_protocol", False)


def _left_to_beartype(hint: Any) -> Form:
    """What holds no array; beartype refuses to read one with such a protocol in it."""
    return Anything() if _names_readers_alone(hint) else Other(hint)


def _names_readers_alone(hint: Any) -> bool:
    return _is_for_readers_alone(hint) or any(map(_names_readers_alone, typing.get_args(hint)))


@dataclass(frozen=True, slots=True)
class _Reader:
    """`around` are the records whose fields are being read: one that holds its own kind is read once."""

    every_item: bool | None
    around: frozenset[Any] = frozenset()

    def form(self, hint: Any) -> Form:
        if any(hint is each for each in _NOTHING_TO_CHECK) or _is_for_readers_alone(hint):
            return Anything()
        if hint is None:
            return Kind(type(None))
        for read in (self._class, self._wrapper, self._generic):
            found = read(hint)
            if found is not None:
                return found
        return _left_to_beartype(hint)

    def _class(self, hint: Any) -> Form | None:
        if isinstance(hint, types.GenericAlias) or not isinstance(hint, type):
            return None
        if is_array(hint):
            return Array(hint)
        if hint in self.around:
            return Kind(dict if typing.is_typeddict(hint) else hint)
        if typing.is_typeddict(hint):
            return self._fields(hint)
        if is_named_tuple(hint):
            return self._named(hint)
        return Kind(hint) if _asks_only_the_class(hint) else None

    def _wrapper(self, hint: Any) -> Form | None:
        """What says nothing of the type, or stands for another."""
        origin, inner = typing.get_origin(hint), typing.get_args(hint)
        if origin in (typing.Union, types.UnionType):
            return _either(self.form(each) for each in inner)
        if origin is typing.Literal:
            return Values(inner)
        if origin in (typing.Final, typing.ClassVar, typing.Required, typing.NotRequired):
            return self.form(inner[0])
        if origin is typing.Annotated and not any("beartype" in type(each).__module__ for each in inner[1:]):
            return self.form(inner[0])
        if origin is typing.Unpack:  # of **options; that of *args is read by nobody
            return (self._fields(inner[0]) if typing.is_typeddict(inner[0]) else None) or Anything()
        if isinstance(hint, dataclasses.InitVar):
            return self.form(hint.type)
        if isinstance(hint, typing.NewType):
            return self.form(hint.__supertype__)
        if isinstance(hint, typing.TypeVar):
            return _either(map(self.form, (hint.__bound__,) if hint.__bound__ else hint.__constraints__))
        if isinstance(hint, typing.ParamSpecArgs | typing.ParamSpecKwargs | typing.TypeVarTuple):
            return Anything()
        return None

    def _generic(self, hint: Any) -> Form | None:
        origin, inner = typing.get_origin(hint), typing.get_args(hint)
        if origin is collections.abc.Callable:
            return Kind(collections.abc.Callable)
        found: Form | None = None
        if origin is tuple and inner[1:] != (...,):
            return Tuple(tuple(map(self.form, inner)))
        if origin is tuple or origin in (*_ITEMS, *_ABSTRACT_ITEMS):
            found = Items(origin, self.form(inner[0]))
        elif origin in (*_TABLES, *_ABSTRACT_TABLES):
            found = Table(origin, self.form(inner[0]), self.form(inner[1]))
        return found if found is not None and self._wanted(found) else None

    def _wanted(self, form: Form) -> bool:
        return bool(arrays_in(form)) if self.every_item is None else self.every_item

    def _fields(self, hint: Any) -> Form | None:
        found = Fields(hint, self._forms(typing.get_type_hints(hint), hint), frozenset(hint.__optional_keys__))
        return found if self._wanted(found) else None

    def _named(self, hint: Any) -> Form:
        try:
            hints = typing.get_type_hints(hint)
        except NameError:  # names for type checkers only: what it is can be told, what it holds cannot
            return Kind(hint)
        found = Named(hint, self._forms({name: hints.get(name, Any) for name in hint._fields}, hint))
        return found if self._wanted(found) else Kind(hint)

    def _forms(self, hints: dict[str, Any], record: Any) -> tuple[tuple[str, Form], ...]:
        inner = _Reader(self.every_item, self.around | {record})
        return tuple((name, inner.form(each)) for name, each in hints.items())


def _either(options: Iterator[Form]) -> Form:
    forms = tuple(options)
    if not forms or any(isinstance(each, Anything) for each in forms):
        return Anything()
    return forms[0] if len(forms) == 1 else Either(forms)


def _asks_only_the_class(hint: type) -> bool:
    """Whether `isinstance` looks at nothing but the class of the value: no protocol, no hook of a metaclass."""
    ask: Callable[..., bool] = type(hint).__instancecheck__
    return ask in (type.__instancecheck__, abc.ABCMeta.__instancecheck__) and hint is not typing.Generic
