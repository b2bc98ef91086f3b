"""Values made of sizes: how far `arange(T)` reaches, and the tables that it reads.

>>> [str(reach.need) for reach in reaches(trace_attempt)]        # table = nn.Embedding(64, d)
['T <= 64']

An interval of expressions is followed through the arithmetic that positions go through. What is not known here has no
interval, and no finding comes of it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

import torch
from torch import fx

from shapeflow.check.nodes import dims_of, operator_of, record_of
from shapeflow.dims.expr import Expr, maximum, minimum
from shapeflow.dims.relation import Relation
from shapeflow.torch_private import without_modes
from shapeflow.trace.attempt import Attempt
from shapeflow.trace.traced import Record

Interval: TypeAlias = "tuple[Expr, Expr]"

SAME_VALUES = frozenset(
    """unsqueeze squeeze expand expand_as view reshape flatten repeat repeat_interleave contiguous clone detach to long
    int type_as transpose permute t flip roll getitem select narrow index_select chunk split unbind broadcast_to
    movedim tile cpu view_as T mT data""".split()
)
TRUTHS = frozenset("eq ne lt le gt ge logical_and logical_or logical_not isfinite isnan isinf".split())


@dataclass(frozen=True, slots=True)
class Reach:
    """Indices that reach beyond a table unless `need` holds: `reader` reads `rows` of them, `highest` is the last."""

    need: Relation
    reader: Record
    rows: Expr
    highest: Expr


def reaches(attempt: Attempt) -> tuple[Reach, ...]:
    """The tables that indices made of sizes may leave, in the order of reading."""
    values = Values(attempt)
    return tuple(reach for node in attempt.recorder.writer.graph.nodes for reach in values.read(node))


class Values:
    """Intervals of whole-number tensors, node by node."""

    def __init__(self, attempt: Attempt) -> None:
        self.env = attempt.env
        self.known: dict[fx.Node, Interval] = {}
        self._reals = {
            path: real
            for path, tensor in attempt.parameters.items()
            if (real := getattr(tensor.__dict__.get("_traced"), "real", None)) is not None
        } | attempt.recorder.writer.attributes

    def read(self, node: fx.Node) -> Iterator[Reach]:
        """Note the node's interval; yield what it indexes out of bounds."""
        yield from self._tables(node)
        found = self._interval(node)
        if found is not None:
            self.known[node] = found

    # Readers

    def _tables(self, node: fx.Node) -> Iterator[Reach]:
        record = record_of(node)
        if record is None or record.kind != "operator":
            return
        for indices, rows in _lookups(node, record):
            interval = self.known.get(indices)
            if interval is None:
                continue
            need = Relation(">=", rows - 1 - interval[1])
            if not need.unpinned.difference.symbols <= self.env.hints.keys() or self.env.decide(need):
                continue
            yield Reach(need.unpinned, record, rows, interval[1])

    # Intervals

    def _interval(self, node: fx.Node) -> Interval | None:
        if node.op == "get_attr":
            return self._of_real(self._reals.get(str(node.target)))
        name = _name(node)
        rule = RULES.get(name)
        if rule is not None:
            return rule(self, node)
        return self._of(node.args[0]) if name in SAME_VALUES and node.args else None

    def _of_real(self, real: Any) -> Interval | None:
        if not isinstance(real, torch.Tensor) or real.device.type == "meta" or not real.numel():
            return None
        if real.is_floating_point() or real.is_complex() or real.layout is not torch.strided:
            return None
        with without_modes():
            return Expr.const(int(real.min())), Expr.const(int(real.max()))

    def _of(self, value: Any) -> Interval | None:
        """The interval of an argument: a tensor, a size, a number."""
        if isinstance(value, fx.Node):
            size = value.meta.get("size")
            return (size, size) if size is not None else self.known.get(value)
        if isinstance(value, bool) or not isinstance(value, int):
            return None
        return Expr.const(value), Expr.const(value)

    def positions(self, node: fx.Node) -> Interval | None:
        """`arange(end)`, `arange(start, end, step)`."""
        numbers = [self._of(arg) for arg in node.args]
        start, stop = node.kwargs.get("start"), node.kwargs.get("end")
        ends = numbers or [each for each in (self._of(start), self._of(stop)) if each is not None]
        if not ends or any(end is None for end in ends):
            return None
        low, high = (ends[0], ends[1]) if len(ends) > 1 else ((Expr.const(0), Expr.const(0)), ends[0])
        assert low is not None and high is not None
        return low[0], high[1] - 1

    def sum(self, node: fx.Node) -> Interval | None:
        one, other = self._of(node.args[0]), self._of(node.args[1])
        return None if one is None or other is None else (one[0] + other[0], one[1] + other[1])

    def difference(self, node: fx.Node) -> Interval | None:
        one, other = self._of(node.args[0]), self._of(node.args[1])
        if _name(node) == "rsub":
            one, other = other, one
        return None if one is None or other is None else (one[0] - other[1], one[1] - other[0])

    def product(self, node: fx.Node) -> Interval | None:
        """Of what is not negative."""
        one, other = self._of(node.args[0]), self._of(node.args[1])
        if one is None or other is None or not self._natural(one) or not self._natural(other):
            return None
        return one[0] * other[0], one[1] * other[1]

    def _natural(self, values: Interval) -> bool:
        return self.env.decide(Relation(">=", values[0])) is True

    def quotient(self, node: fx.Node) -> Interval | None:
        if _name(node) in ("div", "divide") and node.kwargs.get("rounding_mode") not in ("floor", "trunc"):
            return None
        one, other = self._of(node.args[0]), self._of(node.args[1])
        if one is None or other is None or (other[0].constant or 0) < 1 or other[0] is not other[1]:
            return None
        return one[0] // other[0], one[1] // other[0]

    def rest(self, node: fx.Node) -> Interval | None:
        other = self._of(node.args[1])
        if other is None or other[0] is not other[1] or (other[0].constant or 0) < 1:
            return None
        return Expr.const(0), other[0] - 1

    def clamped(self, node: fx.Node) -> Interval | None:
        one = self._of(node.args[0])
        given = dict(zip(("min", "max"), node.args[1:], strict=False)) | node.kwargs
        if _name(node) == "clamp_max":
            given = {"max": node.args[1] if len(node.args) > 1 else node.kwargs.get("max")}
        low, high = self._of(given.get("min")), self._of(given.get("max"))
        if one is None:
            return (low[0], high[1]) if low is not None and high is not None else None
        least = one[0] if low is None else maximum(one[0], low[0])
        most = one[1] if high is None else minimum(one[1], high[1])
        return least, most if low is None else maximum(most, low[1])

    def joined(self, node: fx.Node) -> Interval | None:
        """One or the other: `where`, `cat`, `maximum`."""
        parts = node.args[0] if _name(node) in ("cat", "stack", "concat") else node.args
        if _name(node) == "where":
            parts = node.args[1:]
        found = [self._of(part) for part in parts] if isinstance(parts, tuple | list) else [None]
        if not found or any(part is None for part in found):
            return None
        kept = [part for part in found if part is not None]
        return reduce(minimum, [low for low, _ in kept]), reduce(maximum, [high for _, high in kept])

    def truth(self, node: fx.Node) -> Interval | None:
        """0 and 1, where an input may make all of them true: `ids != pad`, but not behind padding that we know of."""
        return (Expr.const(0), Expr.const(1)) if _is_input(node.args[0]) else None

    def constant(self, node: fx.Node) -> Interval | None:
        """`zeros`, `ones`, `full`."""
        name = _name(node)
        if name.startswith(("zeros", "ones")):
            number = Expr.const(int(name.startswith("ones")))
            return number, number
        value = node.args[1] if len(node.args) > 1 else node.kwargs.get("fill_value")
        return self._of(value)

    def running_sum(self, node: fx.Node) -> Interval | None:
        """A running sum over an axis of n ends at n times the most that one element is."""
        one = self._of(node.args[0])
        axis = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
        if one is None or not isinstance(axis, int) or not self._natural(one):
            return None
        return one[0], one[1] * dims_of(node)[axis]

    def negated(self, node: fx.Node) -> Interval | None:
        one = self._of(node.args[0])
        return None if one is None else (-one[1], -one[0])

    def absolute(self, node: fx.Node) -> Interval | None:
        one = self._of(node.args[0])
        return None if one is None else (Expr.const(0), maximum(one[1], -one[0]))


def _is_input(value: Any) -> bool:
    while isinstance(value, fx.Node) and value.op != "placeholder" and _name(value) in SAME_VALUES and value.args:
        value = value.args[0]
    return isinstance(value, fx.Node) and value.op == "placeholder"


RULES: dict[str, Callable[[Values, fx.Node], Interval | None]] = (
    {"arange": Values.positions, "cumsum": Values.running_sum, "neg": Values.negated, "abs": Values.absolute}
    | dict.fromkeys(("add", "radd", "iadd"), Values.sum)
    | dict.fromkeys(("sub", "rsub", "isub"), Values.difference)
    | dict.fromkeys(("mul", "rmul", "imul"), Values.product)
    | dict.fromkeys(("floordiv", "floor_divide", "div", "divide"), Values.quotient)
    | dict.fromkeys(("remainder", "mod", "fmod"), Values.rest)
    | dict.fromkeys(("clamp", "clip", "clamp_max", "clamp_min"), Values.clamped)
    | dict.fromkeys(("where", "cat", "concat", "stack", "maximum", "minimum"), Values.joined)
    | dict.fromkeys(TRUTHS, Values.truth)
    | dict.fromkeys(("zeros", "ones", "full", "zeros_like", "ones_like", "full_like"), Values.constant)
)


def _name(node: fx.Node) -> str:
    """The operator's name; an element of a tuple has no record of its own."""
    return operator_of(node) or ("getitem" if node.target is operator.getitem else "")


def _lookups(node: fx.Node, record: Record) -> Iterator[tuple[fx.Node, Expr]]:
    """Each tensor of indices that this operator reads with, and the number of rows that there are."""
    name = _name(node)
    if name == "embedding":
        indices = node.args[0]
        table = node.args[1] if len(node.args) > 1 else node.kwargs.get("weight")
        yield from _pair(indices, table, 0)
    elif name in ("index_select", "gather") and len(node.args) == 3 and isinstance(node.args[1], int):
        yield from _pair(node.args[2], node.args[0], node.args[1])
    elif node.target is operator.getitem and record.sources:
        index = node.args[1]
        for axis, part in enumerate(index if isinstance(index, tuple) else (index,)):
            if part is None or part is Ellipsis:
                return
            yield from _pair(part, node.args[0], axis)


def _pair(indices: Any, table: Any, axis: int) -> Iterator[tuple[fx.Node, Expr]]:
    record, dims = record_of(table), dims_of(table)
    value = indices.meta.get("val") if isinstance(indices, fx.Node) else None
    if record is None or not isinstance(value, torch.Tensor) or value.dtype is torch.bool:
        return
    if axis < len(dims) and len(record.outputs) == 1:
        yield indices, dims[axis]
