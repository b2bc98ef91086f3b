"""SF309 and SF310: a table that is read along the batch, a squeeze that drops a batch of one."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterator, Mapping
from typing import Any

from torch import fx

from shapeflow.check.axes import Shape
from shapeflow.check.cause.call import names_in
from shapeflow.check.explore import declared_ranges
from shapeflow.check.nodes import behind, name_of, numbers_of, operator_of, record_of, tensors_of
from shapeflow.check.problem import Problem
from shapeflow.check.rules.marks import FARTHEST
from shapeflow.check.rules.operand import parsed_line
from shapeflow.check.rules.rule import Rule
from shapeflow.check.rules.scene import Scene, call_in_line, receiver
from shapeflow.check.sizes import Range
from shapeflow.dims.expr import Expr
from shapeflow.trace.view import KEEPS_AXES

ANGLES = (
    "mul",
    "div",
    "truediv",
    "einsum",
    "outer",
    "cat",
    "stack",
    "repeat",
    "repeat_interleave",
    "matmul",
    "flatten",
)
"""Between positions and their sines."""
RESHAPED = ("unsqueeze", "view", "reshape", "expand", "to", "getitem")


SIZES = ((r"\.shape\[0\]", ".shape[1]"), (r"\.size\(0\)", ".size(1)"), (r"\blen\((\w+)\)", r"\1.shape[1]"))
"""How a line asks for the first size, and how for the second."""


def find_tables(scene: Scene) -> Iterator[Problem]:
    for node in scene.operators("getitem", "narrow", "index_select"):
        record, reader = record_of(node.args[0]), _reader(scene, node)
        if record is None or record.kind not in ("parameter", "buffer", "constant") or reader is None:
            continue
        if _given_to_all(scene, node):
            yield _table(scene, node, reader, record.path or "the table")
    for node in scene.operators("embedding"):
        record, made = record_of(node), _counted(scene, node.args[0])
        if record is not None and made is not None:
            yield _table(scene, node, made, record.scopes[-1].path if record.scopes else "the table")
    yield from _angles(scene)


def _angles(scene: Scene) -> Iterator[Problem]:
    """Sines of a count of the examples: positions of everything but what stands along the batch."""
    told: set[fx.Node] = set()
    for node in scene.operators("sin", "cos"):
        made = _counted_behind(scene, node)
        if made is not None and made not in told:
            told.add(made)
            batch = scene.batch or "B"
            message = f"positions are counted up to the batch size {batch}: each example of a batch gets one of its own"
            fix = _up_to_the_length(made, "")
            yield scene.problem("SF309", made, message, dims=(batch,), fix=fix)


def _counted_behind(scene: Scene, node: fx.Node) -> fx.Node | None:
    """The `arange` of the batch size behind an angle, through products with frequencies."""
    waiting, seen = [node], {node}
    while waiting and len(seen) < FARTHEST:
        each = waiting.pop()
        if (made := _counted(scene, each)) is not None:
            return made
        if each is node or operator_of(each) in (*ANGLES, *RESHAPED):
            new = [one for one in tensors_of(each) if one not in seen]
            seen.update(new)
            waiting.extend(new)
    return None


def _reader(scene: Scene, node: fx.Node) -> fx.Node | None:
    """What reads the first axis of a table up to the batch size: a slice of that axis alone, or a count of rows.

    Axes of size one before it do not count.
    """
    if name_of(record_of(node)) != "getitem":
        counted = _counted(scene, node.args[-1])
        sizes = [each.meta["size"] for each in node.all_input_nodes if "size" in each.meta]
        return node if any(map(scene.is_batch, sizes)) else counted
    index = node.args[1] if isinstance(node.args[1], tuple) else (node.args[1],)
    reading = [at for at, part in enumerate(index) if part not in (slice(None), Ellipsis, None)]
    before = (scene.axes.of(node.args[0]) or ())[: reading[0]] if len(reading) == 1 else ()
    if len(reading) != 1 or len(before) != reading[0] or any(axis.factors for axis in before):
        return None  # a cache (max_batch, max_len, ...) is read along both, a state (layers, max_batch, ...) has layers
    part = index[reading[0]]
    end = part.stop if isinstance(part, slice) else None
    if isinstance(end, fx.Node) and "size" in end.meta:
        return node if scene.is_batch(end.meta["size"]) else None
    return _counted(scene, part)


def _counted(scene: Scene, made: Any) -> fx.Node | None:
    """The `arange` of the batch size behind indices."""
    made = behind(made, RESHAPED)
    if operator_of(made) != "arange":
        return None
    sizes = [each.meta["size"] for each in made.all_input_nodes if "size" in each.meta]
    return made if any(map(scene.is_batch, sizes)) else None


def _given_to_all(scene: Scene, node: fx.Node) -> bool:
    """Whether a row for each example meets a tensor with one more axis, and is the same all along it."""
    for user in node.users:
        if name_of(record_of(user)) in (*RESHAPED, "transpose", "dropout"):
            if _given_to_all(scene, user):
                return True
            continue
        own = scene.axes.of(node) or ()
        for other in tensors_of(user) if name_of(record_of(user)) in KEEPS_AXES else ():
            shape = scene.axes.of(other) or ()
            pairs = list(zip(reversed(own), reversed(shape), strict=False))
            longer = other is not node and any(axis.factors and not mine.factors for mine, axis in pairs)
            if longer and any(map(scene.has_batch, shape)):
                return True
    return False


def _table(scene: Scene, node: fx.Node, reader: fx.Node, path: str) -> Problem:
    """`reader` is what names the batch size: the slice itself, or the `arange` that an embedding reads with."""
    batch = scene.batch or "B"
    message = f"table '{path}' is read up to the batch size {batch}: each example of a batch gets a row of its own"
    text = _up_to_the_length(reader, path.rpartition(".")[2])
    shape = scene.axes.of(node.args[0])
    turned = reader is node and shape is not None and len(shape) == 3 and not shape[1].factors
    fix = f"{text}.transpose(0, 1)" if turned else text
    return scene.problem("SF309", node, message, dims=(batch,), fix=fix)


def _up_to_the_length(reader: fx.Node, table: str) -> str:
    """What reads the table, with the length for the batch size."""
    found = [each for each in ast.walk(parsed_line(reader)) if _reads(each, reader, table)]
    if not found:
        return f"{table}[: x.shape[1]]"
    text = ast.unparse(found[0])
    tree = found[0]
    inside = tree.args if isinstance(tree, ast.Call) else [tree.slice] if isinstance(tree, ast.Subscript) else [tree]
    walked = [each for part in inside for each in ast.walk(part)]  # a device is no size
    names = [each.id for each in walked if isinstance(each, ast.Name) and each.id not in ("self", "torch")]
    by_name = [(rf"\b{names[-1]}\b", "x.shape[1]")] if names else []
    for size, length in (*SIZES, *by_name):
        text, changes = re.subn(size, length, text)
        if changes:
            break
    return re.sub(r"(\[|, ):(?=\w)", r"\1: ", text)


def _reads(tree: ast.AST, reader: fx.Node, table: str) -> bool:
    if isinstance(tree, ast.Subscript):
        return reader.target is operator.getitem and ast.unparse(tree.value).endswith(table)
    called = tree.func if isinstance(tree, ast.Call) else None
    return getattr(called, "attr", getattr(called, "id", "")) == name_of(record_of(reader))


def find_squeezes(scene: Scene) -> Iterator[Problem]:
    ranges = declared_ranges(scene.trace._attempt.bound)  # as declared: a run itself starts from sizes of two
    for node in scene.operators("squeeze"):
        shape = scene.axes.of(node.args[0])
        if shape is None or numbers_of(node.args[1:], node.kwargs):
            continue
        free = [axis for axis in shape if _may_be_one(axis.size, ranges)]
        if free:
            eaten = " and ".join(map(str, free))
            message = f"squeeze() without a dim drops {eaten} too where it is 1: ({', '.join(map(str, shape))})"
            fix = _squeezed(receiver(call_in_line(node, "squeeze")), shape)
            yield scene.problem("SF310", node, message, dims=names_in(*(axis.size for axis in free)), fix=fix)


def _may_be_one(size: Expr, ranges: Mapping[str, Range]) -> bool:
    if size.value is not None or len(size.symbols) != 1:
        return False
    (symbol,) = size.symbols
    return size is Expr.symbol(symbol.name) and ranges.get(symbol.name, Range()).low <= 1


def _squeezed(tensor: str, shape: Shape) -> str:
    """The axes of size one by their numbers; what pooling leaves of an image is flattened."""
    ones = [at for at, axis in enumerate(shape) if not axis.factors]
    trailing = ones == list(range(len(shape) - len(ones), len(shape)))
    if not ones:
        return f"{tensor}, without squeeze()"
    if len(ones) == 1:
        return f"{tensor}.squeeze({-1 if trailing else ones[0]})"
    return f"{tensor}.flatten(1)" if trailing and len(shape) - len(ones) == 2 else f"{tensor}.squeeze({tuple(ones)})"


RULES = (
    Rule(
        "SF309",
        "a table sliced by the batch size",
        "error",
        """
        A table of positions has a row for each position. Read up to the batch size, it gives one to each example.

        wrong:
            return x + self.pe[: x.shape[0]]                 # x: B T d_model, pe: max_len 1 d_model

        right:
            return x + self.pe[: x.shape[1]].transpose(0, 1)
        """,
        find_tables,
    ),
    Rule(
        "SF310",
        "a bare squeeze() that can eat an axis",
        "error",
        """
        squeeze() drops every axis of size one, the batch among them when there is a single example.

        wrong:
            return self.head(self.pool(x).squeeze())         # pool gives B C 1 1

        right:
            return self.head(self.pool(x).flatten(1))
        """,
        find_squeezes,
    ),
)
