"""The first axis that disagrees, in one line, from the sizes of the call alone.

>>> disagreement(call, lambda name: {"input": "x", "other": "self.pe"}[name])
'axis 1 of x is T = 33, axis 1 of self.pe is 20'
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from math import prod

from shapeflow.check.cause import Call
from shapeflow.check.cause.call import Operand, factors_text, number, operands_in, same, valued
from shapeflow.check.cause.elementwise import broadcasts
from shapeflow.check.cause.parameters import PARAMETERS
from shapeflow.dims.expr import Expr

Text = Callable[[str], str]
_SIZES = re.compile(r"tensor a \((\d+)\).*tensor b \((\d+)\) at non-singleton dimension (\d+)")


def disagreement(call: Call, text: Text) -> str:
    """What meets what on which axis; "" for operators that are not known, and where no axis disagrees."""
    found = _FAMILIES.get(call.operator) or _by_dimension(call) or (_elementwise if broadcasts(call) else None)
    return (found(call, text) if found is not None else "") or _from_message(call.error)


def shown(size: Expr | int) -> str:
    """A size with its number: `T = 33`."""
    return valued(size).replace("=", " = ")


def _axis(text: str, operand: Operand, axis: int) -> str:
    """`axis 1 of x is T = 33`."""
    axis %= max(operand.rank, 1)
    return f"axis {axis} of {text} is {shown(operand.dims[axis])}"


def _meeting(call: Call, text: Text, first: tuple[str, int], second: tuple[str, int]) -> str:
    """Two axes that have to be equal, where both are there and they are not."""
    found = []
    for name, axis in (first, second):
        operand = call.tensor(name)
        if operand is None or not -operand.rank <= axis < operand.rank:
            return ""
        found.append((operand, axis, text(name)))
    (a, at, left), (b, other, right) = found
    return "" if same(a.dims[at], b.dims[other]) else f"{_axis(left, a, at)}, {_axis(right, b, other)}"


def _linear(call: Call, text: Text) -> str:
    return _meeting(call, text, ("input", -1), ("weight", -1))


def _matmul(call: Call, text: Text) -> str:
    names = _two(call)
    if names is None:
        return ""
    (left, a), (right, b) = names
    if not a.rank or not b.rank:
        return ""
    inner = _meeting(call, text, (left, -1), (right, -2 if b.rank > 1 else -1))
    return inner or _side_by_side((text(left), a), (text(right), b), skip=2)


def _two(call: Call) -> tuple[tuple[str, Operand], tuple[str, Operand]] | None:
    names = [(name, each) for name, each in call.arguments.items() if isinstance(each, Operand) and name != "add"]
    return (names[0], names[1]) if len(names) > 1 else None


def _elementwise(call: Call, text: Text) -> str:
    names = _two(call)
    if names is None:
        return ""
    (left, a), (right, b) = names
    return _side_by_side((text(left), a), (text(right), b))


def _side_by_side(left: tuple[str, Operand], right: tuple[str, Operand], *, skip: int = 0) -> str:
    """The first axis, counted from the left, on which two shapes do not broadcast, but for the last `skip`."""
    (first, a), (second, b) = left, right
    for back in range(min(a.rank, b.rank), skip, -1):
        m, n = a.dims[-back], b.dims[-back]
        if not (same(m, n) or same(m, 1) or same(n, 1)):
            return f"{_axis(first, a, -back)}, {_axis(second, b, -back)}"
    return ""


def _convolution(call: Call, text: Text) -> str:
    operand, weight = call.tensor("input"), call.tensor("weight")
    if operand is None or weight is None:
        return ""
    axes = weight.rank - 2
    if operand.rank not in (axes + 1, axes + 2):
        return (
            f"{text('input')} has {operand.rank} axes, {call.operator} takes {axes + 2}, or {axes + 1} without a batch"
        )
    groups, channel = call.arguments.get("groups", 1), operand.rank - axes - 1
    transposed = "transpose" in call.operator
    wanted = weight.dims[0] if transposed else weight.dims[1] * groups
    if same(operand.dims[channel], wanted):
        return ""
    return f"{_axis(text('input'), operand, channel)}, {text('weight')} is for {shown(wanted)} channels"


def _normalised(call: Call, text: Text) -> str:
    """A norm of channels: axis 1 against its statistics or its weight."""
    named = next((name for name in ("running_mean", "weight") if call.tensor(name) is not None), "")
    return _meeting(call, text, ("input", 1), (named, 0)) if named else _features(call, text)


def _features(call: Call, text: Text) -> str:
    """What a module of torch takes, against what it gets."""
    operand = call.tensor("input")
    wanted = getattr(call.module, "num_features", None)
    if operand is None or operand.rank < 2 or wanted is None or same(operand.dims[1], wanted):
        return ""
    return f"{_axis(text('input'), operand, 1)}, {call.path or call.operator} is for {wanted}"


def _trailing(call: Call, text: Text) -> str:
    operand, wanted = call.tensor("input"), call.arguments.get("normalized_shape")
    if operand is None or not isinstance(wanted, list | tuple):
        return ""
    for back in range(min(len(wanted), operand.rank), 0, -1):
        if not same(operand.dims[-back], wanted[-back]):
            return f"{_axis(text('input'), operand, -back)}, normalized_shape says {wanted[-back]}"
    return ""


def _joined(call: Call, text: Text) -> str:
    """The axes of tensors that are joined, without the one along which they are."""
    tensors = list(operands_in(call.arguments.get("tensors")))
    along = call.arguments.get("dim", 0)
    texts = _items(call)
    for at, (a, b) in enumerate(pairwise(tensors)):
        left, right = texts(at), texts(at + 1)
        if a.rank != b.rank:
            return f"{left} has {a.rank} axes, {right} has {b.rank}"
        for axis in range(a.rank):
            if (call.operator == "stack" or axis != along % a.rank) and not same(a.dims[axis], b.dims[axis]):
                return f"{_axis(left, a, axis)}, {_axis(right, b, axis)}"
    return ""


def _items(call: Call) -> Callable[[int], str]:
    """The texts of the items of a list, where the code writes them out."""
    expression = call.expression
    node = None if expression is None else expression.argument_node("tensors", PARAMETERS["cat"], call.callee)
    count = len(list(operands_in(call.arguments.get("tensors"))))
    parts = [expression.of(each) for each in node.elts] if expression and isinstance(node, ast.Tuple | ast.List) else []
    return lambda at: parts[at] if len(parts) == count else f"tensor {at}"


def _recut(call: Call, text: Text) -> str:
    operand = call.tensor("input")
    sizes = call.arguments.get("size", call.arguments.get("shape"))
    if operand is None or not isinstance(sizes, list | tuple):
        return ""
    known = [each if isinstance(each, int) else number(each) for each in sizes if isinstance(each, int | Expr)]
    if len(known) < len(sizes) or None in known:
        return ""
    have, want = _product(operand.sizes), _product(each for each in known if each != -1)
    if -1 in known:
        fits = want and have % want == 0
        return (
            "" if fits else f"{text('input')} has {factors_text(operand.dims)} = {have} elements, no multiple of {want}"
        )
    if have == want:
        return ""
    asked = f"{factors_text(sizes)} = {want}" if len(sizes) > 1 else str(want)
    return f"{text('input')} has {factors_text(operand.dims)} = {have} elements, {asked} are asked"


def _product(sizes: Iterable[int | None]) -> int:
    return prod(each for each in sizes if each is not None)


def _expanded(call: Call, text: Text) -> str:
    """An axis that is repeated has to be 1."""
    operand, sizes = call.tensor("input"), call.arguments.get("size")
    if operand is None or not isinstance(sizes, list | tuple) or len(sizes) < operand.rank:
        return ""
    for axis, size in enumerate(sizes[len(sizes) - operand.rank :]):
        if (
            isinstance(size, int)
            and size != -1
            and not same(operand.dims[axis], 1)
            and not same(operand.dims[axis], size)
        ):
            return f"{_axis(text('input'), operand, axis)}, {size} is asked, and only an axis of 1 is repeated"
    return ""


def _rows(call: Call, text: Text) -> str:
    indices, table = call.tensor("input"), call.tensor("weight")
    if indices is None or table is None or indices.high is None:
        return ""
    rows = number(table.dims[0])
    if rows is None or indices.high < rows:
        return ""
    return (
        f"axis 0 of {text('weight')} is {shown(table.dims[0])}, the greatest index in {text('input')} is {indices.high}"
    )


def _classes(call: Call, text: Text) -> str:
    """A loss over classes: all axes but the class axis, which is the second one, are those of the target."""
    logits, target = call.tensor("input"), call.tensor("target")
    if logits is None or target is None or logits.rank < 2 or target.rank != logits.rank - 1:
        return ""
    for axis in range(target.rank):
        other = axis if axis == 0 else axis + 1
        if not same(logits.dims[other], target.dims[axis]):
            first, second = _axis(text("input"), logits, other), _axis(text("target"), target, axis)
            return f"{first}, {second}: axis 1 of {text('input')} is taken for the classes"
    return ""


def _heads(call: Call, text: Text) -> str:
    """Queries against keys: the axis that is contracted."""
    return _meeting(call, text, ("query", -1), ("key", -1)) or _meeting(call, text, ("key", -2), ("value", -2))


def _widths(call: Call, text: Text) -> str:
    """A module of torch that says for how many features it was made."""
    module = call.module
    for name, attribute in (("query", "embed_dim"), ("key", "kdim"), ("value", "vdim"), ("input", "input_size")):
        operand, wanted = call.tensor(name), getattr(module, attribute, None)
        if operand is not None and operand.rank and isinstance(wanted, int) and not same(operand.dims[-1], wanted):
            return f"{_axis(text(name), operand, -1)}, {attribute} of {call.path or call.operator} is {wanted}"
    return ""


def _letters(call: Call, text: Text) -> str:
    """The letter of an einsum that stands for two sizes."""
    equation = call.arguments.get("equation", call.arguments.get("0"))
    if not isinstance(equation, str) or "." in equation:
        return ""
    seen: dict[str, tuple[str, Expr]] = {}
    for term, operand in zip(equation.replace(" ", "").split("->")[0].split(","), call.tensors, strict=False):
        if len(term) != operand.rank:
            return f"{term!r} names {len(term)} axes of a tensor of {operand.rank}: {operand}"
        for axis, letter in enumerate(term):
            where = f"axis {axis} of {term!r}"
            known = seen.setdefault(letter, (where, operand.dims[axis]))
            if not same(known[1], operand.dims[axis]) and not same(known[1], 1) and not same(operand.dims[axis], 1):
                return f"{letter} is {shown(known[1])} on {known[0]}, {shown(operand.dims[axis])} on {where}"
    return ""


def _by_dimension(call: Call) -> Callable[[Call, Text], str] | None:
    return _convolution if call.operator.startswith("conv") else None


def _from_message(error: str) -> str:
    """What torch itself says of two shapes, where the tensors are not known."""
    match = _SIZES.search(error)
    return f"axis {match[3]} is {match[1]} on the left, {match[2]} on the right" if match else ""


def _pairs() -> Iterator[tuple[str, Callable[[Call, Text], str]]]:
    yield "linear", _linear
    yield from ((name, _matmul) for name in ("matmul", "bmm", "mm", "mv", "baddbmm", "addmm"))
    yield from ((name, _normalised) for name in ("batch_norm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d"))
    yield from ((name, _normalised) for name in ("instance_norm", "group_norm"))
    yield from ((name, _trailing) for name in ("layer_norm", "rms_norm"))
    yield from ((name, _joined) for name in ("cat", "stack"))
    yield from ((name, _recut) for name in ("view", "reshape"))
    yield "expand", _expanded
    yield "embedding", _rows
    yield from ((name, _classes) for name in ("cross_entropy", "nll_loss", "CrossEntropyLoss", "NLLLoss"))
    yield "scaled_dot_product_attention", _heads
    yield from ((name, _widths) for name in ("MultiheadAttention", "RNN", "GRU", "LSTM"))
    yield "einsum", _letters


_FAMILIES = dict(_pairs())
