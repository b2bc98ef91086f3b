"""Whether a value fits the form of its annotation, every item of it, and what is wrong where it does not.

>>> fit = Fit(Bindings())
>>> fit.check([torch.zeros(2, 3), torch.zeros(2, 4)], form_of(list[Float[Tensor, "B d"]]), "xs")
Fault(what='xs[1]', value=tensor(...), form=Array(...))
"""

from __future__ import annotations

import collections.abc
import reprlib
from dataclasses import dataclass
from typing import Any

import torch
from beartype.door import is_bearable

from shapeflow.runtime import memo
from shapeflow.runtime.bindings import Bindings
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
)

_SYMBOLIC = {torch.SymInt: 0, torch.SymFloat: 0.0, torch.SymBool: False}
_PLAIN_ARRAYS = ("Tensor", "Parameter", "ndarray")


@dataclass(frozen=True, slots=True)
class Fault:
    """A value, or an item of one, that does not fit; `what` names it: `x`, `xs[1]`, `batch['ids']`, `the result`."""

    what: str
    value: Any
    form: Form
    note: str = ""


class Fit:
    """One call's values against their forms.

    `lasting` says whether a key may stand for what was seen, `numbers` whether all sizes are numbers: in a trace they
    are not.
    """

    __slots__ = ("bindings", "lasting", "numbers")

    def __init__(self, bindings: Bindings) -> None:
        self.bindings = bindings
        self.lasting = True
        self.numbers = True

    def check(self, value: Any, form: Form, what: str) -> Fault | None:
        """The first fault in a value, in the order of its items."""
        match form:
            case Anything():
                return None
            case Array(annotation=annotation):
                return None if self._array(value, annotation, what) else Fault(what, value, form)
            case Kind(kind=kind):
                return None if _is_one(value, kind) else Fault(what, value, form)
            case Values(values=values):
                found = any(type(value) is type(each) and value == each for each in values)
                return None if found else Fault(what, value, form)
            case Either(options=options):
                return self._either(value, options, form, what)
            case Items() | Tuple() | Table() | Fields() | Named():
                return self._structure(value, form, what)
            case Other(hint=hint):
                self.lasting = False
                return None if _is_bearable(value, hint) else Fault(what, value, form)

    def _array(self, value: Any, annotation: Any, what: str) -> bool:
        if not isinstance(value, annotation):
            return False
        shape = value.shape
        if any(type(size) is not int for size in shape):
            self.numbers = self.lasting = False
        elif type(value).__name__ not in _PLAIN_ARRAYS:
            self.lasting = False
        self.bindings.bind(annotation, shape, what)
        return True

    def _either(self, value: Any, options: tuple[Form, ...], form: Form, what: str) -> Fault | None:
        """What an option bound before it failed is forgotten; the fault is that of the option that came furthest."""
        furthest: Form | None = None
        before, names, groups = memo.record(), dict(self.bindings.names), dict(self.bindings.groups)
        for option in options:
            fault = self.check(value, option, what)
            if fault is None:
                return None
            memo.restore(before)
            self.bindings.names, self.bindings.groups = dict(names), dict(groups)
            near = isinstance(value, torch.Tensor) and isinstance(option, Array)
            if fault.what != what or fault.note or (near and sum(isinstance(each, Array) for each in options) == 1):
                furthest = option
        # once more, for what it binds on the way belongs to the error
        return Fault(what, value, form) if furthest is None else self.check(value, furthest, what)

    def _structure(self, value: Any, form: Any, what: str) -> Fault | None:
        kind = tuple if isinstance(form, Tuple) else dict if isinstance(form, Fields) else form.kind
        if not isinstance(value, kind):
            return Fault(what, value, form)
        if isinstance(form, Tuple):
            if len(value) != len(form.items):
                return Fault(what, value, form, f"it has {len(value)} items, not {len(form.items)}")
            pairs = [
                (each, item, f"{what}[{at}]") for at, (each, item) in enumerate(zip(value, form.items, strict=True))
            ]
        elif isinstance(form, Table):
            keys = [(key, form.key, f"the key {reprlib.repr(key)} of {what}") for key in value]
            pairs = [*keys, *((each, form.item, f"{what}[{reprlib.repr(key)}]") for key, each in value.items())]
        elif isinstance(form, Named):
            pairs = [(each, item, f"{what}.{name}") for each, (name, item) in zip(value, form.fields, strict=True)]
        elif isinstance(form, Fields):
            missing = [name for name, _ in form.fields if name not in value and name not in form.optional]
            if missing:
                return Fault(what, value, form, f"it has no {missing[0]!r}")
            pairs = [(value[name], item, f"{what}[{name!r}]") for name, item in form.fields if name in value]
        else:
            pairs = self._items(value, form, what)
        return next(filter(None, (self.check(*pair) for pair in pairs)), None)

    def _items(self, value: Any, form: Items, what: str) -> list[tuple[Any, Form, str]]:
        """Items of what can be read twice; an iterator would be used up, and a text holds texts without end."""
        if isinstance(value, str) or not isinstance(value, collections.abc.Collection):
            self.lasting = False
            return []
        return [(each, form.item, f"{what}[{at}]") for at, each in enumerate(value)]


def _is_one(value: Any, kind: Any) -> bool:
    """`isinstance`; a size of a trace counts as the number that it stands for."""
    if isinstance(value, kind):
        return True
    plain = _SYMBOLIC.get(type(value))
    return plain is not None and isinstance(plain, kind)


def _is_bearable(value: Any, hint: Any) -> bool:
    if is_bearable(value, hint):
        return True
    plain = _with_plain_sizes(value)
    return plain is not value and is_bearable(plain, hint)


def _with_plain_sizes(value: Any) -> Any:
    """The value with numbers for the sizes of a trace, or the value itself where it holds none."""
    if type(value) in _SYMBOLIC:
        return _SYMBOLIC[type(value)]
    if type(value) in (list, tuple):
        items = [_with_plain_sizes(each) for each in value]
        return type(value)(items) if any(a is not b for a, b in zip(items, value, strict=True)) else value
    return value
