"""SF301: a view or reshape that re-cuts axes instead of moving them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from torch import fx

from shapeflow.check.axis import Factor, Recut, Shape, shared
from shapeflow.check.cause.call import names_in
from shapeflow.check.nodes import dims_of, name_of, operator_of, record_of
from shapeflow.check.problem import Problem
from shapeflow.check.regroup import reordered
from shapeflow.check.rules.rule import Rule
from shapeflow.check.rules.scene import Scene, call_in_line, receiver
from shapeflow.dims.expr import Expr, product

SHIFTED = frozenset({"cat", "concat", "pad", "constant_pad_nd"})
"""Behind padding, a view to other sizes shifts each row by one: relative positions of Transformer-XL."""


def find(scene: Scene) -> Iterator[Problem]:
    for recut in scene.axes.recuts:
        if _of_one_axis(scene, recut):
            continue
        batch = any(scene.is_batch(factor.size) for factor in recut.source)  # nobody shifts examples
        if batch or not (_shifts(recut.node.args[0]) or _is_cut(recut.node)):
            yield _problem(scene, recut)


def _shifts(node: object) -> bool:
    """Whether the rows were shifted before: by padding, or in a view that lost its first row."""
    while isinstance(node, fx.Node):
        name = name_of(record_of(node))
        if name in SHIFTED or (_swaps(node) and _is_cut(node)):
            return True
        if name not in ("view", "reshape", "contiguous", "getitem", "narrow") or not node.args:
            return False
        node = node.args[0]
    return False


def _swaps(node: fx.Node) -> bool:
    """Whether a view gives two axes each other's sizes, (q, k) to (k, q)."""
    if operator_of(node) not in ("view", "reshape"):
        return False
    before, after = dims_of(node.args[0]), dims_of(node)
    apart = [at for at, pair in enumerate(zip(before, after, strict=False)) if pair[0] is not pair[1]]
    return len(before) == len(after) and len(apart) == 2 and before[apart[0]] is after[apart[1]]


def _is_cut(node: fx.Node) -> bool:
    """The same trick the other way round: behind the view the first row is left out (XLNet)."""
    for user in node.users:
        index = user.args[1] if name_of(record_of(user)) == "getitem" else ()
        parts = index if isinstance(index, tuple) else (index,)
        if any(isinstance(part, slice) and isinstance(part.start, int) and part.start > 0 for part in parts):
            return True
    return False


def _of_one_axis(scene: Scene, recut: Recut) -> bool:
    """One axis cut in two ways, in blocks here and on a grid there; not two axes of an input that were merged."""
    if any(scene.is_batch(factor.size) for factor in recut.source) or not _is_one_axis(scene, recut):
        return False
    names = {symbol.name for factor in recut.source for symbol in factor.size.symbols}
    whole = any(factor.size is Expr.symbol(name) for factor in recut.source for name in names)
    return len(recut.source) > 1 and (not whole or any(len(factor.id) > 1 for factor in recut.source))


def _problem(scene: Scene, recut: Recut) -> Problem:
    rows = reordered(scene.axes, recut.source, recut.target)
    call = call_in_line(recut.node, operator_of(recut.node))
    fix = _fix(scene, recut, rows, call) or f"move the axes with transpose or permute before {operator_of(recut.node)}"
    dims = names_in(*(factor.size for factor in recut.source))
    return scene.problem("SF301", recut.node, _message(scene, recut, rows), dims=dims, fix=fix)


def _message(scene: Scene, recut: Recut, rows: list[list[int]] | None) -> str:
    name, source, target = operator_of(recut.node), _row(recut.source), ", ".join(map(str, recut.target))
    if rows is not None and _is_one_axis(scene, recut):
        return f"{name}: an axis made of ({source}) is split as if it were made of ({target})"
    if rows is not None and len(recut.target) < len(recut.source):
        order = [at for row in rows for at in row]
        moved = [at for at, now in enumerate(order) if at != now]
        start, stop = moved[0], moved[-1] + 1
        wanted = _row([recut.source[at] for at in order[start:stop]])
        return f"{name}: axes ({_row(recut.source[start:stop])}) are flattened as if they were ({wanted})"
    return f"{name}: axes ({source}) are cut anew as ({target}), which moves no axis but mixes their elements"


def _row(factors: Sequence[Factor]) -> str:
    return ", ".join(map(str, factors))


def _is_one_axis(scene: Scene, recut: Recut) -> bool:
    """Whether one axis holds all the factors, merged before."""
    shape = scene.axes.of(recut.node.args[0]) or ()
    return any(shared(recut.source[:1], axis.factors) and len(axis.factors) == len(recut.source) for axis in shape)


# What would be right


def _fix(scene: Scene, recut: Recut, rows: list[list[int]] | None, call: ast.Call | None) -> str:
    """In the words of the line; `""` where no order of the axes gives these sizes."""
    shape = scene.axes.of(recut.node.args[0])
    if rows is None or shape is None:
        return _split_late(scene, recut, call)
    if _is_one_axis(scene, recut):
        return _resplit(recut, rows, call)
    order = _moved(shape, recut, rows)
    if order is None:
        return ""
    tensor, sizes = receiver(call), ", ".join(map(ast.unparse, _sizes(call)))
    if _is_state(recut) and len(rows) == 2 and len(recut.target) == 2:
        parts = ", ".join(f"{tensor}[{at}]" for at in range(recut.source[0].size.value or 0))
        return f"torch.cat(({parts}), 1)"
    if all(len(row) == 1 for row in rows):
        plain = len(shape) == len(scene.axes.of(recut.node) or ())
        return f"{tensor}.{_turn(order)}" + ("" if plain else f".reshape({sizes or '...'})")
    if order == [0, *range(2, len(order)), 1] and len(order) > 3 and [len(row) for row in rows] == [len(order) - 2, 1]:
        return f"{tensor}.flatten(2).transpose(1, 2)"
    return f"{tensor}.{_turn(order)}.reshape({sizes or '...'})"


def _is_state(recut: Recut) -> bool:
    """Whether the axes are those of a recurrent layer's state, (2, batch, features): its directions."""
    before = recut.node.args[0]
    item = isinstance(before, fx.Node) and record_of(before) is None and bool(before.args)
    made_by = operator_of(before.args[0]) if isinstance(before, fx.Node) and item else ""
    return made_by in ("lstm", "gru", "rnn_tanh", "rnn_relu") and recut.source[0].size.value == 2


def _moved(shape: Shape, recut: Recut, rows: list[list[int]]) -> list[int] | None:
    """The permutation of the tensor's axes that puts the factors in order; None where it would tear an axis apart."""
    places = [_axis_of(shape, factor) for factor in recut.source]
    wanted = [places[at] for row in rows for at in row]
    turned = [place for at, place in enumerate(wanted) if at == 0 or place != wanted[at - 1]]
    known = sorted({place for place in places if place is not None})
    if None in places or len(turned) != len(known) or sum(len(shape[at].factors) for at in known) != len(places):
        return None
    order = list(range(len(shape)))
    for place, now in zip(known, turned, strict=True):
        order[place] = now  # type: ignore[assignment]  # none is None
    return order


def _axis_of(shape: Shape, factor: Factor) -> int | None:
    return next((at for at, axis in enumerate(shape) if factor.id in [each.id for each in axis.factors]), None)


def _split_late(scene: Scene, recut: Recut, call: ast.Call | None) -> str:
    """`x.view(b, t, n_heads, d_head).transpose(1, 2)` for `x.view(b, n_heads, t, d_head)`."""
    if len(recut.source) != 2 or call is None:
        return ""
    first, second = (factor.size for factor in recut.source)
    sizes, start, name = _sizes(call), recut.places[0], operator_of(recut.node)
    if name not in ("view", "reshape") or start + len(recut.target) > len(sizes):
        return ""
    for at, dim in enumerate(recut.target):
        rest = product(each for i, each in enumerate(recut.target) if i != at)
        if at and scene.axes.equal(dim, first) and scene.axes.equal(rest, second):
            texts = [ast.unparse(each) for each in sizes]
            texts.insert(start, texts.pop(start + at))
            turn = f"transpose({start}, {start + 1})" if at == 1 else f"movedim({start}, {start + at})"
            return f"{receiver(call)}.{name}({', '.join(texts)}).{turn}"
    return ""


def _turn(order: list[int]) -> str:
    """The call that puts axes into this order."""
    swapped = [at for at, now in enumerate(order) if at != now]
    if len(swapped) == 2:
        return f"transpose({swapped[0]}, {swapped[1]})"
    return f"permute({', '.join(map(str, order))})"


def _resplit(recut: Recut, rows: list[list[int]], call: ast.Call | None) -> str:
    """The same call with the sizes in the order in which the axis was made."""
    written = _sizes(call)
    nested = written[-1].elts if written and isinstance(written[-1], ast.Tuple | ast.List) else None
    sizes = list(written if nested is None else nested)
    start = recut.places[0] if nested is None or len(written) == 1 else 0
    if call is None or any(len(row) != 1 for row in rows) or start + len(rows) > len(sizes):
        return ""
    right = list(sizes)
    for at, row in enumerate(rows):
        right[start + row[0]] = sizes[start + at]
    text = ", ".join(map(ast.unparse, right))
    inside = text if nested is None else ", ".join([*map(ast.unparse, written[:-1]), f"({text})"])
    return f"{receiver(call)}.{operator_of(recut.node)}({inside})"


def _sizes(call: ast.Call | None) -> list[ast.expr]:
    """What the line writes as sizes, without the tensor of `torch.reshape(y, ...)`."""
    if call is None:
        return []
    owner = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else "torch"
    return call.args[1:] if owner in ("torch", "") else call.args


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
