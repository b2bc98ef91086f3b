"""What is checked at each call of one function, worked out once when it is made."""

from __future__ import annotations

import inspect
import types
import typing
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from shapeflow.errors import EnforceError
from shapeflow.runtime import memo
from shapeflow.runtime.bindings import Bindings, Found, names_in
from shapeflow.runtime.fit import Fit
from shapeflow.runtime.forms import Anything, Form, Items, Kind, Other, Table, arrays_in, form_of, inside
from shapeflow.runtime.keys import Key, has_key, key_of
from shapeflow.runtime.resolve import RESULT, Unread, complaint

MAX_SEEN = 4096
"""Keys that are kept for a function: texts of every length, in batches of every size, do not fill the memory."""
MAX_RESULTS = 64
"""Keys of results that are kept for one key of arguments: a `nonzero` has a new one every time."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a function is checked; see `sf.typed`."""

    every_item: bool | None = None
    across_methods: bool = True


@dataclass(frozen=True, slots=True)
class Entry:
    """Arguments that passed: what they bound, and the keys of results that passed with them.

    `shared` holds the names that the instance's other methods must agree with, or is None where there are none such.
    """

    record: memo.Record
    bindings: Bindings
    shared: dict[str, Found] | None
    results: dict[Any, dict[str, Found]] = field(default_factory=dict)

    def keep(self, key: Any, found: dict[str, Found]) -> None:
        """Remember a result that passed, and what it bound."""
        if len(self.results) >= MAX_RESULTS:
            self.results.clear()
        self.results[key] = found


@dataclass(slots=True, eq=False)
class Plan:
    """The forms of a function's parameters and result, the names that they use, and the calls that have passed."""

    name: str
    qualname: str
    module: str
    options: Options
    signature: inspect.Signature
    forms: dict[str, Form]
    result: Form
    unread: dict[str, Unread]
    names: tuple[str, ...] = ()
    is_method: bool = False
    keyed: bool = True
    result_key: Key | None = None
    replacement: Any = None
    loose: dict[str, Any] = field(default_factory=dict)
    seen: dict[Any, Entry] = field(default_factory=dict)
    sharing: dict[type, bool] = field(default_factory=dict)

    def keep(self, key: Any, entry: Entry) -> None:
        """Remember a call that passed."""
        if len(self.seen) >= MAX_SEEN:
            self.seen.clear()
        self.seen[key] = entry

    def shares_names(self, cls: type) -> bool:
        """Whether another enforced method of a class uses a name of this one."""
        known = self.sharing.get(cls)
        if known is None:
            others = (plan_of(value) for base in cls.__mro__ for value in vars(base).values())
            mine = set(self.names)
            known = any(
                other is not None and other is not self and other.is_method and not mine.isdisjoint(other.names)
                for other in others
            )
            self.sharing[cls] = known = known and self.is_method and self.options.across_methods
        return known


def plan_of(value: Any) -> Plan | None:
    """The plan of an enforced function, below what wraps it."""
    if isinstance(value, property):
        value = value.fget
    value = getattr(value, "__func__", value)
    return vars(value).get("__shapeflow_plan__") if isinstance(value, types.FunctionType) else None


def make_plan(
    function: Callable[..., Any], read: Mapping[str, Any], unread: dict[str, Unread], options: Options
) -> Plan:
    """The plan of a function whose annotations are `read`, but for those that are still text.

    Raises EnforceError for an annotation that is no type.
    """
    forms = {name: _form(function, name, hint, options) for name, hint in read.items() if name != RESULT}
    result = _result_form(function, read.get(RESULT, Any), options)
    signature = inspect.signature(function)
    arrays = [each for form in (*forms.values(), result) for each in arrays_in(form)]
    plan = Plan(
        name=function.__name__,
        qualname=function.__qualname__.rpartition("<locals>.")[2],
        module=function.__module__ or "",
        options=options,
        signature=signature,
        forms={name: _gathered(each, forms, read.get(name)) for name, each in signature.parameters.items()},
        result=result,
        unread=unread,
        names=tuple(sorted(set().union(*map(names_in, arrays)))),
        is_method=next(iter(signature.parameters), None) == "self",
    )
    plan.keyed = not unread and all(map(has_key, plan.forms.values())) and has_key(result)
    plan.result_key = key_of(result) if plan.keyed else None
    plan.loose = {
        name: each.default for name, each in signature.parameters.items() if _is_loose(each, plan.forms[name])
    }
    return plan


def checks_nothing(plan: Plan) -> bool:
    """Whether no annotation asks for anything."""
    return not plan.unread and all(isinstance(form, Anything) for form in (*plan.forms.values(), plan.result))


def _form(function: Callable[..., Any], name: str, hint: Any, options: Options) -> Form:
    form = form_of(hint, every_item=options.every_item)
    for each in inside(form):
        if isinstance(each, Other):
            _ask_beartype(function, name, each.hint)
    return form


def _result_form(function: Callable[..., Any], hint: Any, options: Options) -> Form:
    """What is returned; of a generator what it yields; nothing of `__init__`."""
    if function.__name__ == "__init__":
        return Anything()
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return _yielded(hint, options)
    return _form(function, RESULT, hint, options)


def _ask_beartype(function: Callable[..., Any], name: str, hint: Any) -> None:
    """Raise where beartype cannot read an annotation, now and not at the first call."""
    from beartype.door import is_bearable
    from beartype.roar import BeartypeDecorHintPep585DeprecationWarning, BeartypeException

    try:
        with warnings.catch_warnings():  # that typing.List is old is no matter of shapes
            warnings.simplefilter("ignore", BeartypeDecorHintPep585DeprecationWarning)
            is_bearable(None, hint)
    except BeartypeException as error:
        raise EnforceError(complaint(function, Unread(name, str(hint), error), "it is no type")) from error


def _yielded(hint: Any, options: Options) -> Form:
    """What a generator yields: the first argument of `Iterator[X]`, `Generator[X, S, R]`, `AsyncIterator[X]`."""
    inner = getattr(hint, "__args__", ())
    return form_of(inner[0], every_item=options.every_item) if inner else Anything()


def _gathered(parameter: inspect.Parameter, forms: Mapping[str, Form], hint: Any) -> Form:
    form = forms.get(parameter.name, Anything())
    if isinstance(form, Anything) or typing.get_origin(hint) is typing.Unpack:
        return form
    if parameter.kind is parameter.VAR_POSITIONAL:
        return Items(tuple, form)
    return Table(dict, Kind(str), form) if parameter.kind is parameter.VAR_KEYWORD else form


def _is_loose(parameter: inspect.Parameter, form: Form) -> bool:
    """Whether a parameter's own default is not of its type (`mask: Tensor = None`): it is let through."""
    if parameter.default is parameter.empty or isinstance(form, Anything):
        return False
    if hasattr(parameter.default, "shape"):
        return True
    memo.push({})
    try:
        return Fit(Bindings()).check(parameter.default, form, parameter.name) is not None
    finally:
        memo.pop()
