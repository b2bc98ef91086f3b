"""Indices, slices, gather, and axes that do not exist.

x[:, 77] of B 5 7: axis 1 has 5 elements, index 77 is past the end
"""

from __future__ import annotations

import re
from typing import Any

from shapeflow.check.cause.call import Call, Operand, names_in, number, same
from shapeflow.check.cause.result import Cause
from shapeflow.check.cause.swapping import rewritten


def index(call: Call) -> Cause | None:
    """The cause for `x[...]`."""
    given, where = call.tensor("input"), call.arguments.get("index")
    if given is None:
        return None
    items = where if isinstance(where, list) else [where]
    taken = sum(_axes_taken(item) for item in items)
    text = call.expression.text if call.expression is not None else "the index"
    if taken > given.rank:
        message = f"{text}: {taken} indices for {given.rank} axes, {given}"
        return Cause(message, "", names_in(*given.dims), call.location)
    axis = 0
    for at, item in enumerate(items):
        if item is Ellipsis:
            axis = given.rank - sum(_axes_taken(each) for each in items[at + 1 :])
            continue
        if axis < given.rank and (found := _wrong_item(call, text, given, axis, item)) is not None:
            return found
        axis += _axes_taken(item)
    return None


def _axes_taken(item: Any) -> int:
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    return item.rank if isinstance(item, Operand) and item.dtype == "bool" else 1


def _wrong_item(call: Call, text: str, given: Operand, axis: int, item: Any) -> Cause | None:
    size = given.dims[axis]
    if isinstance(item, Operand) and item.dtype == "bool":
        return _mask(call, text, given, axis, item)
    if isinstance(item, Operand):
        if item.high is None or number(size) is None or item.high < int(number(size) or 0):
            return None
        message = f"{text}: axis {axis} of {given} has {size} elements, the greatest index is {item.high}"
        return Cause(message, "", names_in(size), call.location)
    if not isinstance(item, int) and not hasattr(item, "symbols"):
        return None
    at, length = number(item), number(size)
    if at is None or (length is not None and -length <= at < length):
        return None
    if length is None and at >= 0 and given.sizes[axis] > at:
        return None
    last = f"{size} elements" if length is None else f"{length} elements, the last is {length - 1}"
    message = f"{text}: axis {axis} of {given} has {last}; index {item} is past the end"
    names = [name for name in names_in(size) if not name.isdigit()]
    fix = f"declare {names[0]}>{at}" if names and at >= 0 else ""
    return Cause(message, fix, names_in(size), call.location)


def _mask(call: Call, text: str, given: Operand, axis: int, mask: Operand) -> Cause | None:
    for offset, dim in enumerate(mask.dims):
        if axis + offset < given.rank and not same(dim, given.dims[axis + offset]):
            message = (
                f"{text}: the mask is {mask}, the tensor {given}: axis {axis + offset} is {given.dims[axis + offset]}"
            )
            return Cause(f"{message}, not {dim}", "", names_in(dim, given.dims[axis + offset]), call.location)
    return None


def gather(call: Call) -> Cause | None:
    """The cause for `gather` and its like: the index has the rank of the input."""
    given, picked, dim = call.tensor("input"), call.tensor("index"), call.arguments.get("dim")
    if given is None or picked is None:
        return None
    if given.rank != picked.rank:
        message = f"{call.operator} takes an index of {given.rank} axes for {given}, gets {picked.rank}: {picked}"
        fix = rewritten(call, "index", ".unsqueeze(-1)") if picked.rank == given.rank - 1 else ""
        return Cause(message, fix, names_in(*picked.dims), call.location)
    for axis, (a, b) in enumerate(zip(given.dims, picked.dims, strict=True)):
        if isinstance(dim, int) and axis != dim % given.rank and not same(a, b) and not same(b, 1):
            message = (
                f"{call.operator} along axis {dim}: the index is {picked}, the input {given}: axis {axis} is longer"
            )
            return Cause(message, "", names_in(a, b), call.location)
    return None


def no_such_axis(call: Call) -> Cause | None:
    """`dim=3` of a tensor with three axes, in any operator."""
    found = re.search(r"expected to be in range of \[-?\d+, \d+\], but got (-?\d+)", call.error)
    given = next(iter(call.tensors), None)
    if found is None or given is None:
        return None
    message = f"{call.operator} on axis {found[1]}: {call.text('input', 'the tensor')} has {given.rank} axes, {given}"
    return Cause(message, f"an axis from 0 to {given.rank - 1}, or negative", names_in(*given.dims), call.location)
