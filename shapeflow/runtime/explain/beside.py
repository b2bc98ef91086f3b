"""Causes that no operator's arguments tell: tensors on two devices, names that unpack more or fewer than there are.

>>> list(beside(error, rows, statement, evaluator))
['cause: self.table is on cpu, x is on cuda:0', 'fix: self.table.to(x.device)']
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from shapeflow.runtime.explain.evaluate import Evaluator
from shapeflow.runtime.explain.statement import Statement
from shapeflow.runtime.explain.tensor import Row, is_tensor

_SEVERAL_DEVICES = ("same device", "expected device", "at least two devices")


def beside(error: Exception, rows: list[Row], statement: Statement | None, evaluator: Evaluator) -> Iterator[str]:
    """The lines of a cause and a fix, where it is one of these."""
    if any(text in str(error) for text in _SEVERAL_DEVICES):
        yield from _devices(rows)
    elif isinstance(error, ValueError) and "values to unpack" in str(error) and statement is not None:
        yield from _unpacked(statement, evaluator)


def _devices(rows: list[Row]) -> Iterator[str]:
    """The first tensor, and the first one that lies elsewhere."""
    placed = [row for row in rows if row.device]
    other = next((row for row in placed if row.device != placed[0].device), None)
    if other is None:
        return
    first = placed[0]
    yield f"cause: {first.text} is on {first.device}, {other.text} is on {other.device}"
    if other.text.isidentifier() or other.text.startswith("self."):
        why = ", or register_buffer, which moves with the module" if other.text.startswith("self.") else ""
        yield f"fix: {other.text}.to({first.text}.device){why}"
    else:
        yield f"fix: {first.text}.to({other.device!r})"


def _unpacked(statement: Statement, evaluator: Evaluator) -> Iterator[str]:
    whole = statement.whole
    if not isinstance(whole, ast.Assign) or not isinstance(whole.targets[0], ast.Tuple | ast.List):
        return
    value, names = evaluator.known(whole.value), len(whole.targets[0].elts)
    if not is_tensor(value) and not isinstance(value, tuple | list):
        return
    shown = f", {' '.join(map(str, value))}" if value and all(type(each) is int for each in value) else ""
    yield f"cause: {statement.text(whole.value)} has {len(value)} items{shown}, and {names} names are given"
