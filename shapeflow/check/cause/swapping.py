"""Axes in the wrong order: which other axis fits, and how the code would bring it where it belongs."""

from __future__ import annotations

import ast
import re

from shapeflow.check.cause.call import Call, Operand, same
from shapeflow.check.cause.parameters import PARAMETERS
from shapeflow.dims.expr import Expr


def other_axis(given: Operand, wanted: Expr | int, but: int) -> int | None:
    """An axis with the wanted size; the batch in front only in a matrix."""
    first = 0 if given.rank == 2 else 1
    found = [axis for axis in range(first, given.rank) if axis != but and same(given.dims[axis], wanted)]
    return found[0] if found else None


def move_last(rank: int, axis: int) -> str:
    """The method call that brings an axis to the end: `.transpose(1, 2)`."""
    if rank == 2:
        return ".T"
    if axis == rank - 2:
        return f".transpose({axis}, {rank - 1})"
    order = [*(each for each in range(rank) if each != axis), axis]
    return f".permute({', '.join(map(str, order))})"


def move_second(rank: int, axis: int) -> str:
    """The method call that brings an axis to place 1, where channels stand: `.permute(0, 3, 1, 2)`."""
    if rank == 3:
        return ".transpose(1, 2)"
    order = [0, axis, *(each for each in range(1, rank) if each != axis)]
    return f".permute({', '.join(map(str, order))})"


def rewritten(call: Call, argument: str, method: str, after: str = "") -> str:
    """The source of the call with a method applied to one argument, and to the result."""
    if call.expression is not None and call.direct:
        part = call.expression.argument_node(argument, PARAMETERS.get(call.operator, ("input",)), call.callee)
        if part is not None:
            return call.expression.replaced(part, applied(call.expression.of(part), method)) + after
    return f"x{method}"


def applied(text: str, method: str) -> str:
    """A method behind an expression: `(a + b).transpose(1, 2)`; calls, names and subscripts need no brackets."""
    if re.fullmatch(r"[\w.]+", text):  # a name, or the path of a parameter, which need not be Python
        return text + method
    try:
        node = ast.parse(text, mode="eval").body
    except SyntaxError:  # a generator without its brackets
        return f"({text}){method}"
    simple = isinstance(node, ast.Attribute | ast.Call | ast.Subscript)
    return (text if simple else f"({text})") + method
