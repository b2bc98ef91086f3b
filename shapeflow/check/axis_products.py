"""What products do to axes: matmul and its kin, einsum, attention. Which axes pair, and which are summed away.

>>> equation(axes, node)          # of torch.einsum("btd,bsd->bts", q, k)
([(['b', 't', 'd'], q's axes), (['b', 's', 'd'], k's axes)], ['b', 't', 's'])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import fx

from shapeflow.check.axis import Axis, Dims, Shape
from shapeflow.check.nodes import argument, operator_of

if TYPE_CHECKING:
    from shapeflow.check.axes import Axes


def paired(operands: list[tuple[Shape, bool]], back: int, axes: Axes, dims: Dims) -> Axis:
    """The axis that broadcasting leaves at this place from the end: one with a size, rather of no parameter."""
    there = [
        (not shape[-back].factors, held or shape[-back].constant, shape[-back])
        for shape, held in operands
        if len(shape) >= back
    ]
    return min(there, key=lambda each: each[:2])[2] if there else axes.axis(dims[-back])


def multiplied(axes: Axes, node: fx.Node, dims: Dims, output: int) -> Shape | None:
    pair = factors_of_product(axes, node)
    if pair is None:
        return None
    left, right = pair
    rows, columns = (left[-2:-1] if len(left) > 1 else ()), (right[-1:] if len(right) > 1 else ())
    batch = [shape[:-2] for shape in pair if len(shape) > 2]
    many = max(map(len, batch), default=0)
    outer = [paired([(shape, False) for shape in batch], back, axes, dims) for back in range(many, 0, -1)]
    return (*outer, *rows, *columns)


def factors_of_product(axes: Axes, node: fx.Node) -> tuple[Shape, Shape] | None:
    """The axes of the two factors of a product, the left one first."""
    first, second = product_operands(node)
    left, right = axes.of(first), axes.of(second)
    return None if not left or not right else (left, right)


def product_operands(node: fx.Node) -> tuple[Any, Any]:
    """The left and the right factor of a matrix product."""
    name = operator_of(node)
    start = 1 if name in ("addmm", "baddbmm", "addbmm") else 0
    names = ("batch1", "batch2") if name == "baddbmm" else ("mat1", "mat2") if name == "addmm" else ("input", "other")
    first, second = argument(node, start, names[0]), argument(node, start + 1, names[1], argument(node, 1, "mat2"))
    return (second, first) if name == "rmatmul" else (first, second)


def attended(axes: Axes, node: fx.Node, dims: Dims, output: int) -> Shape | None:
    query, value = axes.of(argument(node, 0, "query")), axes.of(argument(node, 2, "value"))
    return None if not query or not value else (*query[:-1], value[-1])


def contracted_by_name(axes: Axes, node: fx.Node, dims: Dims, output: int) -> Shape | None:
    letters = equation(axes, node)
    if letters is None:
        return None
    operands, result = letters
    made: list[Axis] = []
    for letter in result:
        there = [shape[row.index(letter)] for row, shape in operands if letter in row]
        made.append(next((axis for axis in there if axis.factors), there[0]) if there else Axis(()))
    return tuple(made)


def equation(axes: Axes, node: fx.Node) -> tuple[list[tuple[list[str], Shape]], list[str]] | None:
    """The letters of an einsum's operands with their axes, and of its result; an ellipsis has a letter an axis."""
    text = node.args[0] if node.args else None
    if not isinstance(text, str):
        return None
    given: Any = node.args[1] if len(node.args) == 2 and isinstance(node.args[1], tuple | list) else node.args[1:]
    shapes = [axes.of(each) for each in given]
    left, arrow, right = text.replace(" ", "").partition("->")
    rows = left.split(",")
    if len(rows) != len(shapes) or not all(shapes):
        return None
    operands = [(_letters(row, len(shape)), shape) for row, shape in zip(rows, shapes, strict=True) if shape]
    if any(len(row) != len(shape) for row, shape in operands):
        return None
    names = [letter for row, _ in operands for letter in row]
    longest = max((sum(letter.startswith(".") for letter in row) for row, _ in operands), default=0)
    outer = [f".{back}" for back in range(longest, 0, -1)]
    if not arrow:
        return operands, [
            *outer,
            *sorted(each for each in set(names) if not each.startswith(".") and names.count(each) == 1),
        ]
    head, dots, tail = right.partition("...")
    return operands, [*head, *(outer if dots else []), *tail]


def _letters(row: str, rank: int) -> list[str]:
    head, dots, tail = row.partition("...")
    many = rank - len(head) - len(tail) if dots else 0
    return [*head, *(f".{back}" for back in range(many, 0, -1)), *tail]
