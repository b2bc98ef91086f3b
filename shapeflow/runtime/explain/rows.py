"""The tensors and numbers on the failing line, each with the text that stands for it there.

>>> Rows.of(stack, statement, provenance).rows[0]
Row(text='x.flatten(1)', shape='4 490', dtype='float32', device='cpu', statistics='')
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from shapeflow.dims.expr import Expr
from shapeflow.runtime.explain.bound import Bound, Dims
from shapeflow.runtime.explain.evaluate import Evaluator
from shapeflow.runtime.explain.provenance import Provenance
from shapeflow.runtime.explain.stack import Stack, Step
from shapeflow.runtime.explain.statement import Statement
from shapeflow.runtime.explain.tensor import Row, is_tensor, row_of
from shapeflow.trace.result import shape_text

MOST_ROWS = 16
LONGEST_TEXT = 60


@dataclass
class Rows:
    """Rows in the order in which they were found; a text has one, a tensor may have several texts."""

    dims: Callable[[torch.Tensor], Dims | None]
    rows: list[Row] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    _shown: set[int] = field(default_factory=set)

    @staticmethod
    def of(stack: Stack, statement: Statement | None, provenance: Provenance) -> Rows:
        """What stands on the line: the operands of what raised first, then the other names, then a layer's weights."""
        found, evaluator = Rows(provenance.dims), provenance.evaluator
        if statement is not None:
            given = _given(stack, statement)
            for node in statement.operands:
                value, shape = given.get(ast.dump(node)), evaluator.known(node, _UNKNOWN)
                if value is not None:
                    provenance.also(value, shape)
                found._operand(statement, node, shape if value is None else value, evaluator)
            for node in statement.leaves:
                found.add(statement.text(node), evaluator.known(node), evaluator)
        found._weights(stack)
        return found

    @property
    def numbers(self) -> list[str]:
        """Whole numbers on the line, in one line."""
        return [", ".join(f"{text} = {size}" for text, size in self.sizes.items())] if self.sizes else []

    def add(self, text: str, value: Any, evaluator: Evaluator | None = None) -> None:
        """A row for a tensor, for each of a list; a number is noted beside."""
        kind = type(value)
        if is_tensor(value):
            text = _shortened(text)
            if len(self.rows) < MOST_ROWS and all(row.text != text for row in self.rows):
                device = evaluator.device(value) if evaluator is not None else ""
                self.rows.append(row_of(text, value, self._shape(value), device=device))
                self._shown.add(id(value))
        elif issubclass(kind, dict):
            for key, item in value.items():
                self.add(f"{text}[{key!r}]", item, evaluator)
        elif issubclass(kind, list | tuple) and any(
            issubclass(type(item), torch.Tensor | list | tuple) for item in value
        ):
            for at, item in enumerate(value):
                self.add(
                    f"{text}[{at}]" if text.replace(".", "").isidentifier() else f"({text})[{at}]", item, evaluator
                )
        elif kind is int:
            self.sizes.setdefault(text, value)

    def _operand(self, statement: Statement, node: ast.expr, value: Any, evaluator: Evaluator) -> None:
        if isinstance(node, ast.List | ast.Tuple) and isinstance(value, list | tuple) and len(node.elts) == len(value):
            for each, item in zip(node.elts, value, strict=True):
                self._operand(statement, each, item, evaluator)
        elif not any(isinstance(each, ast.Name) for each in ast.walk(node)):
            return  # a number that the line spells out
        elif value is _UNKNOWN:
            self._unknown(statement, node)
        else:
            self.add(statement.text(node), value, evaluator)

    def _unknown(self, statement: Statement, node: ast.expr) -> None:
        """An operand that the user's own code makes: it is not run again."""
        if isinstance(node, ast.Call | ast.BinOp):
            self.rows.append(Row(_shortened(statement.text(node)), "?", "", "", "not known without running it again"))

    def _weights(self, stack: Stack) -> None:
        """Input and parameters of a module of torch's own that raised inside: they are on no line of the user's."""
        module, place = _torchs(stack), stack.place
        step = next((each for each in reversed(stack.inside) if _is_call(each) and each.module is module), None)
        for value in step.frame.f_locals["args"] if step is not None else ():
            if is_tensor(value) and id(value) not in self._shown:
                self.add(f"input of {place.path or type(module).__name__}", value)
        for name, each in module.named_parameters(recurse=False) if module is not None else ():
            self.add(f"{place.path}.{name}".lstrip("."), each)

    def _shape(self, tensor: torch.Tensor) -> str:
        numbers = " ".join(map(str, tensor.shape)) or "scalar"
        dims = self.dims(tensor)
        return numbers if dims is None or not _named(dims) else f"{shape_text(dims)} = {numbers}"


_UNKNOWN = object()


def rows_of_values(values: Mapping[str, Any], bound: Bound) -> Rows:
    """Rows of a call's arguments, by parameter."""
    found = Rows(bound.dims)
    for name, value in values.items():
        if not isinstance(value, nn.Module):
            found.add(name, value)
    return found


def rows_of_call(stack: Stack) -> Rows:
    """Rows of what the innermost module was called with, by parameter."""
    step = next((each for each in reversed(stack.own) if _is_call(each) and each.module in stack.modules), None)
    if step is None or step.module is None:
        return Rows(Bound().dims)
    local = step.frame.f_locals
    try:
        arguments = inspect.signature(step.module.forward).bind(*local["args"], **local["kwargs"])
    except (TypeError, ValueError):  # wrong arguments are the error itself
        return Rows(Bound().dims)
    bound = Bound()
    bound.take(step.module.forward, arguments.arguments)
    return rows_of_values(arguments.arguments, bound)


def _given(stack: Stack, statement: Statement) -> dict[str, Any]:
    """What a module that the line calls was given, argument by argument: the true tensors, not their shapes alone."""
    node, inside = statement.node, stack.inside
    if not isinstance(node, ast.Call) or not inside or not _is_call(inside[0]):
        return {}
    local, plain = inside[0].frame.f_locals, not any(isinstance(each, ast.Starred) for each in node.args)
    found = {keyword.arg: keyword.value for keyword in node.keywords}
    given = {ast.dump(each): local["kwargs"][name] for name, each in found.items() if name in local["kwargs"]}
    pairs = zip(node.args, local["args"], strict=False) if plain else ()
    return {**given, **{ast.dump(each): value for each, value in pairs}}


def _is_call(step: Step) -> bool:
    """Whether this is the frame in which torch calls a module."""
    return step.code.co_name == "_wrapped_call_impl" and step.module is not None


def _torchs(stack: Stack) -> nn.Module | None:
    module = stack.place.module
    inside = any(step.module is module for step in stack.inside)
    return module if inside and module is not None and type(module).__module__.startswith("torch.") else None


def _shortened(text: str) -> str:
    """A long expression by its two ends."""
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT // 2]}...{text[-LONGEST_TEXT // 3 :]}"


def _named(dims: tuple[Expr, ...]) -> bool:
    return any(dim.symbols for dim in dims)
