"""A call that is checked: arguments, the function, its result. What passed once is passed by its key alone.

Not checked, so that nothing is left in what is recorded: what `torch.compile`, `torch.export` and `torch.jit.trace`
make of the model; and while jaxtyping's own switch is off, or under `typing.no_type_check`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from typing import Any

import torch

from shapeflow.runtime import memo, scope
from shapeflow.runtime.attributes import is_in_key, sizes_of
from shapeflow.runtime.bindings import Bindings, Found
from shapeflow.runtime.fit import Fault, Fit
from shapeflow.runtime.forms import Anything
from shapeflow.runtime.keys import UNKEYED
from shapeflow.runtime.plan import Entry, Plan
from shapeflow.runtime.switch import is_off
from shapeflow.runtime.wording import said_of
from shapeflow.torch_private import skip_frames

RESULT = "the result"


def run(
    plan: Plan,
    function: Callable[..., Any],
    key: Any,
    entry: Entry | None,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    arguments: dict[str, Any],
) -> Any:
    """Call a function with its arguments checked before, and its result behind.

    `entry` is what an earlier call of the same `key` bound, or None. Raises jaxtyping's TypeCheckError.
    """
    __tracebackhide__ = True
    if entry is None and is_unchecked(function):
        return function(*args, **kwargs)
    memo.push(arguments, None if entry is None else entry.record)
    try:
        if entry is None:
            entry = _examined(plan, key, arguments)
        if entry.shared is not None:
            return _run_in_scope(plan, function, entry, args, kwargs, arguments)
        out = function(*args, **kwargs)
        _result(plan, entry, out, arguments)
        return out
    finally:
        memo.pop()


def _run_in_scope(
    plan: Plan, function: Callable[..., Any], entry: Entry, args: Any, kwargs: Any, arguments: dict[str, Any]
) -> Any:
    """A method that shares names with others of its instance."""
    __tracebackhide__ = True
    instance = arguments["self"]
    assert entry.shared is not None
    shared, before = scope.enter(instance, plan)
    try:
        _agree(plan, shared, entry.shared, instance)
        out = function(*args, **kwargs)
        found = _result(plan, entry, out, arguments)
        if found:
            _agree(plan, shared, found, instance)
        return out
    finally:
        scope.leave(instance, shared, before)


def run_late(plan: Plan, entry: Entry, out: Any, arguments: dict[str, Any]) -> Any:
    """The result of a call whose arguments were known, and which is of a shape that was not."""
    __tracebackhide__ = True
    memo.push(arguments, entry.record)
    try:
        _result(plan, entry, out, arguments)
    finally:
        memo.pop()
    return out


def generate(plan: Plan, inner: Generator[Any, Any, Any], arguments: dict[str, Any]) -> Generator[Any, Any, Any]:
    """A generator whose arguments are checked when it starts, and each item as it is yielded."""
    bindings = _checked_alone(plan, arguments)
    try:
        item = next(inner)
        while True:
            _item(plan, bindings, item, arguments)
            try:
                sent = yield item
            except GeneratorExit:
                inner.close()
                raise
            except BaseException as error:  # whatever is thrown in belongs to the generator
                item = inner.throw(error)
            else:
                item = inner.send(sent)
    except StopIteration as stop:
        return stop.value


async def generate_async(
    plan: Plan, inner: AsyncGenerator[Any, Any], arguments: dict[str, Any]
) -> AsyncGenerator[Any, Any]:
    """The same for an asynchronous generator."""
    bindings = _checked_alone(plan, arguments)
    try:
        item = await anext(inner)
        while True:
            _item(plan, bindings, item, arguments)
            try:
                sent = yield item
            except GeneratorExit:
                await inner.aclose()
                raise
            except BaseException as error:  # whatever is thrown in belongs to the generator
                item = await inner.athrow(error)
            else:
                item = await inner.asend(sent)
    except StopAsyncIteration:
        return


async def wait(plan: Plan, function: Callable[..., Any], args: Any, kwargs: Any, arguments: dict[str, Any]) -> Any:
    """A coroutine: other tasks run while it waits, so its names are put aside meanwhile."""
    bindings = _checked_alone(plan, arguments)
    out = await function(*args, **kwargs)
    _item(plan, bindings, out, arguments)
    return out


def is_unchecked(function: Callable[..., Any]) -> bool:
    """Whether a call is not to be checked, for a reason that lies outside of us."""
    return (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()  # pyright: ignore[reportPrivateImportUsage]  # documented all the same
        or memo.disabled()
        or getattr(function, "__no_type_check__", False)
    )


def _examined(plan: Plan, key: Any, arguments: dict[str, Any]) -> Entry:
    """The arguments, one after the other; kept under their key, if one is to stand for them."""
    instance = arguments.get("self") if plan.is_method else None
    sizes = sizes_of(instance, plan.names, plan.name) if instance is not None and plan.names else {}
    bindings = Bindings(sizes)
    fit = Fit(bindings)
    memo.bind({name: found.size for name, found in sizes.items()})
    for name, form in plan.forms.items():
        value = arguments[name]
        if name in plan.loose and value is plan.loose[name]:
            continue
        fault = fit.check(value, form, name)
        if fault is not None:
            raise _error(plan, fault, bindings, instance) from None
    shares = instance is not None and fit.numbers and plan.shares_names(type(instance))
    free = {name: found for name, found in bindings.names.items() if name not in sizes}
    entry = Entry(memo.record(), bindings, free if shares else None)
    if key is not None and plan.keyed and fit.lasting and all(is_in_key(instance, name) for name in sizes):
        plan.keep(key, entry)
    return entry


def _result(plan: Plan, entry: Entry, out: Any, arguments: dict[str, Any]) -> dict[str, Found]:
    """The names that the result binds; raises where it does not fit."""
    if isinstance(plan.result, Anything):
        return {}
    key = _result_key(plan, out)
    if key is not None and key in entry.results:
        return entry.results[key]
    bindings = Bindings(entry.bindings.names)
    bindings.groups.update(entry.bindings.groups)
    as_bound = memo.record() == entry.record
    fit = Fit(bindings)
    fault = fit.check(out, plan.result, RESULT)
    if fault is not None:
        raise _error(plan, fault, bindings, arguments.get("self") if plan.is_method else None) from None
    found = {name: each for name, each in bindings.names.items() if name not in entry.bindings.names}
    if not as_bound:
        # the body bound names of its own (`isinstance(h, Float[Tensor, "B K"])`): no key of arguments stands for those
        plan.keyed = False
        plan.seen.clear()
    elif key is not None and fit.lasting:
        entry.keep(key, found)
    return found


def _result_key(plan: Plan, out: Any) -> Any:
    if plan.result_key is None:
        return None
    try:
        key = plan.result_key(out)
        hash(key)
    except UNKEYED:
        return None
    return key


def _agree(plan: Plan, shared: scope.Scope, found: Mapping[str, Found], instance: Any) -> None:
    """Add what a method bound to the scope of its instance; raises where another method bound it otherwise."""
    clash = shared.agree(plan, found)
    if clash is not None and not memo.disabled():
        raise memo.TypeCheckError(
            f"{clash.name} is {clash.here.size} in {_owner(plan, instance)} ({clash.here.where}), but "
            f"{clash.there.size} in {_owner(clash.other, instance)} ({clash.there.where}), in one call of the same "
            "instance\n  give the size another name where it is another size, or enforce with across_methods=False"
        )


def _checked_alone(plan: Plan, arguments: dict[str, Any]) -> Bindings:
    """Arguments of what does not run to its end at once; jaxtyping's record is free again behind the check."""
    memo.push(arguments)
    try:
        return _examined(plan, None, arguments).bindings
    finally:
        memo.pop()


def _item(plan: Plan, bindings: Bindings, item: Any, arguments: dict[str, Any]) -> None:
    sizes = {name: found.size for name, found in bindings.names.items()}
    groups = {name: (False, torch.Size(shape)) for name, (shape, _) in bindings.groups.items()}
    memo.push(arguments, memo.Record(sizes, groups, {}))
    try:
        fault = Fit(bindings).check(item, plan.result, RESULT)
        if fault is not None:
            raise _error(plan, fault, bindings, arguments.get("self") if plan.is_method else None) from None
    finally:
        memo.pop()


def _error(plan: Plan, fault: Fault, bindings: Bindings, instance: Any) -> Exception:
    return memo.TypeCheckError(said_of(fault, bindings, _owner(plan, instance)))


def _owner(plan: Plan, instance: Any) -> str:
    """`Block.forward`, by the class of the instance; a function by its name."""
    return plan.qualname if instance is None else f"{_class(instance)}.{plan.name}"


def _class(instance: Any) -> str:
    return type(instance).__qualname__.rpartition("<locals>.")[2]


# Where a compiled model has a graph break, what stands around it runs between the graphs, and these frames with it:
# Dynamo is not to compile them too.
for _function in (run, _run_in_scope, generate, generate_async, wait):
    skip_frames(_function, calls_users=True)
for _function in (_examined, _result, _agree, _item, _checked_alone, is_unchecked, run_late, memo.push, memo.pop):
    skip_frames(_function, calls_users=False)
for _function in (scope.enter, scope.leave, is_off):
    skip_frames(_function, calls_users=False)
