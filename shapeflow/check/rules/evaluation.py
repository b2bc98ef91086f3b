"""SF319: dropout that nobody switches off."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from functools import lru_cache

from shapeflow.check.nodes import operator_of, record_of
from shapeflow.check.problem import Problem
from shapeflow.check.rules.rule import Rule
from shapeflow.check.rules.scene import Scene

DROPOUTS = ("dropout", "alpha_dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout")


def find(scene: Scene) -> Iterator[Problem]:
    """`F.dropout(x, 0.1)` in a method that never asks whether the module is in training."""
    for node in scene.operators(*DROPOUTS):
        record = record_of(node)
        if scene.root is None or record is None or record.place is None or node.kwargs.get("p", 0.5) == 0:
            continue
        code, line = record.place
        call = _call(code.co_filename, line, operator_of(node))
        if call is not None and node.kwargs.get("training", True) is True:
            name = operator_of(node)
            message = f"{name} without training= drops numbers in evaluation too: its default is training=True"
            yield scene.problem("SF319", node, message, fix=_fix(call))


def _call(file: str, line: int, name: str) -> ast.Call | None:
    """The call of this line, where a method makes it whose text does not know of training."""
    for function in _functions(file):
        if function.lineno <= line <= (function.end_lineno or 0) and _is_method(function):
            if "train" in ast.unparse(function):
                return None
            found = [
                each
                for each in ast.walk(function)
                if isinstance(each, ast.Call) and each.lineno <= line <= (each.end_lineno or 0) and _calls(each, name)
            ]
            return found[0] if len(found) == 1 and len(found[0].args) < 3 else None
    return None


@lru_cache(maxsize=64)
def _functions(file: str) -> tuple[ast.FunctionDef, ...]:
    """The functions of a file; none where it is no Python."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return ()
    return tuple(each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef))


def _is_method(function: ast.FunctionDef) -> bool:
    return bool(function.args.args) and function.args.args[0].arg == "self"


def _calls(call: ast.Call, name: str) -> bool:
    return getattr(call.func, "attr", getattr(call.func, "id", "")) == name


def _fix(call: ast.Call) -> str:
    return f"{ast.unparse(call)[:-1]}, training=self.training)"


RULES = (
    Rule(
        "SF319",
        "dropout that evaluation does not switch off",
        "error",
        """
        F.dropout does not know of model.eval(): unless it is told, it drops numbers whenever it is called.

        wrong:
            w = F.dropout(w, 0.1)

        right:
            w = F.dropout(w, 0.1, training=self.training)
        """,
        find,
    ),
)
