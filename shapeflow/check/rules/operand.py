"""The text of an operator's operand in the line that calls it: the `pred` of `((pred - y) ** 2).mean()`."""

from __future__ import annotations

import ast
from typing import Any

from torch import fx

from shapeflow.check.nodes import name_of, record_of
from shapeflow.check.rules.scene import line_of
from shapeflow.trace.view import KEEPS_AXES

SIGNS: dict[str, type[ast.AST]] = {
    "add": ast.Add,
    "sub": ast.Sub,
    "mul": ast.Mult,
    "div": ast.Div,
    "truediv": ast.Div,
    "pow": ast.Pow,
    "eq": ast.Eq,
    "ne": ast.NotEq,
    "lt": ast.Lt,
    "le": ast.LtE,
    "gt": ast.Gt,
    "ge": ast.GtE,
}


def operand_in_line(node: fx.Node, index: int) -> str:
    """The operand of this number, in brackets where it is an operation; `""` where the line does not tell."""
    name = name_of(record_of(node))
    called = _call_of_layer(node, node.all_input_nodes[index])
    if called:
        return called
    found = [operands for each in ast.walk(parsed_line(node)) if (operands := _operands(each, name)) is not None]
    if len(found) != 1 or index >= len(found[0]) or isinstance(found[0][index], ast.Starred):
        return ""
    text = ast.unparse(found[0][index])
    return f"({text})" if isinstance(found[0][index], ast.BinOp | ast.UnaryOp | ast.Compare) else text


def _call_of_layer(reader: fx.Node, operand: fx.Node) -> str:
    """`self.net(x)`, where the line of the reader calls the layer that made the operand."""
    record = record_of(operand)
    layers = [scope.path.rpartition(".")[2] for scope in record.scopes] if record is not None else []
    calls = [each for each in ast.walk(parsed_line(reader)) if isinstance(each, ast.Call)]
    found = [each for each in calls if isinstance(each.func, ast.Attribute) and each.func.attr in layers]
    return ast.unparse(found[0]) if len(found) == 1 else ""


def name_in_line(node: fx.Node) -> str:
    """The name that the code gave a tensor, or one that it was made of an element at a time; the node's own else."""
    each = node
    while True:
        for statement in parsed_line(each).body:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                return statement.targets[0].id
        before = [arg for arg in each.args if isinstance(arg, fx.Node) and "size" not in arg.meta]
        if len(before) != 1 or not (record_of(each) is None or name_of(record_of(each)) in KEEPS_AXES):
            return str(node)
        each = before[0]


def parsed_line(node: fx.Node) -> ast.Module:
    """The line behind a node; without statements where it is a part of several."""
    where = line_of(node)
    try:
        return ast.parse("" if where is None else where.code.removeprefix("return "))
    except SyntaxError:
        return ast.Module([], [])


def _operands(tree: ast.AST, name: str) -> list[Any] | None:
    sign = SIGNS.get(name)
    if isinstance(tree, ast.BinOp) and sign is not None and isinstance(tree.op, sign):  # type: ignore[arg-type]  # a class
        return [tree.left, tree.right]
    if isinstance(tree, ast.Compare) and len(tree.ops) == 1 and sign is not None and isinstance(tree.ops[0], sign):  # type: ignore[arg-type]
        return [tree.left, tree.comparators[0]]
    if not isinstance(tree, ast.Call):
        return None
    called = getattr(tree.func, "attr", None) or getattr(tree.func, "id", "")
    if called == name and isinstance(tree.func, ast.Attribute) and not _is_module(tree.func.value):
        return [tree.func.value, *tree.args]
    if called == name or (name.endswith("_loss") and any(word in called.lower() for word in ("loss", "criterion"))):
        return list(tree.args)
    return None


def _is_module(owner: ast.expr) -> bool:
    return ast.unparse(owner) in ("torch", "F", "nn.functional", "torch.nn.functional")
