"""Sums, products, losses: two shapes that do not broadcast.

y is B 16 8 8, self.short(x) is B 16 16 16: Conv2d 'conv2' makes 8 of 16 (stride=2)
fix: nn.Conv2d(16, 16, 3, stride=1, padding=1)
"""

from __future__ import annotations

from dataclasses import dataclass

from shapeflow.check.cause.call import Call, Dims, Operand, names_in, number, same
from shapeflow.check.cause.chain import SEVERAL, chain, source_of
from shapeflow.check.cause.result import Cause, Repair
from shapeflow.check.cause.rounding import rounded
from shapeflow.check.cause.suspects import layers_behind, mends_behind, widths_behind
from shapeflow.check.cause.swapping import applied
from shapeflow.dims.expr import Expr

VIEWS = frozenset("getitem narrow to float type_as expand unsqueeze view transpose permute contiguous clone".split())
"""What a table goes through and still is one."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two tensors, with the source text of it."""

    operand: Operand
    text: str

    def __str__(self) -> str:
        return f"{self.text} is {self.operand}"

    @property
    def given(self) -> bool:
        """Whether it is an input as it came, whose declared shape is taken as true."""
        return self.operand.kind == "input"


BROADCASTING = ("broadcast", "must match the size", "must be the same as", "same size")
"""What torch says of shapes that do not fit side by side."""


def broadcasts(call: Call) -> bool:
    """Whether the operator lays its tensors side by side: by its name, or by what torch says."""
    return call.operator in SEVERAL or any(text in call.error for text in BROADCASTING)


def elementwise(call: Call) -> Cause | None:
    """The cause for two tensors that do not broadcast."""
    sides = _sides(call)
    if sides is None:
        return None
    left, right = sides
    axes = differing(left.operand.dims, right.operand.dims)
    if not axes:
        return None
    return (
        _table_too_short(call, left, right, axes)
        or _unaligned(call, left, right)
        or _transposed(call, left, right, axes)
        or _rounded(call, left, right, axes)
        or _resized(call, left, right, axes)
    )


def differing(a: Dims, b: Dims) -> list[int]:
    """The axes, counted from the end, that do not broadcast."""
    pairs = range(1, min(len(a), len(b)) + 1)
    return [-at for at in pairs if not (same(a[-at], b[-at]) or same(a[-at], 1) or same(b[-at], 1))]


def _sides(call: Call) -> tuple[Side, Side] | None:
    found = [(name, value) for name, value in call.arguments.items() if isinstance(value, Operand)]
    if len(found) < 2:
        return None
    first, second = (Side(value, _text(call, name, value)) for name, value in found[:2])
    return first, second


def _text(call: Call, name: str, operand: Operand) -> str:
    return call.text(name, "") or operand.path or {"0": "left", "1": "right"}.get(name, name)


def _table_too_short(call: Call, left: Side, right: Side, axes: list[int]) -> Cause | None:
    """A slice of a table stops at its end: `self.pe[:, :T]` has 20 rows at most."""
    for table, other in ((right, left), (left, right)):
        source, steps = source_of(table.operand), list(chain(table.operand))
        step = steps[0] if steps else None
        if any(each.maker.operator not in VIEWS for each in steps):
            continue
        whole = table.operand.kind in ("parameter", "buffer")
        sliced = step is not None and (step.maker.operator in ("getitem", "narrow") or not step.resizes)
        if source.kind not in ("parameter", "buffer") or not (sliced or whole) or not source.path:
            continue
        rows, needed = table.operand.dims[axes[0]], other.operand.dims[axes[0]]
        if number(rows) is None or not any(same(rows, dim) for dim in source.dims) or not (sliced or needed.symbols):
            continue
        names = " ".join(sorted(symbol.name for symbol in needed.symbols))
        at = (
            f" = {other.operand.sizes[axes[0]]}" if needed.constant is None and other.operand.sizes[axes[0]] > 0 else ""
        )
        end = ": the slice stops at the end of the table" if sliced else ""
        message = f"table '{source.path}' has {rows} rows, {other.text} has {needed}{at}{end}"
        declared = f", and declare {names}<={rows} or what it becomes" if names else f": {rows} are too few"
        fix = f"size '{source.path}' for the longest {names or 'input'} you accept{declared}"
        return Cause(message, fix, names_in(needed), call.location)
    return None


def _unaligned(call: Call, left: Side, right: Side) -> Cause | None:
    """A tensor of lower rank whose axes are the first ones of the other: `(B, C)` against `(B, C, H, W)`."""
    small, great = sorted((left, right), key=lambda side: side.operand.rank)
    rank, missing = small.operand.rank, great.operand.rank - small.operand.rank
    if not missing or not rank:
        return None
    inside = (great.operand.dims[0], *great.operand.dims[missing + 1 :])
    if rank > 1 and all(same(a, b) for a, b in zip(small.operand.dims, inside, strict=True)):
        index = ", ".join([":"] + ["None"] * missing + [":"] * (rank - 1))
        message = f"{left}, {right}: {small.text} has no axis between its first and the others"
        return Cause(message, f"{small.text}[{index}]", names_in(*small.operand.dims), call.location)
    for behind in range(missing, 0, -1):
        over = great.operand.dims[missing - behind : great.operand.rank - behind]
        if all(same(a, b) for a, b in zip(small.operand.dims, over, strict=True)):
            index = ", ".join([":"] * rank + ["None"] * behind)
            text = f"{small.text}[{index}]" if behind > 1 or rank == 1 else applied(small.text, ".unsqueeze(-1)")
            if rank == 1:
                text = f"{small.text}[:{', None' * behind}]"
            message = f"{left}, {right}: the axes of {small.text} stand {behind} too far right"
            return Cause(message, text, names_in(*small.operand.dims), call.location)
    return None


def _transposed(call: Call, left: Side, right: Side, axes: list[int]) -> Cause | None:
    a, b = left.operand, right.operand
    if len(axes) != 2 or a.rank != b.rank or a.rank < 2:
        return None
    i, j = axes
    if not (same(a.dims[i], b.dims[j]) and same(a.dims[j], b.dims[i])):
        return None
    wrong = left if _wrong_first(call, left, right, axes) else right
    method = ".T" if a.rank == 2 else f".transpose({a.rank + j}, {a.rank + i})"
    message = f"{left}, {right}: axes {a.rank + j} and {a.rank + i} are the other way round"
    return Cause(message, applied(wrong.text, method), names_in(a.dims[j], a.dims[i]), call.location)


def _rounded(call: Call, left: Side, right: Side, axes: list[int]) -> Cause | None:
    """Maps whose rows were halved and doubled."""
    a, b = left.operand, right.operand
    if a.rank != b.rank or a.rank < 3 or min(axes) < 2 - a.rank or not any(a.dims[axis].symbols for axis in axes):
        return None
    places = sorted(a.rank + axis for axis in axes)
    return rounded(call, f"{left}, {right}", places, (left.text, a), (right.text, b))


def _wrong_first(call: Call, left: Side, right: Side, axes: list[int]) -> bool:
    """Whether the left side is the wrong one: by the promised result, else the one that is no input."""
    if _promised(call, left, right, axes):
        return True
    if _promised(call, right, left, axes):
        return False
    if left.given != right.given:
        return right.given
    return len(list(chain(left.operand))) >= len(list(chain(right.operand)))


def _promised(call: Call, wrong: Side, true: Side, axes: list[int]) -> bool:
    """Whether the annotation of the result agrees with one side and not with the other."""
    dims = call.promised
    if dims is None or len(dims) != max(wrong.operand.rank, true.operand.rank):
        return False
    fits = [all(_agrees(side.operand.dims[axis], dims[axis]) for axis in axes) for side in (wrong, true)]
    return fits == [False, True]


def _agrees(dim: Expr, promised: Expr) -> bool:
    return same(dim, promised) or str(dim) == str(promised)


def _resized(call: Call, left: Side, right: Side, axes: list[int]) -> Cause:
    """A layer on one side gives another size: the last one that does, on the side that is wrong."""
    message = f"{left}, {right}"
    wrong, true = (left, right) if _wrong_first(call, left, right, axes) else (right, left)
    sides = [(wrong, true)]
    if not true.given and not _promised(call, wrong, true, axes):
        sides.append((true, wrong))
    found = [
        repair
        for resizing in (True, False)
        for one, other in sides
        for repair in _repairs(call, one, other, axes, message, resizing=resizing)
    ]
    repairs = list(dict.fromkeys(found))
    dims = names_in(*(each for axis in reversed(axes) for each in (left.operand.dims[axis], right.operand.dims[axis])))
    straight = source_of(wrong.operand).kind == "input" and not true.given
    if straight and not any(layers_behind(call.root, wrong.operand)):
        return _unprojected(call, wrong, true, axes, message, dims, repairs)
    if repairs:
        first = repairs[0]
        where = first.location or call.location
        return Cause(first.message, first.fix, dims, where, candidates=tuple(repairs))
    return Cause(f"{message}: {_differ(axes, left.operand, right.operand)}", "", dims, call.location)


def _repairs(call: Call, wrong: Side, true: Side, axes: list[int], message: str, *, resizing: bool) -> list[Repair]:
    target = {axis: true.operand.dims[axis] for axis in axes}
    found: list[Repair] = []
    if len(axes) == 1:
        found += widths_behind(call.root, wrong.operand, axes[0], target[axes[0]], message)
    return found + mends_behind(call.root, wrong.operand, target, message, resizing=resizing)


def _unprojected(
    call: Call, wrong: Side, true: Side, axes: list[int], message: str, dims: tuple[str, ...], repairs: list[Repair]
) -> Cause:
    """A shortcut straight from the input, beside a branch that gives what is promised."""
    told = f"{message}: {_differ(axes, wrong.operand, true.operand)}"
    rank, wanted = wrong.operand.rank, true.operand.dims
    numbers = [number(wrong.operand.dims[axis]) for axis in axes] + [number(wanted[axis]) for axis in axes]
    fix = ""
    if None not in numbers and wrong.operand.rank == true.operand.rank:
        fix = _projection(wrong, wanted, axes, rank)
    where = call.location
    return Cause(told, fix, dims, where, candidates=tuple(repairs))


def _projection(wrong: Side, wanted: Dims, axes: list[int], rank: int) -> str:
    """The layer that brings the shortcut to the branch's shape."""
    have = wrong.operand.dims
    if rank <= 3 and axes == [-1]:
        return f"project {wrong.text}: nn.Linear({have[-1]}, {wanted[-1]})"
    if rank == 4:
        before, after = number(have[-1]), number(wanted[-1])
        stride = f", stride={before // after}" if before and after and -1 in axes and before % after == 0 else ""
        return f"project {wrong.text}: nn.Conv2d({have[1]}, {wanted[1]}, 1{stride})"
    return ""


def _differ(axes: list[int], left: Operand, right: Operand) -> str:
    shown = [f"axis {left.rank + axis} is {left.dims[axis]} and {right.dims[axis]}" for axis in reversed(axes)]
    return ", ".join(shown)
