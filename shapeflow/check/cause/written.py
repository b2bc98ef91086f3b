"""A constructor's call as it is written, to be printed with other arguments.

>>> call.text, call.changed(stride="1")
('nn.Conv2d(16, 16, 3, stride=2)', 'nn.Conv2d(16, 16, 3, stride=1)')
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from shapeflow.check.cause.syntax import dotted


@dataclass(frozen=True, slots=True)
class Written:
    """A call in a file's text, of the class `kind`."""

    call: ast.Call
    source: str
    kind: type

    @property
    def text(self) -> str:
        """The call in one line."""
        return self.changed()

    def changed(self, **arguments: str) -> str:
        """The call with these arguments, each in the place where it stands now, or by keyword at the end."""
        waiting = dict(arguments)
        shown = []
        for name, prefix, value in self._arguments():
            text = waiting.pop(name) if name in waiting else self._source(value)
            shown.append(prefix + text)
        shown += [f"{name}={text}" for name, text in waiting.items()]
        return f"{self._source(self.call.func)}({', '.join(shown)})"

    @property
    def open(self) -> bool:
        """Whether arguments come out of a dictionary (`**kwargs`), any of them perhaps."""
        return any(each.arg is None for each in self.call.keywords)

    def argument(self, name: str) -> str | None:
        """The text of one argument, None where it is left out."""
        return next((self._source(value) for each, _, value in self._arguments() if each == name), None)

    def _arguments(self) -> Iterator[tuple[str, str, ast.expr]]:
        """The name of the parameter, what stands before the value (`stride=`), and the value."""
        names = parameter_names(self.kind)
        for index, value in enumerate(self.call.args):
            yield names[index] if index < len(names) else "", "", value
        for keyword in self.call.keywords:
            yield keyword.arg or "", "**" if keyword.arg is None else f"{keyword.arg}=", keyword.value

    def _source(self, node: ast.expr) -> str:
        text = ast.get_source_segment(self.source, node) or ast.unparse(node)
        return text if "\n" not in text else ast.unparse(node)


def is_class(function: ast.expr, target: Any) -> bool:
    """Whether a call of this name makes an object of the target's class."""
    last = dotted(function).rpartition(".")[2]
    kinds = {each.__name__ for each in type(target).__mro__[:2]}
    return bool(last) and last.removeprefix("Lazy") in kinds


@lru_cache(maxsize=512)
def parameter_names(kind: type) -> tuple[str, ...]:
    """The constructor's parameters, without self; those of nn.LSTM and its like are in its base class."""
    return tuple(name for name in constructor(kind) if name != "mode")


@lru_cache(maxsize=512)
def constructor(kind: type) -> Mapping[str, inspect.Parameter]:
    """The parameters of the nearest constructor that names them."""
    for cls in kind.__mro__:
        try:
            found = inspect.signature(cls).parameters
        except (TypeError, ValueError):  # a class written in C
            return {}
        if not any(each.kind is each.VAR_POSITIONAL for each in found.values()):
            return found
    return {}
