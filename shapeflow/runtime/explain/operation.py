"""The operator that raised, as a `Call` for the checker's causes, out of frames and the failing expression.

>>> call = operation_of(error, stack, statement, provenance)
>>> call.operator, call.tensor("input").dims
('linear', (B, N, 24))
"""

from __future__ import annotations

import ast
from typing import Any

import torch
from torch import nn

from shapeflow.check.cause import Call, call_from, call_in_traceback
from shapeflow.check.cause.parameters import PARAMETERS
from shapeflow.runtime.explain.evaluate import Evaluator
from shapeflow.runtime.explain.provenance import Provenance
from shapeflow.runtime.explain.pure import Unseen
from shapeflow.runtime.explain.stack import Stack
from shapeflow.runtime.explain.statement import Statement
from shapeflow.runtime.explain.tensor import is_tensor

SYMBOLS: dict[type, str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.MatMult: "matmul",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
}


def operation_of(
    error: BaseException, stack: Stack, statement: Statement | None, provenance: Provenance
) -> Call | None:
    """The call that raised; None where the user's own code did, or where the traceback does not tell its arguments."""
    place = stack.place
    if stack.raises and stack.user is stack.own[-1]:
        return None
    found = call_in_traceback(error, place.root, named=provenance.named)
    if found is not None:
        return found
    given = None
    if statement is not None and statement.node is not None:
        given = _written(statement.node, statement.written, provenance.evaluator)
    given = given or _in_frames(stack)
    if given is None or not tensors_in([given[1], given[2]]):
        return None
    function, args, kwargs = given
    user = stack.user
    return call_from(
        function,
        args,
        kwargs,
        error,
        module=place.module,
        path=place.path,
        root=place.root,
        location=None if user is None else user.location,
        named=provenance.named,
    )


Given = tuple[Any, tuple[Any, ...], dict[str, Any]]


def _written(node: ast.expr, written: ast.expr | None, evaluator: Evaluator) -> Given | None:
    """Operator and arguments as the source gives them, where all of them are known."""
    try:
        if isinstance(node, ast.BinOp):
            return SYMBOLS[type(node.op)], (evaluator.value(node.left), evaluator.value(node.right)), {}
        if isinstance(node, ast.Compare) and type(node.ops[0]) in SYMBOLS:
            sides = evaluator.value(node.left), evaluator.value(node.comparators[0])
            return SYMBOLS[type(node.ops[0])], sides, {}
        if isinstance(node, ast.Subscript):
            held = evaluator.value(node.value), evaluator.value(node.slice)
            if written is None:
                return "getitem", held, {}
            return "setitem", (*held, evaluator.value(written)), {}
        if isinstance(node, ast.Call):
            function, first = evaluator.function(node)
            args, kwargs = evaluator.arguments(node)
            return None if isinstance(function, nn.Module) else (function, (*first, *args), kwargs)
    except (Unseen, KeyError, AttributeError):
        return None
    return None


def _in_frames(stack: Stack) -> Given | None:
    """The function of torch that the user's line called, where it is written in Python: its frame has the arguments."""
    for step in stack.inside:
        code, name = step.code, step.frame.f_globals.get("__name__", "")
        if not name.startswith("torch.nn.functional") and name != "torch.functional":
            continue
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        values = {each: step.frame.f_locals[each] for each in names if each in step.frame.f_locals}
        return code.co_name.strip("_"), (), values
    return None


def text_of(call: Call, name: str, statement: Statement | None) -> str:
    """An argument as the code writes it, a parameter by its path, the input of a module inside of another by its."""
    if statement is not None and statement.node is not None and call.expression is not None and call.direct:
        names = PARAMETERS.get(call.operator) or tuple(call.arguments)
        found = call.expression.argument(name, names, call.callee)
        if found is not None:
            return found
    operand = call.tensor(name)
    if operand is not None and operand.path:
        return operand.path
    inside = operand is not None and call.path and call.expression is not None and not call.direct
    return f"input of {call.path}" if inside and name == "input" else name


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors of nested lists, tuples and dictionaries."""
    if is_tensor(value):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [each for item in value for each in tensors_in(item)] if isinstance(value, list | tuple) else []
