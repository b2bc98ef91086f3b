"""The function that stands in front of an enforced one: written as source, with the same signature, and short.

    def forward(self, x, memory=default_memory):
        if compiling() or (somewhere.blocks and is_off(module)):
            return function(self, x, memory)
        key = (type(self), own.get('d_model'), type(x), x.shape, x.dtype, ...)
        entry = seen.get(key)
        if entry is None or entry.shared is not None:
            return run(...)                      # the whole check
        ...                                      # what passed once with these shapes passes again
        return function(self, x, memory)

An own signature saves the binding of `*args, **kwargs`, and Python itself tells of a missing argument. `compiling` is a
function that Dynamo knows to be true: while it traces, it sees the bare call and nothing else.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

from shapeflow.runtime import call, memo, switch
from shapeflow.runtime.attributes import CONFIGS, settings
from shapeflow.runtime.forms import Anything, Array, Kind
from shapeflow.runtime.keys import UNKEYED, expression, key_of
from shapeflow.runtime.plan import Plan
from shapeflow.torch_private import skip_frames

_P = "_sf_"
"""Before every name of ours, so that it is no parameter's."""
_SHARED = {
    "compiling": torch.compiler.is_dynamo_compiling,
    "somewhere": switch.somewhere,
    "is_off": switch.is_off,
    "off": switch.off.get,
    "EVERYTHING": switch.EVERYTHING,
    "push": memo.push,
    "pop": memo.pop,
    "run": call.run,
    "late": call.run_late,
    "generate": call.generate,
    "generate_async": call.generate_async,
    "wait": call.wait,
    "unchecked": call.is_unchecked,
    "UNKEYED": UNKEYED,
    "settings": settings,
}
Maker = Callable[..., Callable[..., Any]]


def wrapped(function: Callable[..., Any], plan: Plan, make: Maker | None = None) -> Callable[..., Any]:
    """The enforced function; `make` is what `maker` gave for a function of the same code and plan."""
    make = make or maker(function, plan)
    defaults = {
        f"{_P}default_{name}": each.default
        for name, each in inspect.signature(function, follow_wrapped=False).parameters.items()
        if each.default is not each.empty
    }
    wrapper = functools.update_wrapper(make(function, **defaults), function)
    # behind a graph break Dynamo would take the wrapper for one more frame of the model, and break in it once more
    skip_frames(wrapper, calls_users=True)
    wrapper.__shapeflow_plan__ = plan  # type: ignore[attr-defined]
    return wrapper


def maker(function: Callable[..., Any], plan: Plan) -> Maker:
    """Compile the wrapper's source once; what is called with a function and its defaults."""
    given = {**{_P + name: value for name, value in _SHARED.items()}, f"{_P}plan": plan, f"{_P}seen": plan.seen}
    given[f"{_P}result_key"] = key_of(plan.result) if plan.keyed else None
    for name, form in plan.forms.items():
        given[f"{_P}key_{name}"] = key_of(form)
    defaults = [
        f"{_P}default_{name}" for name, each in plan.signature.parameters.items() if each.default is not each.empty
    ]
    source = _source(function, plan, [f"{_P}function", *defaults], sorted(given))
    # the name tells tracebacks, and the tracer, that these frames are no user's
    space: dict[str, Any] = {"__name__": __name__}
    exec(compile(source, f"<enforced {plan.qualname}>", "exec"), space)
    return functools.partial(space[f"{_P}make"], *(given[name] for name in sorted(given)))


def _source(function: Callable[..., Any], plan: Plan, varying: list[str], given: list[str]) -> str:
    body = _body(function, plan)
    kind = "async def" if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function) else "def"
    name = function.__name__ if function.__name__.isidentifier() else "function"
    lines = [
        f"def {_P}make({', '.join([*given, *varying])}):",
        f"    {kind} {name}({_signature(plan.signature)}):",
        *(f"        {line}" for line in body),
        f"    return {name}",
    ]
    return "\n".join(lines)


def _body(function: Callable[..., Any], plan: Plan) -> list[str]:
    call_it = f"{_P}function({_arguments(plan.signature)})"
    args, kwargs = _packed(plan.signature)
    named = "{" + ", ".join(f"{name!r}: {name}" for name in plan.signature.parameters) + "}"
    # Dynamo takes the first operand for true and looks no further
    inside = f"({_P}off() is {_P}EVERYTHING or {_P}is_off({plan.module!r}))"
    off = f"if {_P}compiling() or ({_P}somewhere.blocks and {inside})"
    if plan.unread:
        return _until_read(function, off, call_it)
    if inspect.isgeneratorfunction(function):
        return [
            f"{off} or {_P}unchecked({_P}function): return (yield from {call_it})",
            f"return (yield from {_P}generate({_P}plan, {call_it}, {named}))",
        ]
    if inspect.isasyncgenfunction(function):
        return [
            f"{_P}it = {call_it}",
            f"{off} or {_P}unchecked({_P}function): pass",
            f"else: {_P}it = {_P}generate_async({_P}plan, {_P}it, {named})",
            *_RELAY,
        ]
    if inspect.iscoroutinefunction(function):
        return [
            f"{off} or {_P}unchecked({_P}function): return await {call_it}",
            f"return await {_P}wait({_P}plan, {_P}function, {args}, {kwargs}, {named})",
        ]
    if not plan.keyed:
        return [
            "__tracebackhide__ = True",
            f"{off}: return {call_it}",
            f"return {_P}run({_P}plan, {_P}function, None, None, {args}, {kwargs}, {named})",
        ]
    return [
        "__tracebackhide__ = True",
        f"{off}: return {call_it}",
        "try:",
        *(f"    {line}" for line in _key(plan)),
        f"    {_P}entry = {_P}seen.get({_P}key)",
        f"except {_P}UNKEYED: {_P}key = {_P}entry = None",
        f"if {_P}entry is None or {_P}entry.shared is not None:",
        f"    return {_P}run({_P}plan, {_P}function, {_P}key, {_P}entry, {args}, {kwargs}, {named})",
        f"{_P}push({named}, {_P}entry.record)",
        f"try: {_P}out = {call_it}",
        f"finally: {_P}pop()",
        *_result(plan, named),
    ]


def _until_read(function: Callable[..., Any], off: str, call_it: str) -> list[str]:
    """The body of a function whose annotations name what does not exist yet: another stands for it once they do."""
    instead = call_it.replace(f"{_P}function(", f"{_P}plan.replacement(", 1)
    if inspect.isgeneratorfunction(function):
        return [f"{off}: return (yield from {call_it})", f"return (yield from {instead})"]
    if inspect.isasyncgenfunction(function):
        return [f"{off}: {_P}it = {call_it}", f"else: {_P}it = {instead}", *_RELAY]
    wait = "await " if inspect.iscoroutinefunction(function) else ""
    return ["__tracebackhide__ = True", f"{off}: return {wait}{call_it}", f"return {wait}{instead}"]


_RELAY = [
    "try:",
    f"    {_P}item = await anext({_P}it)",
    "    while True:",
    f"        try: {_P}sent = yield {_P}item",
    f"        except GeneratorExit: await {_P}it.aclose(); raise",
    f"        except BaseException as {_P}error: {_P}item = await {_P}it.athrow({_P}error)",
    f"        else: {_P}item = await {_P}it.asend({_P}sent)",
    "except StopAsyncIteration: pass",
]


def _key(plan: Plan) -> list[str]:
    """Lines that read the key: the class and the named attributes of the instance, and the key of each argument."""
    parts, lines = [], []
    if plan.is_method:
        parts.append("type(self)")
        if plan.names:
            lines.append(f"{_P}own = self.__dict__")
            parts += [f"{_P}own.get({name!r})" for name in plan.names]
            held = " or ".join(f"{_P}own.get({each!r})" for each in CONFIGS)
            parts.append(f"None if ({_P}held := {held}) is None else {_P}settings({_P}held, {plan.names})")
    for name, form in plan.forms.items():
        part = expression(form, name, f"{_P}key_{name}")
        if part and name in plan.loose:
            part = f"True if {name} is {_P}default_{name} else ({part},)"
        parts += [part] if part else []
    return [*lines, f"{_P}key = ({', '.join(parts)}{',' if len(parts) == 1 else ''})"]


def _result(plan: Plan, named: str) -> list[str]:
    if isinstance(plan.result, Anything):
        return [f"return {_P}out"]
    return [
        "try:",
        f"    if {_result_expression(plan)} in {_P}entry.results: return {_P}out",
        f"except {_P}UNKEYED: pass",
        f"return {_P}late({_P}plan, {_P}entry, {_P}out, {named})",
    ]


def _result_expression(plan: Plan) -> str:
    """The key of the result as `key_of` gives it, in place where that saves a call."""
    out = f"{_P}out"
    if isinstance(plan.result, Array):
        return f"(type({out}), {out}.shape, {out}.dtype)"
    return f"type({out})" if isinstance(plan.result, Kind) else f"{_P}result_key({out})"


class _Default:
    """Prints as the variable that holds a default, so that a printed signature is source."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


def _signature(signature: inspect.Signature) -> str:
    """The parameters as source, with their kinds and without annotations."""
    bare = [
        each.replace(annotation=each.empty, default=each.default if each.default is each.empty else _Default(name))
        for each in signature.parameters.values()
        for name in [f"{_P}default_{each.name}"]
    ]
    return str(inspect.Signature(bare))[1:-1]


def _arguments(signature: inspect.Signature) -> str:
    return ", ".join(
        f"{each.name}={each.name}" if each.kind is each.KEYWORD_ONLY else f"{_stars(each)}{each.name}"
        for each in signature.parameters.values()
    )


def _packed(signature: inspect.Signature) -> tuple[str, str]:
    """The arguments as a tuple and a dictionary."""
    args, kwargs = [], []
    for each in signature.parameters.values():
        if each.kind is each.KEYWORD_ONLY:
            kwargs.append(f"{each.name!r}: {each.name}")
        elif each.kind is each.VAR_KEYWORD:
            kwargs.append(f"**{each.name}")
        else:
            args.append(f"{_stars(each)}{each.name}")
    return f"({', '.join(args)}{',' if len(args) == 1 else ''})", "{" + ", ".join(kwargs) + "}"


def _stars(parameter: inspect.Parameter) -> str:
    return {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
