"""Where each axis of each tensor comes from: an axis is a row of factors, each with an origin of its own.

>>> axes = Axes(trace, env)
>>> axes.of(node)           # of `x.view(b * t, d)`: the first axis is made of two
(Axis((Factor(B), Factor(T))), Axis((Factor(d),)))

Views split and merge factors, transposes move axes, elementwise operators pair them. What an operator that is not known
here makes has factors of its own, so that no finding comes of ignorance.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, TypeAlias

from torch import fx

from shapeflow.dims.env import DimEnv
from shapeflow.dims.expr import Expr
from shapeflow.dims.relation import Relation
from shapeflow.trace.result import Trace
from shapeflow.trace.traced import Record
from shapeflow.trace.view import KEEPS_AXES

Id: TypeAlias = "tuple[Any, ...]"
ONE = Expr.const(1)
RECUT = "recut"
LONGEST_GROUP = 5
"""So many axes are matched with so many others in a view; what is longer is taken as unknown."""


@dataclass(frozen=True, slots=True)
class Factor:
    """A part of an axis. `id` is (origin,), or (origin, part, parts) after a split; equal ids are the same axis."""

    id: Id
    size: Expr

    def __str__(self) -> str:
        return str(self.size)


@dataclass(frozen=True, slots=True)
class Axis:
    """Factors, the slowest first; none for an axis of size one, which is `implicit` when nobody asked for it."""

    factors: tuple[Factor, ...]
    implicit: bool = False

    @property
    def size(self) -> Expr:
        return product(factor.size for factor in self.factors)

    def __str__(self) -> str:
        return "*".join(f"({each})" if " " in str(each) else str(each) for each in self.factors) or "1"


Shape: TypeAlias = tuple[Axis, ...]


@dataclass(frozen=True, slots=True)
class Recut:
    """A view whose axes do not nest: `source` axes are read as if they were `target`."""

    node: fx.Node
    source: tuple[Factor, ...]
    target: tuple[Expr, ...]


def product(sizes: Iterable[Expr]) -> Expr:
    total = ONE
    for size in sizes:
        total = total * size
    return total


@dataclass(slots=True)
class Axes:
    """The axes of every node of a trace, and the views that re-cut them."""

    trace: Trace
    env: DimEnv
    recuts: list[Recut] = field(default_factory=list)
    known: dict[fx.Node, tuple[Shape, ...]] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        for node in self.trace.graph.nodes:
            shapes = self._shapes(node)
            if shapes is not None:
                self.known[node] = shapes

    def of(self, node: Any, output: int = 0) -> Shape | None:
        """The axes of a node's output; None for what is no tensor."""
        shapes = self.known.get(node) if isinstance(node, fx.Node) else None
        return shapes[output] if shapes is not None and output < len(shapes) else None

    # Nodes

    def _shapes(self, node: fx.Node) -> tuple[Shape, ...] | None:
        record = record_of(node)
        if record is None:
            if node.target is operator.getitem and isinstance(node.args[1], int):
                shape = self.of(node.args[0], node.args[1])
                return None if shape is None else (shape,)
            return None
        sizes = [signature.shape.dims for signature in record.outputs]
        made = tuple(self._made(node, record, dims, index) for index, dims in enumerate(sizes))
        return made

    def _made(self, node: fx.Node, record: Record, dims: Sequence[Expr], output: int) -> Shape:
        rule = RULES.get(name_of(record))
        found = rule(self, node, dims, output) if rule is not None and record.kind == "operator" else None
        if found is not None and len(found) == len(dims):
            return tuple(self._sized(axis, dim) for axis, dim in zip(found, dims, strict=True))
        return self.fresh(dims, implicit=record.kind == "operator")

    def _sized(self, axis: Axis, dim: Expr) -> Axis:
        """The axis if it has this size; else one of its own, kin to nothing."""
        if dim.value == 1:
            return replace(axis, factors=())
        return axis if axis.factors and self.equal(axis.size, dim) else self.axis(dim)

    def fresh(self, dims: Iterable[Expr], *, implicit: bool = False) -> Shape:
        """Axes with origins of their own."""
        return tuple(self.axis(dim, implicit=implicit) for dim in dims)

    def axis(self, size: Expr, *, implicit: bool = False) -> Axis:
        if size.value == 1:
            return Axis((), implicit)
        return Axis((Factor((next(self._numbers),), size),))

    def equal(self, one: Expr, other: Expr) -> bool:
        """Whether two sizes are known to be equal."""
        return one.unpinned is other.unpinned or self.env.decide(Relation("==", one - other)) is True

    # Rules

    def kept(self, node: fx.Node, dims: Sequence[Expr], output: int) -> Shape | None:
        """The first argument's axes, whatever their sizes are now."""
        shape = self.of(node.args[0]) if node.args else None
        return shape if shape is not None and len(shape) == len(dims) else None

    def elementwise(self, node: fx.Node, dims: Sequence[Expr], output: int) -> Shape | None:
        """Axes aligned from the last one; where several operands have an axis, the first one's."""
        operands = [shape for each in tensors_of(node) if (shape := self.of(each)) is not None]
        if not operands:
            return None
        made: list[Axis] = []
        for back in range(1, len(dims) + 1):
            there = [shape[-back] for shape in operands if len(shape) >= back]
            made.append(next((axis for axis in there if axis.factors), there[0] if there else self.axis(dims[-back])))
        return tuple(reversed(made))

    def last_replaced(self, node: fx.Node, dims: Sequence[Expr], output: int) -> Shape | None:
        """`linear`: the last axis is new, and of size one only because the layer has one feature."""
        shape = self.of(node.args[0])
        if shape is None or len(shape) != len(dims):
            return None
        return (*shape[:-1], self.axis(dims[-1], implicit=True))

    def embedded(self, node: fx.Node, dims: Sequence[Expr], output: int) -> Shape | None:
        shape = self.of(node.args[0])
        return None if shape is None else (*shape, self.axis(dims[-1]))

    def convolved(self, node: fx.Node, dims: Sequence[Expr], output: int) -> Shape | None:
        """The batch stays; channels and positions are new."""
        shape = self.of(node.args[0])
        if shape is None or len(shape) != len(dims):
            return None
        return (shape[0], *self.fresh(dims[1:], implicit=True))

    def pooled(self, node: fx.Node, dims: Sequence[Expr], output: int) -> Shape | None:
        shape = self.of(node.args[0])
        if shape is None or len(shape) != len(dims) or len(shape) < 3:
            return None
        kept = [axis if self.equal(axis.size, dim) else self.axis(dim) for axis, dim in zip(shape, dims, strict=True)]
        return tuple(kept)

    def multiplied(self, node: fx.Node, dims: Sequence[Expr], output: int) -> Shape | None:
        left, right = self.of(node.args[0]), self.of(node.args[1])
        if left is None or right is None or len(left) < 2 or len(right) < 2:
            return None
        longer = left if len(left) >= len(right) else right
        return (*longer[:-2], left[-2], right[-1])

    def attended(self, node: fx.Node, dims: Sequence[Expr], output: int) -> Shape | None:
        query, value = self.of(node.args[0]), self.of(node.args[2]) if len(node.args) > 2 else None
        return None if query is None or value is None else (*query[:-1], value[-1])

    def transposed(self, node: fx.Node, dims: Sequence[Expr], output: int) -> Shape | None:
        shape = self.of(node.args[0])
        if shape is None or len(shape) != len(dims):
            return None
        name = name_of(record_of(node))
        if name in ("t", "T", "mT", "adjoint"):
            order = list(range(len(shape)))
            order[-2:] = reversed(order[-2:])
            return tuple(shape[axis] for axis in order) if len(shape) == 2 or name != "T" else None
        given = numbers_of(node.args[1:], node.kwargs)
        if name in ("transpose", "swapaxes", "swapdims") and len(given) == 2:
            order = list(range(len(shape)))
            one, other = (axis % len(shape) for axis in given)
            order[one], order[other] = order[other], order[one]
            return tuple(shape[axis] for axis in order)
        if name == "permute" and len(given) == len(shape):
            return tuple(shape[axis] for axis in given)
        return None

    def unsqueezed(self, node: fx.Node, dims: Sequence[Expr], output: int) -> Shape | None:
        shape, given = self.of(node.args[0]), numbers_of(node.args[1:], node.kwargs)
        if shape is None or len(given) != 1:
            return None
        at = given[0] % (len(shape) + 1)
        return (*shape[:at], Axis(()), *shape[at:])

    def squeezed(self, node: fx.Node, dims: Sequence[Expr], output: int) -> Shape | None:
        shape, given = self.of(node.args[0]), numbers_of(node.args[1:], node.kwargs)
        if shape is None:
            return None
        dropped = {axis % len(shape) for axis in given} if given else set(range(len(shape)))
        return tuple(axis for at, axis in enumerate(shape) if axis.factors or at not in dropped)

    def expanded(self, node: fx.Node, dims: Sequence[Expr], output: int) -> Shape | None:
        """A size-one axis that is expanded has an origin of its own."""
        shape = self.of(node.args[0])
        if shape is None or len(shape) > len(dims):
            return None
        new = len(dims) - len(shape)
        old = (a if a.factors else self.axis(d) for a, d in zip(shape, dims[new:], strict=True))
        return (*self.fresh(dims[:new]), *old)

    def reduced(self, node: fx.Node, dims: Sequence[Expr], output: int) -> Shape | None:
        shape = self.of(node.args[0])
        if shape is None or not dims:
            return None
        if len(shape) == len(dims):
            return tuple(a if self.equal(a.size, d) else Axis(()) for a, d in zip(shape, dims, strict=True))
        given = numbers_of(node.args[1:2], {name: v for name, v in node.kwargs.items() if name in ("dim", "axis")})
        if not given:
            return None
        dropped = {axis % len(shape) for axis in given}
        return tuple(axis for at, axis in enumerate(shape) if at not in dropped)

    def joined(self, node: fx.Node, dims: Sequence[Expr], output: int) -> Shape | None:
        parts = node.args[0] if node.args else None
        shape = self.of(parts[0]) if isinstance(parts, tuple | list) and parts else None
        if shape is None or len(shape) != len(dims):
            return None
        return tuple(a if self.equal(a.size, d) else self.axis(d) for a, d in zip(shape, dims, strict=True))

    def indexed(self, node: fx.Node, dims: Sequence[Expr], output: int) -> Shape | None:
        """`x[:, 0]`, `x[..., None]`, `x[:, :t]`: a part of an axis has an origin of its own."""
        shape = self.of(node.args[0])
        index = node.args[1] if isinstance(node.args[1], tuple) else (node.args[1],)
        if shape is None or any(isinstance(part, fx.Node) and "size" not in part.meta for part in index):
            return None
        rest = len(shape) - sum(part is not None and part is not Ellipsis for part in index)
        made: list[Axis] = []
        at = 0
        for part in index if Ellipsis in index else (*index, Ellipsis):
            if part is Ellipsis:
                made.extend(shape[at : at + rest])
                at += rest
            elif part is None:
                made.append(Axis(()))
            else:
                if isinstance(part, slice):
                    axis, dim = shape[at], dims[len(made)] if len(made) < len(dims) else ONE
                    made.append(axis if self.equal(axis.size, dim) else self.axis(dim))
                at += 1
        return tuple(made)

    def parted(self, node: fx.Node, dims: Sequence[Expr], output: int) -> Shape | None:
        """`chunk`, `split`: the other axes stay. `unbind` drops one."""
        shape = self.of(node.args[0])
        if shape is None:
            return None
        if len(shape) == len(dims):
            return tuple(a if self.equal(a.size, d) else self.axis(d) for a, d in zip(shape, dims, strict=True))
        given = numbers_of(node.args[1:], node.kwargs) or [0]
        at = given[0] % len(shape)
        return (*shape[:at], *shape[at + 1 :])

    def viewed(self, node: fx.Node, dims: Sequence[Expr], output: int) -> Shape | None:
        """Factors split and merged; a view that does neither re-cuts its axes."""
        shape = self.of(node.args[0])
        if shape is None:
            return None
        factors = _whole(tuple(factor for axis in shape for factor in axis.factors))
        wanted = [dim for dim in dims if dim.value != 1]
        groups = self._groups(factors, wanted)
        if groups is None:
            return None
        axes = iter(axis for source, target in groups for axis in self._cut(node, source, target))
        return tuple(Axis(()) if dim.value == 1 else next(axes) for dim in dims)

    def _groups(
        self, factors: tuple[Factor, ...], dims: Sequence[Expr]
    ) -> list[tuple[tuple[Factor, ...], tuple[Expr, ...]]] | None:
        """The shortest rows of factors and of dims with the same product, one after the other."""
        groups: list[tuple[tuple[Factor, ...], tuple[Expr, ...]]] = []
        at = to = 0
        while at < len(factors) or to < len(dims):
            pair = self._group(factors[at:], dims[to:])
            if pair is None:
                return None
            groups.append((factors[at : at + pair[0]], tuple(dims[to : to + pair[1]])))
            at, to = at + pair[0], to + pair[1]
        return groups

    def _group(self, factors: Sequence[Factor], dims: Sequence[Expr]) -> tuple[int, int] | None:
        pairs = [
            (many, wide)
            for many in range(1, min(len(factors), LONGEST_GROUP) + 1)
            for wide in range(1, min(len(dims), LONGEST_GROUP) + 1)
        ]
        for many, wide in sorted(pairs, key=sum):
            if self.equal(product(each.size for each in factors[:many]), product(dims[:wide])):
                return many, wide
        return None

    def _cut(self, node: fx.Node, source: tuple[Factor, ...], target: tuple[Expr, ...]) -> list[Axis]:
        if len(target) == 1:
            return [Axis(source)]
        if len(source) == 1:
            return [Axis((each,)) for each in _split(source[0], target)]
        nested = self._nested(list(source), target)
        if nested is None:
            if not any(factor.id[0] == RECUT for factor in source):  # what follows from one is not told again
                self.recuts.append(Recut(node, source, target))
            return [Axis((Factor((RECUT, next(self._numbers)), size),)) for size in target]
        return nested

    def _nested(self, factors: list[Factor], dims: Sequence[Expr]) -> list[Axis] | None:
        """Each dim out of whole factors and parts of them, from the left; None where they do not nest."""
        made: list[Axis] = []
        for dim in dims:
            taken: list[Factor] = []
            left = dim
            while not self.equal(left, ONE):
                if not factors:
                    return None
                factor = factors.pop(0)
                if (rest := _exactly(left, factor.size)) is not None:
                    taken.append(factor)
                    left = rest
                elif (rest := _exactly(factor.size, left)) is not None:
                    first, second = _split(factor, (left, rest))
                    taken.append(first)
                    factors.insert(0, second)
                    left = ONE
                else:
                    return None
            made.append(Axis(tuple(taken)))
        return made


def _exactly(size: Expr, by: Expr) -> Expr | None:
    """`size / by` where it is a whole number for all sizes."""
    size, by = size.unpinned, by.unpinned
    quotient = size // by
    return quotient if quotient * by is size else None


def _split(factor: Factor, sizes: Sequence[Expr]) -> list[Factor]:
    return [Factor((*factor.id, part, len(sizes)), size) for part, size in enumerate(sizes)]


def _whole(factors: tuple[Factor, ...]) -> tuple[Factor, ...]:
    """All parts of one factor, in their order, are that factor again."""
    made: list[Factor] = []
    for factor in factors:
        made.append(factor)
        while len(made[-1].id) >= 3:
            *origin, _, parts = made[-1].id
            last = made[-parts:]
            if [each.id for each in last] != [(*origin, part, parts) for part in range(parts)]:
                break
            made[-parts:] = [Factor(tuple(origin), product(each.size for each in last))]
    return tuple(made)


def record_of(node: Any) -> Record | None:
    record = node.meta.get("shapeflow") if isinstance(node, fx.Node) else None
    return record if isinstance(record, Record) else None


def name_of(record: Record | None) -> str:
    """The operator's name, in place or not."""
    return "" if record is None else record.operator.rstrip("_") if record.operator != "_" else "_"


def tensors_of(node: fx.Node) -> list[fx.Node]:
    """The nodes that a node reads."""
    return [each for each in node.all_input_nodes if "size" not in each.meta]


def numbers_of(args: Any, kwargs: Any) -> list[int]:
    """The whole numbers among the arguments, those in lists too."""
    found: list[int] = []
    for value in [*args, *kwargs.values()]:
        if isinstance(value, tuple | list):
            found.extend(numbers_of(value, {}))
        elif isinstance(value, int) and not isinstance(value, bool):
            found.append(value)
    return found


Rule: TypeAlias = Callable[[Axes, fx.Node, Sequence[Expr], int], "Shape | None"]
RULES: dict[str, Rule] = (
    dict.fromkeys((name.rstrip("_") for name in KEEPS_AXES), Axes.elementwise)
    | dict.fromkeys("softmax log_softmax normalize cumsum pad flip roll dropout to float bool".split(), Axes.kept)
    | {"linear": Axes.last_replaced, "embedding": Axes.embedded, "scaled_dot_product_attention": Axes.attended}
    | dict.fromkeys("conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d".split(), Axes.convolved)
    | dict.fromkeys(
        """max_pool1d max_pool2d avg_pool1d avg_pool2d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool1d
        adaptive_max_pool2d interpolate""".split(),
        Axes.pooled,
    )
    | dict.fromkeys(("matmul", "bmm", "__matmul__", "rmatmul"), Axes.multiplied)
    | dict.fromkeys("transpose swapaxes swapdims permute t T mT adjoint".split(), Axes.transposed)
    | {"unsqueeze": Axes.unsqueezed, "squeeze": Axes.squeezed, "getitem": Axes.indexed}
    | dict.fromkeys(("expand", "expand_as", "broadcast_to"), Axes.expanded)
    | dict.fromkeys(
        "sum mean amax amin max min prod std var norm logsumexp argmax argmin any all".split(), Axes.reduced
    )
    | dict.fromkeys(("cat", "concat"), Axes.joined)
    | dict.fromkeys(("chunk", "split", "tensor_split", "unbind"), Axes.parted)
    | dict.fromkeys(("view", "reshape", "flatten", "unflatten", "view_as", "reshape_as"), Axes.viewed)
)
