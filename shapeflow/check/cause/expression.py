"""The expression of the user's code that raised, out of the traceback: Python knows its columns.

>>> expression = expression_of(error.__traceback__)
>>> expression.text, expression.argument("input", ("input", "weight"), "head")
('self.head(x)', 'x')
"""

from __future__ import annotations

import ast
import linecache
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from types import CodeType, TracebackType
from typing import Any

from shapeflow.check.cause.syntax import Function, dotted
from shapeflow.trace.source import is_tool

SYMBOLS: dict[type, str] = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.MatMult: "matmul"}
Positions = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Expression:
    """A node of a file's syntax tree."""

    node: ast.expr
    source: str

    @property
    def text(self) -> str:
        return self.of(self.node)

    def of(self, node: ast.AST) -> str:
        """The source of a part of it, in one line."""
        found = ast.get_source_segment(self.source, node) or ast.unparse(node)
        return found if "\n" not in found else ast.unparse(node)

    def calls(self, module: str, operator: str) -> bool:
        """Whether it calls `self.<module>` or the operator."""
        node = self.node
        if isinstance(node, ast.BinOp):
            return True
        if not isinstance(node, ast.Call):
            return isinstance(node, ast.Subscript)
        return _last(node.func) in (module, operator) or isinstance(node.func, ast.Subscript)

    def argument(self, name: str, names: tuple[str, ...], module: str) -> str | None:
        """The source of an argument: by keyword, by position of `names`, or the object of a method."""
        found = self.argument_node(name, names, module)
        return None if found is None else self.of(found)

    def argument_node(self, name: str, names: tuple[str, ...], module: str) -> ast.expr | None:
        node = self.node
        if isinstance(node, ast.BinOp):
            return {names[0] if names else "0": node.left, names[1] if len(names) > 1 else "1": node.right}.get(name)
        if isinstance(node, ast.Subscript):
            return {"input": node.value, "index": node.slice}.get(name)
        if not isinstance(node, ast.Call):
            return None
        for keyword in node.keywords:
            if keyword.arg == name:
                return keyword.value
        given = self._positional(node, module)
        at = names.index(name) if name in names else int(name) if name.isdigit() else -1
        return given[at] if 0 <= at < len(given) and not isinstance(given[at], ast.Starred) else None

    def _positional(self, call: ast.Call, module: str) -> list[ast.expr]:
        """The arguments by position; the object in front of a method is the first of them."""
        function = call.func
        if isinstance(function, ast.Attribute) and function.attr != module and not _is_namespace(function.value):
            return [function.value, *call.args]
        return list(call.args)

    def likewise(self, argument: str | None) -> list[str]:
        """The names `x` of other calls `self.x(...)` in the same function that are given the same argument."""
        functions = [each for each in ast.walk(ast.parse(self.source)) if isinstance(each, Function)]
        around = [each for each in functions if each.lineno <= self.node.lineno <= (each.end_lineno or 0)]
        nodes = list(ast.walk(around[-1])) if around else []
        if any(isinstance(node, ast.Name) and node.id == argument and type(node.ctx) is ast.Store for node in nodes):
            return []  # the name stands for another tensor in each line
        calls = [node for node in nodes if isinstance(node, ast.Call) and node.args]
        given = [node.func for node in calls if self.of(node.args[0]) == argument]
        found = [each.attr for each in given if isinstance(each, ast.Attribute) and dotted(each.value) == "self"]
        return list(dict.fromkeys(found))

    def replaced(self, node: ast.expr, text: str) -> str:
        """The expression with one part written otherwise."""
        whole = self.node
        if whole.lineno != whole.end_lineno or node.end_col_offset is None:
            return ast.unparse(_Replacing(node, text).visit(ast.parse(self.text, mode="eval").body))
        line = self.text.encode()  # columns count bytes
        start, end = node.col_offset - whole.col_offset, node.end_col_offset - whole.col_offset
        return (line[:start] + text.encode() + line[end:]).decode()


class _Replacing(ast.NodeTransformer):
    """Puts another expression in place of those that read like `node`."""

    def __init__(self, node: ast.expr, text: str) -> None:
        self.dump, self.new = ast.dump(node), ast.parse(text, mode="eval").body

    def visit(self, node: ast.AST) -> Any:
        return self.new if ast.dump(node) == self.dump else self.generic_visit(node)


def _is_namespace(node: ast.expr) -> bool:
    """`torch` and `F` of `torch.cat`, `F.linear`."""
    return dotted(node) in ("torch", "F", "nn", "nn.functional", "torch.nn.functional", "functional", "torch.special")


def _last(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else dotted(function)


def frames(trace: TracebackType | None) -> list[TracebackType]:
    """The frames of a traceback, outermost first."""
    found = []
    while trace is not None:
        found.append(trace)
        trace = trace.tb_next
    return found


def user_frame(trace: TracebackType | None) -> TracebackType | None:
    """The innermost frame of the user's own code; a mode or a subclass that sees torch's functions is none."""
    for each in reversed(frames(trace)):
        code = each.tb_frame.f_code
        if code.co_name != "__torch_function__" and not is_tool(code, each.tb_frame.f_globals.get("__name__", "")):
            return each
    return None


def expression_of(trace: TracebackType | None) -> Expression | None:
    """The expression in the innermost user's frame."""
    found = user_frame(trace)
    return None if found is None else _at(found.tb_frame.f_code, found.tb_lasti)


def _at(code: CodeType, instruction: int) -> Expression | None:
    line, last, start, end = next(islice(code.co_positions(), instruction // 2, None))
    if line is None or last is None or start is None or end is None:
        return None
    source = "".join(linecache.getlines(code.co_filename))
    node = _nodes(source).get((line, last, start, end))
    return None if node is None else Expression(node, source)


@lru_cache(maxsize=64)
def _nodes(source: str) -> dict[Positions, ast.expr]:
    try:
        tree = ast.parse(source)
    except SyntaxError:  # edited since
        return {}
    found: dict[Positions, ast.expr] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.AugAssign):  # `out += x` is a sum like any other
            node = ast.copy_location(ast.BinOp(node.target, node.op, node.value), node)
        if isinstance(node, ast.expr):
            found.setdefault((node.lineno, node.end_lineno or 0, node.col_offset, node.end_col_offset or 0), node)
    return found
