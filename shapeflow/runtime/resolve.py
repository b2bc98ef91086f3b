"""The annotations of a function as objects, and where each one that cannot be read stands.

net.py:12: the annotation of `x` of Net.forward cannot be read: Float[Tensro, "B T"]
    NameError: name 'Tensro' is not defined
"""

from __future__ import annotations

import ast
import inspect
import linecache
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any

from shapeflow.dims.signature import type_parameters
from shapeflow.trace.source import short_path

RESULT = "return"
Names = Callable[[], Mapping[str, Any]]
_TENSOR_LIKE = re.compile(r"""\w\s*\[[^\[\]]*,\s*['"]""")  # Name[type, "text"]


@dataclass(frozen=True, slots=True)
class Unread:
    """An annotation that is still text."""

    what: str
    text: str
    error: Exception

    @property
    def is_array(self) -> bool:
        """Whether the text is an array type, which nothing but its names can be wrong with."""
        return _TENSOR_LIKE.search(self.text) is not None

    @property
    def missing(self) -> str | None:
        """The name that does not exist."""
        return self.error.name if isinstance(self.error, NameError) else None


def annotations_of(function: Callable[..., Any], names: Names) -> tuple[dict[str, Any], dict[str, Unread]]:
    """The annotations of a function, by the names of its parameters and `return`: those that are read, those that not.

    `names` gives those of the function or class body in which it is defined, and is asked only for text.
    """
    scope = getattr(function, "__globals__", {})
    known: dict[str, Any] | None = None
    read: dict[str, Any] = {}
    unread: dict[str, Unread] = {}
    for what, annotation in inspect.get_annotations(function).items():
        if isinstance(annotation, type) and not typing.get_args(annotation):
            read[what] = annotation
            continue
        if known is None:
            known = {**names(), **_enclosed(function), **type_parameters(function)}
        try:
            read[what] = _evaluated(annotation, scope, known)
        except Exception as error:  # an annotation is code and may raise anything: it is reported with its line
            unread[what] = Unread(what, annotation if isinstance(annotation, str) else str(annotation), error)
    return read, unread


def _evaluated(annotation: Any, scope: dict[str, Any], local: dict[str, Any]) -> Any:
    if isinstance(annotation, str):
        annotation = eval(annotation, scope, local)  # what Python does with it, in the words of its own errors

    def holder() -> None: ...

    holder.__annotations__ = {"it": annotation}
    try:
        return typing.get_type_hints(holder, scope, local, include_extras=True)["it"]
    except TypeError:  # no type at all (a number, a module): beartype says so, in its own words
        return annotation


def _enclosed(function: Callable[..., Any]) -> dict[str, Any]:
    """The variables of the functions around, as far as the function uses them."""
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    found = {}
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found


def complaint(function: Callable[..., Any], unread: Unread, why: str = "") -> str:
    """What to tell of an annotation, with file and line."""
    what = "the result" if unread.what == RESULT else f"`{unread.what}`"
    code: CodeType = function.__code__  # type: ignore[attr-defined]
    place = f"{short_path(code.co_filename)}:{line_of(code, unread.what)}"
    reason = why or "its names must exist when the function is made, not for type checkers only"
    return (
        f"{place}: the annotation of {what} of {function.__qualname__} cannot be read: {unread.text}\n"
        f"    {type(unread.error).__name__}: {unread.error}\n{reason}"
    )


def line_of(code: CodeType, what: str) -> int:
    """The line of a parameter's annotation, or of the result's; that of the function where there is no source."""
    source = "".join(linecache.getlines(code.co_filename))
    try:
        tree = ast.parse(source)
    except SyntaxError:  # no Python file: a notebook, a prompt
        return code.co_firstlineno
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            if first == code.co_firstlineno:
                return _annotation_line(node, what)
    return code.co_firstlineno


def _annotation_line(node: ast.FunctionDef | ast.AsyncFunctionDef, what: str) -> int:
    if what == RESULT:
        return node.returns.lineno if node.returns is not None else node.lineno
    given = node.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))]
    return next((each.lineno for each in every if each.arg == what), node.lineno)
