"""SF309 and SF310: a table that is read along the batch, a squeeze that drops a batch of one."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

from torch import fx

from shapeflow.check.axes import Axis, name_of, numbers_of, record_of
from shapeflow.check.problem import Problem
from shapeflow.check.rules.rule import Rule
from shapeflow.check.rules.scene import Scene, call_in_line, line_of, names_of, receiver
from shapeflow.dims.expr import Expr

RESHAPED = ("unsqueeze", "view", "reshape", "expand", "to", "getitem")


def find_tables(scene: Scene) -> Iterator[Problem]:
    for node in scene.operators("getitem", "narrow"):
        record = record_of(node.args[0])
        if record is None or record.kind not in ("parameter", "buffer", "constant"):
            continue
        if any(scene.is_batch(size) for size in _sizes_read(node)):
            yield _table(scene, node, record.path)
    for node in scene.operators("embedding"):
        made: Any = node.args[0]
        while isinstance(made, fx.Node) and name_of(record_of(made)) in RESHAPED:
            made = made.args[0]
        record = record_of(node)
        if record is None or not isinstance(made, fx.Node) or name_of(record_of(made)) != "arange":
            continue
        if any(scene.is_batch(each.meta["size"]) for each in made.all_input_nodes if "size" in each.meta):
            yield _table(scene, node, record.scopes[-1].path if record.scopes else "the table")


def _sizes_read(node: fx.Node) -> list[Expr]:
    """The ends of the slices of an index, and the length of a narrow."""
    if node.target is not operator.getitem:
        return [each.meta["size"] for each in node.all_input_nodes if "size" in each.meta]
    index = node.args[1] if isinstance(node.args[1], tuple) else (node.args[1],)
    ends = [part.stop for part in index if isinstance(part, slice)]
    return [end.meta["size"] for end in ends if isinstance(end, fx.Node) and "size" in end.meta]


def _table(scene: Scene, node: fx.Node, path: str) -> Problem:
    batch = scene.batch or "B"
    where = line_of(node)
    message = f"table '{path}' is read up to the batch size {batch}: each example of a batch gets a row of its own"
    fix = f"read it up to the length: {path}[: x.shape[1]]"
    if where is not None and "shape[0]" in where.code:
        found = next((part for part in where.code.split(" ") if "shape[0]" in part), "")
        after = f"self.{path}[: x.shape[1]]" if not found else _mended(where.code, path)
        shape = scene.axes.of(node.args[0])
        turned = shape is not None and len(shape) == 3 and not shape[1].factors
        fix = f"{after}.transpose(0, 1)" if turned else after
    return scene.problem("SF309", node, message, dims=(batch,), fix=fix)


def _mended(code: str, path: str) -> str:
    start = code.find(f"self.{path}[")
    if start < 0:
        return f"self.{path}[: x.shape[1]]"
    end = code.find("]", code.find("shape[0]", start) + len("shape[0]"))
    return code[start : end + 1].replace("shape[0]", "shape[1]")


def find_squeezes(scene: Scene) -> Iterator[Problem]:
    for node in scene.operators("squeeze"):
        shape = scene.axes.of(node.args[0])
        if shape is None or numbers_of(node.args[1:], node.kwargs):
            continue
        free = [axis for axis in shape if axis.size.symbols and axis.size.value is None and _may_be_one(scene, axis)]
        if not free:
            continue
        ones = [at for at, axis in enumerate(shape) if not axis.factors]
        eaten = " and ".join(map(str, free))
        message = f"squeeze() without a dim drops {eaten} too where it is 1: ({', '.join(map(str, shape))})"
        tensor = receiver(call_in_line(node, "squeeze"))
        trailing = ones == list(range(len(shape) - len(ones), len(shape))) and len(shape) - len(ones) == 2
        fix = f"{tensor}.flatten(1)" if trailing else f"{tensor}.squeeze({', '.join(map(str, ones)) or 'dim'})"
        yield scene.problem("SF310", node, message, dims=names_of(*(axis.size for axis in free)), fix=fix)


def _may_be_one(scene: Scene, axis: Axis) -> bool:
    (symbol, *more) = axis.size.symbols
    low = scene.axes.env.ranges.get(symbol, (2, None))[0]
    return not more and low <= 2


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
