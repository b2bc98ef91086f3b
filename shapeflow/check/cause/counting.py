"""Arguments that count or cut axes: an order of axes, the sizes of a split, what is written into a part.

permute gives an order of 3 axes, x has 4: B C H W
"""

from __future__ import annotations

import ast
import re

from shapeflow.check.cause.call import Call, Operand, names_in, same, valued
from shapeflow.check.cause.result import Cause
from shapeflow.check.cause.swapping import applied, rewritten

_SIGNS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/"}
_UNEQUAL = ("must be the same as", "that is different to the input size")
_EXPANDED = re.compile(r"expanded size of the tensor \((\d+)\) must match the existing size \((\d+)\)")


def permute(call: Call) -> Cause | None:
    """The cause for an order that does not name each axis once."""
    given, order = call.tensor("input"), call.arguments.get("dims")
    if given is None or not isinstance(order, list | tuple):
        return None
    text = call.text("input")
    if len(order) != given.rank:
        message = f"permute gives an order of {len(order)} axes, {text} has {given.rank}: {given}"
        return Cause(message, f"name all axes from 0 to {given.rank - 1}", names_in(*given.dims), call.location)
    if len({axis % given.rank for axis in order if isinstance(axis, int)}) < given.rank:
        return Cause(f"permute of {text} ({given}) names an axis twice", "", names_in(*given.dims), call.location)
    return None


def split(call: Call) -> Cause | None:
    """The cause for sizes that do not add up to the axis."""
    given, sizes = call.tensor("input"), call.arguments.get("split_size")
    axis = call.arguments.get("dim", 0)
    if given is None or not isinstance(sizes, list | tuple) or not isinstance(axis, int):
        return None
    if not -given.rank <= axis < given.rank or not all(isinstance(size, int) for size in sizes):
        return None
    has, text = given.dims[axis], call.text("input")
    message = f"split of {text} along axis {axis % given.rank}: the sizes add up to {sum(sizes)}, it is {valued(has)}"
    return Cause(message, "", names_in(has), call.location)


def written(call: Call) -> Cause | None:
    """The cause for `x[:, 1:] = y`, where y is not as large as the part of x."""
    found = _EXPANDED.search(call.error)
    value = call.tensor("2")
    if found is None or value is None:
        return None
    part, size = found.groups()
    written_out = call.expression is not None and isinstance(call.expression.node, ast.Subscript)
    target = call.expression.text if written_out and call.expression else "the part that is written to"
    message = f"{target} has {part} where {value}, which is written to it, has {size}"
    return Cause(message, "", names_in(*value.dims), call.location)


def in_place(call: Call) -> Cause | None:
    """The cause for `x += y` of a greater y: a tensor does not grow in place."""
    tensors = call.tensors
    if "doesn't match the broadcast shape" not in call.error or len(tensors) < 2:
        return None
    left, right = tensors[0], tensors[1]
    text = call.text("input", "") or call.text("0", "it")
    message = f"{text} is {left}, and does not grow in place to what it makes with {right}"
    sign = _SIGNS.get(call.operator.removeprefix("i"))
    fix = f"{text} = {text} {sign} {call.text('1', '...')}" if sign is not None else "a result of its own"
    return Cause(message, fix, names_in(*right.dims), call.location)


def equal_shapes(call: Call) -> Cause | None:
    """The cause for a loss whose target broadcasts, and may not."""
    given, target = call.tensor("input"), call.tensor("target")
    if given is None or target is None or not any(text in call.error for text in _UNEQUAL):
        return None
    text, other = call.text("input", "input"), call.text("target", "target")
    message = f"{call.operator}: {text} is {given}, {other} is {target}: the shapes have to be equal"
    fix = ""
    if given.rank == target.rank + 1 and same(given.dims[-1], 1):
        fix = rewritten(call, "input", ".squeeze(-1)")
    elif target.rank == given.rank + 1 and same(target.dims[-1], 1):
        fix = rewritten(call, "target", ".squeeze(-1)")
    return Cause(message, fix, names_in(*given.dims, *target.dims), call.location)


def one_hot(call: Call) -> Cause | None:
    """The cause for `F.one_hot` of a number that is no class."""
    given = call.tensor("input") or call.tensor("tensor") or call.tensor("0")
    count = call.arguments.get("num_classes", call.arguments.get("1"))
    if not isinstance(given, Operand) or given.high is None or not isinstance(count, int) or given.high < count:
        return None
    message = f"one_hot makes {count} classes, the greatest number is {given.high}"
    return Cause(message, f"num_classes={given.high + 1}", names_in(*given.dims), call.location)


def item(call: Call) -> Cause | None:
    """The cause for `.item()` of more than one element."""
    given = next(iter(call.tensors), None)
    if given is None or "cannot be converted to Scalar" not in call.error:
        return None
    text = call.text("input")
    fix = f"{applied(text, '.mean()')}.item(), or .tolist()"
    return Cause(f"item() takes one element, {text} has {given}", fix, names_in(*given.dims), call.location)
