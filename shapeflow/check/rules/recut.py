"""SF301: a view or reshape that re-cuts axes instead of moving them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from torch import fx

from shapeflow.check.axes import Factor, Recut, Shape, name_of, product, record_of
from shapeflow.check.problem import Problem
from shapeflow.check.rules.rule import Rule
from shapeflow.check.rules.scene import Scene, call_in_line, names_of, receiver
from shapeflow.dims.expr import Expr

SHIFTED = frozenset({"cat", "concat", "pad", "constant_pad_nd"})
"""Behind padding, a view to other sizes shifts each row by one: relative positions of Transformer-XL."""


def find(scene: Scene) -> Iterator[Problem]:
    for recut in scene.axes.recuts:
        if not _shifts(recut.node.args[0]) and not _is_cut(recut.node):
            yield _problem(scene, recut)


def _shifts(node: object) -> bool:
    while isinstance(node, fx.Node):
        name = name_of(record_of(node))
        if name in SHIFTED:
            return True
        if name not in ("view", "reshape", "contiguous", "getitem", "narrow") or not node.args:
            return False
        node = node.args[0]
    return False


def _is_cut(node: fx.Node) -> bool:
    """The same trick the other way round: behind the view the first row is left out (XLNet)."""
    for user in node.users:
        index = user.args[1] if name_of(record_of(user)) == "getitem" else ()
        parts = index if isinstance(index, tuple) else (index,)
        if any(isinstance(part, slice) and isinstance(part.start, int) and part.start > 0 for part in parts):
            return True
    return False


def _problem(scene: Scene, recut: Recut) -> Problem:
    name = name_of(record_of(recut.node))
    source, target = _row(recut.source), ", ".join(map(str, recut.target))
    order = _order(scene, recut)
    call = call_in_line(recut.node, name)
    if order is not None and len(recut.target) < len(recut.source):
        wanted = ", ".join(str(recut.source[at].size) for at in order)
        message = f"{name}: axes ({source}) are flattened as if they were ({wanted})"
    else:
        message = f"{name}: axes ({source}) are cut anew as ({target}), which moves no axis but mixes their elements"
    fix = _fix(scene, recut, order, receiver(call), call, name)
    dims = names_of(*(factor.size for factor in recut.source))
    return scene.problem("SF301", recut.node, message, dims=dims, fix=fix)


def _row(factors: Sequence[Factor]) -> str:
    return ", ".join(map(str, factors))


def _order(scene: Scene, recut: Recut) -> list[int] | None:
    """The order of the source's factors in which they would make up the target."""
    left = list(range(len(recut.source)))
    order: list[int] = []
    for dim in recut.target:
        taken = _taken(scene, recut, left, dim)
        if taken is None:
            return None
        order.extend(taken)
        left = [at for at in left if at not in taken]
    return order if not left else None


def _taken(scene: Scene, recut: Recut, left: list[int], dim: Expr) -> list[int] | None:
    """Factors that make up a dim: one, or else the fewest that stand in a row among those left."""
    rows = [left[start:stop] for start in range(len(left)) for stop in range(start + 1, len(left) + 1)]
    rows += [[one, other] for one in left for other in left if one < other]
    for row in sorted(rows, key=len):
        if scene.axes.equal(product(recut.source[at].size for at in row), dim):
            return row
    return None


def _fix(scene: Scene, recut: Recut, order: list[int] | None, tensor: str, call: ast.Call | None, name: str) -> str:
    shape = scene.axes.of(recut.node.args[0])
    if order is None or shape is None:
        return f"move the axes with transpose or permute before {name}"
    first = _first_axis(shape, recut.source[0])
    places = [at for at, axis in enumerate(shape) if axis.factors]
    simple = first is not None and all(len(axis.factors) == 1 for axis in shape if axis.factors)
    if not simple or first is None:
        return f"move the axes with transpose or permute before {name}"
    start = places.index(first)
    moved = list(range(len(shape)))
    for offset, at in enumerate(order):
        moved[places[start + offset]] = places[start + at]
    swapped = [at for at, now in enumerate(moved) if at != now]
    turn = f"transpose({swapped[0]}, {swapped[1]})" if len(swapped) == 2 else f"permute({', '.join(map(str, moved))})"
    if len(recut.target) == len(order):
        return f"{tensor}.{turn}"
    args = ", ".join(map(ast.unparse, _sizes(call))) if call is not None else "..."
    return f"{tensor}.{turn}.reshape({args})"


def _sizes(call: ast.Call) -> list[ast.expr]:
    owner = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else "torch"
    return call.args[1:] if owner in ("torch", "") else call.args


def _first_axis(shape: Shape, factor: Factor) -> int | None:
    return next((at for at, axis in enumerate(shape) if axis.factors and axis.factors[0].id == factor.id), None)


RULES = (
    Rule(
        "SF301",
        "a reshape interleaves axes",
        "error",
        """
        A view keeps the order of the elements in memory. Where two axes are to change places, or axes that do not stand
        side by side are to become one, a transpose has to come first; a view alone splices different positions.

        wrong:
            y = weights @ v                                  # B n_heads T d_head
            return self.out(y.reshape(b, t, d_model))

        right:
            return self.out(y.transpose(1, 2).reshape(b, t, d_model))
        """,
        find,
    ),
)
