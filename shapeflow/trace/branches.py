"""Which way a branch on a value goes when nobody knows the value: the way that does not raise.

if not torch.isfinite(x).all():       # likely(...) is True: the other side raises
    raise ValueError("x must be finite")
"""

from __future__ import annotations

import ast
import linecache
from functools import lru_cache

from shapeflow.trace.source import Place

EXCEPTIONAL = frozenset({"any", "isnan", "isinf"})
"""Questions that look for what is rarely there: their usual answer is no, that of all others yes."""


def likely(where: Place | None, subject: str, *, is_about_a_pick: bool = False) -> bool:
    """The answer to `bool(tensor)` at this line; `subject` is the operator that made the tensor.

    `is_about_a_pick`: it asks whether a router chose an expert. Each is chosen: what it does is to be seen.
    """
    if where is not None:
        code, line = where
        wanted = _wanted(code.co_filename, line)
        if wanted is not None:
            return wanted
    return subject != "eq" if is_about_a_pick else subject not in EXCEPTIONAL


@lru_cache(maxsize=4096)
def _wanted(file: str, line: int) -> bool | None:
    """What the value has to be for the statement around `line` not to raise; None where neither side does."""
    for statement in _statements(file):
        if not (statement.lineno <= line <= _end_of_test(statement)):
            continue
        if isinstance(statement, ast.Assert):
            return _polarity(statement.test, line)
        if isinstance(statement, ast.While):  # a loop that values end: once is enough to see its shapes
            return not _polarity(statement.test, line)
        if _raises(statement.body):
            return not _polarity(statement.test, line)
        if _raises(statement.orelse):
            return _polarity(statement.test, line)
    return None


@lru_cache(maxsize=64)
def _statements(file: str) -> tuple[ast.If | ast.Assert | ast.While, ...]:
    """The `if`, `assert` and `while` statements of a file, the innermost last-started first."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:  # a notebook cell with magics, a template: no opinion
        return ()
    found = [node for node in ast.walk(tree) if isinstance(node, ast.If | ast.Assert | ast.While)]
    return tuple(sorted(found, key=lambda node: -node.lineno))


def _end_of_test(statement: ast.If | ast.Assert | ast.While) -> int:
    return statement.test.end_lineno or statement.lineno


def _raises(body: list[ast.stmt]) -> bool:
    return any(isinstance(statement, ast.Raise) for statement in body)


def _polarity(test: ast.expr, line: int) -> bool:
    """The value that makes `test` true: False below an odd number of `not`s."""
    answer = True
    while True:
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            answer, test = not answer, test.operand
        elif isinstance(test, ast.BoolOp):
            test = next((part for part in test.values if (part.end_lineno or line) >= line), test.values[-1])
        else:
            return answer
