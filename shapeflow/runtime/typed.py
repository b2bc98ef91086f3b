"""`@sf.typed`: annotations of a function, or of a class' methods, enforced while it runs.

    @sf.typed
    class Block(nn.Module):
        def forward(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_model"]: ...

jaxtyping says whether an array fits, beartype reads what is no array, and the rest is ours: sizes that attributes give
to names, names across methods, every item of a container, the words of the error.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Container, Mapping
from types import CodeType, FrameType, FunctionType
from typing import Any, TypeVar, get_args, get_origin, overload

from shapeflow.errors import EnforceError
from shapeflow.runtime.forms import is_array, is_named_tuple
from shapeflow.runtime.plan import Options, Plan, checks_nothing, make_plan, plan_of
from shapeflow.runtime.resolve import Names, annotations_of, complaint
from shapeflow.runtime.scope import OPENING, opening
from shapeflow.runtime.switch import is_off_for_good
from shapeflow.runtime.wrapper import Maker, maker, wrapped

T = TypeVar("T")


@overload
def typed(target: T, /, *, every_item: bool | None = None, across_methods: bool = True) -> T: ...


@overload
def typed(*, every_item: bool | None = None, across_methods: bool = True) -> Callable[[T], T]: ...


def typed(target: Any = None, /, *, every_item: bool | None = None, across_methods: bool = True) -> Any:
    """Enforce the annotations of a function, a method, or all methods of a class and a dataclass' fields.

    A dim that is called like an integer attribute of `self` (`d_model`) must have its value; with `across_methods`, a
    name that two methods of an instance use during one call must mean one size. `every_item`: True looks at every item
    of a container, False at one of each as beartype does, None at every item of those that hold arrays.

    What fails raises jaxtyping's TypeCheckError. Raises EnforceError for an annotation that cannot be read.
    """
    options = Options(every_item, across_methods)
    names = _names_around(sys._getframe(1))
    if target is None:
        return lambda each: enforced(each, options, names, [])
    return enforced(target, options, names, [])


def decorator_of(options: Options, late: list[Any]) -> Callable[[T], T]:
    """What the import hook puts on every function and class of a module."""

    def decorate(target: Any) -> Any:
        __tracebackhide__ = True
        return enforced(target, options, _names_around(sys._getframe(1)), late)

    return decorate


def enforced(target: Any, options: Options, names: Names, late: list[Any]) -> Any:
    """What `typed` gives. A function with an annotation that cannot be read yet is put into `late` too.

    `names` gives the names that are visible where the target is defined, besides those of its module.
    """
    if inspect.isclass(target):
        return _enforced_class(target, options, names, late)
    if isinstance(target, staticmethod | classmethod):
        return type(target)(enforced(target.__func__, options, names, late))
    if isinstance(target, property):
        get, put, drop = (
            part and enforced(part, options, names, late) for part in (target.fget, target.fset, target.fdel)
        )
        return property(get, put, drop, target.__doc__)
    if not isinstance(target, FunctionType):
        raise EnforceError(f"only functions and classes can be enforced, not {target!r}")
    return _enforced_function(target, options, names, late)


def _enforced_class(cls: Any, options: Options, names: Names, late: list[Any]) -> Any:
    if is_off_for_good(cls.__module__) or getattr(cls, "__no_type_check__", False):
        return cls

    def within() -> dict[str, Any]:
        return {**_module_of(cls), **names(), cls.__name__: cls, **vars(cls)}

    made = _constructor_of_tuples(cls)
    for name, member in list(vars(cls).items()):
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if isinstance(function, FunctionType) and (function.__module__ == cls.__module__ or function is made):
            fitted = enforced(member, options, within, late)
            if fitted is not member:
                setattr(cls, name, fitted)
    if options.across_methods:
        _open_scopes(cls)
    return cls


def _constructor_of_tuples(cls: Any) -> FunctionType | None:
    """The `__new__` that a NamedTuple was given: it is of no module, and has the fields for parameters."""
    new = getattr(vars(cls).get("__new__"), "__func__", None) if is_named_tuple(cls) else None
    if not isinstance(new, FunctionType) or tuple(new.__annotations__) != cls._fields:
        return None
    new.__qualname__ = f"{cls.__qualname__}.__new__"
    return new


def _module_of(cls: Any) -> dict[str, Any]:
    """The globals of a class' module: what `namedtuple` made for it has none."""
    module = sys.modules.get(cls.__module__)
    return vars(module) if module is not None and is_named_tuple(cls) else {}


def _open_scopes(cls: Any) -> None:
    """A `forward` without annotations checks nothing, but what it calls on its instance shares names all the same."""
    sharing = [member for member in vars(cls).values() if plan_of(member) is not None]
    for name in OPENING:
        function = vars(cls).get(name)
        if len(sharing) > 1 and isinstance(function, FunctionType) and plan_of(function) is None:
            setattr(cls, name, opening(function))


_known: dict[CodeType, tuple[Plan, dict[str, Any], Maker]] = {}
"""Plans of functions that are defined inside others, and so made again at every call of those."""


def _enforced_function(function: FunctionType, options: Options, names: Names, late: list[Any]) -> Callable[..., Any]:
    module = function.__module__ or ""
    if plan_of(function) is not None or is_off_for_good(module) or getattr(function, "__no_type_check__", False):
        return function
    read, unread = annotations_of(function, names)
    for each in unread.values():
        if each.is_array:
            raise EnforceError(complaint(function, each)) from each.error
    known = _known.get(function.__code__)
    if known is not None and known[0].options == options and _same(known[1], _made_of(function, read)):
        return wrapped(function, known[0], known[2])
    plan = make_plan(function, read, unread, options)
    if checks_nothing(plan):
        return function
    make = maker(function, plan)
    wrapper = wrapped(function, plan, make)
    if unread:
        plan.replacement = _First(wrapper, names)
        late.append(wrapper)
    elif "<locals>" in function.__qualname__:
        _known[function.__code__] = plan, _made_of(function, read), make
    return wrapper


class _First:
    """Stands for the function until its first call, when the names in its annotations must exist."""

    def __init__(self, wrapper: Any, names: Names) -> None:
        self.wrapper, self.names = wrapper, names

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        return settled(self.wrapper, self.names)(*args, **kwargs)


def settled(wrapper: Any, names: Names | None = None, *, skip: Container[str] = ()) -> Callable[..., Any]:
    """Read the annotations that named what did not exist yet: from now on the wrapper checks them.

    Raises EnforceError for those that name what still does not exist, but for the names in `skip`: those stay unread.
    """
    waiting: Plan = wrapper.__shapeflow_plan__
    function = wrapper.__wrapped__
    read, unread = annotations_of(function, names or waiting.replacement.names)
    for each in unread.values():
        if each.missing is None or each.missing not in skip:
            raise EnforceError(complaint(function, each)) from each.error
    plan = make_plan(function, read, {}, waiting.options)
    fresh = wrapped(function, plan)
    wrapper.__shapeflow_plan__, waiting.replacement = plan, fresh
    return fresh


def _names_around(frame: FrameType) -> Names:
    """The variables of the function or class body where a decorator stands, read when they are needed."""

    def names() -> dict[str, Any]:
        inside_class = "__qualname__" in frame.f_locals and frame.f_back is not None
        return {**(frame.f_back.f_locals if inside_class and frame.f_back else {}), **frame.f_locals}

    return names


def _made_of(function: FunctionType, read: Mapping[str, Any]) -> dict[str, Any]:
    return {**read, " defaults": function.__defaults__, " named": function.__kwdefaults__}


def _same(one: Any, other: Any) -> bool:
    """Whether two annotations say the same: jaxtyping makes a new class each time that one is evaluated."""
    if one is other:
        return True
    if is_array(one) and is_array(other):
        return (one.dtype, one.array_type, one.dim_str) == (other.dtype, other.array_type, other.dim_str)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if get_origin(one) is not None and get_origin(one) == get_origin(other):
        return _same(get_args(one), get_args(other))
    return type(one) is type(other) and isinstance(one, type | int | float | str | bool) and one == other
