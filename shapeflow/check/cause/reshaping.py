"""view, reshape, unflatten: the numbers do not come out.

view: 4 heads of 30//4 = 7 make 28, not 30: self.heads does not divide 30
fix: heads=5 (30 % 5 == 0), and assert width % heads == 0 in __init__
"""

from __future__ import annotations

import ast
from typing import Any

from shapeflow.check.cause.call import Call, Operand, factors_text, names_in, number, same
from shapeflow.check.cause.norm import nearest_divisor
from shapeflow.check.cause.result import Cause
from shapeflow.check.cause.suspects import widths_behind
from shapeflow.check.cause.swapping import applied
from shapeflow.check.cause.syntax import Source
from shapeflow.dims.expr import Expr, product

Wanted = list[tuple[Any, str]]
"""Sizes, each with the text it is written as."""


def reshape(call: Call) -> Cause | None:
    """The cause for `view`, `reshape` and `unflatten`."""
    given = call.tensor("input")
    if given is None:
        return None
    have, wanted = _sizes(call, given)
    if not wanted:
        return None
    if "stride" in call.error:
        return _not_contiguous(call, given)
    open_axis = any(size == -1 for size, _ in wanted)
    closed = [(size, text) for size, text in wanted if not (isinstance(size, int) and size == -1)]
    left, asked = _matched(have, closed)
    return (
        _indivisible(call, given, *_divided(left, asked))
        or _fixed_batch(call, given, wanted)
        or _other_sample(call, given, closed, open_axis)
        or _wrong_width(call, given, left, asked, open_axis)
        or _plain(call, given, have, wanted)
    )


def _not_contiguous(call: Call, given: Operand) -> Cause:
    text = call.text("input")
    message = f"view of {text} ({given}): its memory is in another order since it was transposed; a view cannot copy"
    fix = call.text("input") + ".reshape(...)"
    if call.expression is not None and isinstance(call.expression.node, ast.Call):
        fix = call.expression.text.replace(".view(", ".reshape(", 1) if ".view(" in call.expression.text else fix
    return Cause(message, fix, names_in(*given.dims), call.location)


def _sizes(call: Call, given: Operand) -> tuple[tuple[Expr, ...], Wanted]:
    """The axes that are split anew, and the sizes that they are to have."""
    if call.operator == "unflatten":
        sizes, dim = call.arguments.get("sizes", ()), call.arguments.get("dim", -1)
        texts = _texts(call, 2, len(sizes))
        return (given.dims[dim],), list(zip(sizes, texts, strict=True))
    sizes = call.arguments.get("size", call.arguments.get("shape", ()))
    if not isinstance(sizes, list):
        return given.dims, []
    return given.dims, list(zip(sizes, _texts(call, 1, len(sizes)), strict=True))


def _texts(call: Call, first: int, count: int) -> list[str]:
    node = call.expression.node if call.expression is not None else None
    if call.expression is None or not isinstance(node, ast.Call):
        return [""] * count
    written = list(node.args)
    method = isinstance(node.func, ast.Attribute) and node.func.attr == call.operator
    written = written[first - 1 if method else first :]
    if len(written) == 1 and isinstance(written[0], ast.Tuple | ast.List):
        written = written[0].elts
    if len(written) != count:
        return [""] * count
    return [call.expression.of(each) for each in written]


def _matched(have: tuple[Expr, ...], wanted: Wanted) -> tuple[Expr, Wanted]:
    """What is left of both sides once equal sizes are gone."""
    rest, asked = list(have), []
    for size, text in wanted:
        match = next((index for index, dim in enumerate(rest) if same(dim, size)), None)
        if match is None:
            asked.append((size, text))
        else:
            del rest[match]
    return product(rest), asked


def _divided(left: Expr, asked: Wanted) -> tuple[Expr, Wanted]:
    """What is left once numbers that divide are gone, as long as more than two are there: 30 and (4, 7) of 90."""
    asked = list(asked)
    for size, text in list(asked):
        known, total = number(size), number(left)
        if known is not None and total is not None and known > 0 and total % known == 0 and len(asked) > 2:
            left = Expr.const(total // known)
            asked.remove((size, text))
    return left, asked


def _indivisible(call: Call, given: Operand, left: Expr, asked: Wanted) -> Cause | None:
    """`n_heads` and `width // n_heads` whose product is less than the width."""
    total = number(left)
    if total is None or len(asked) != 2:
        return None
    sizes = [number(size) for size, _ in asked]
    first, second = sizes
    if first is None or second is None or first * second == total:
        return None
    if total // first != second and total // second != first:
        return None
    at = 0 if _is_count(asked, sizes, total) else 1
    count, each = (first, second) if at == 0 else (second, first)
    text = asked[at][1] or str(count)
    name = text.rpartition(".")[2]
    right = nearest_divisor(total, count)
    message = f"{call.operator}: {count} * ({total}//{count} = {each}) = {count * each}, not {total}"
    known = name.isidentifier()
    fix = f"{name}={right} ({total} % {right} == 0)" if known else f"{right} instead of {count}"
    width = _quotient_of(call, asked[1 - at][1], name)
    if known:
        fix += f", and assert {width or total} % {name} == 0 in __init__"
    return Cause(f"{message}: {text} does not divide {total}", fix, names_in(total, count * each), call.location)


def _is_count(asked: Wanted, sizes: list[Any], total: int) -> bool:
    """Whether the first of the two is the number of heads: by its name, or as the other one is its quotient."""
    first, second = asked[0][1].lower(), asked[1][1].lower()
    if any(word in second for word in ("dim", "size", "width")) or any(word in first for word in ("head", "group")):
        return "dim" not in first and "size" not in first
    return total // sizes[0] == sizes[1]


def _quotient_of(call: Call, text: str, count: str) -> str:
    """What the constructor divides: `width` of `self.head_dim = width // heads`."""
    owner = call.root if call.module is None else call.module
    source = Source.of(type(owner)) if owner is not None else None
    for spot in source.assigned(text.rpartition(".")[2]) if source is not None else ():
        if isinstance(spot.expr, ast.BinOp) and isinstance(spot.expr.op, ast.FloorDiv):
            return ast.unparse(spot.expr.left)
    return ""


def _fixed_batch(call: Call, given: Operand, wanted: Wanted) -> Cause | None:
    """`x.view(32, -1)`: a number where the batch belongs."""
    first, text = wanted[0]
    known = number(first)
    if known is None or not given.rank or number(given.dims[0]) is not None or known < 2:
        return None
    rest = [size for size, _ in wanted[1:]]
    if not rest or (rest != [-1] and not same(product(rest), product(given.dims[1:]))):
        return None
    message = f"{call.operator} writes {text or known} where {given} has {given.dims[0]}: the batch is a number"
    return Cause(message, f"{call.text('input')}.shape[0] instead of {known}", names_in(given.dims[0]), call.location)


def _other_sample(call: Call, given: Operand, closed: Wanted, open_axis: bool) -> Cause | None:
    """`x.view(-1, 400)` of a batch of 256 numbers each."""
    sample = product(given.dims[1:])
    asked = [(size, text) for size, text in closed if not (given.rank and same(size, given.dims[0]))]
    total = product(size for size, _ in asked)
    if given.rank < 2 or number(total) is None or number(sample) is None or same(sample, total) or len(asked) > 1:
        return None
    shown = f"{sample} = {factors_text(given.dims[1:])}" if given.rank > 2 else str(sample)
    text = asked[0][1]
    written = f"{text} = {total}" if text not in ("", str(total)) else str(total)
    message = f"{call.operator} asks for {written} numbers, one sample of {given} has {shown}"
    return Cause(message, applied(call.text("input"), ".flatten(1)"), names_in(total, sample), call.location)


def _wrong_width(call: Call, given: Operand, left: Expr, asked: Wanted, open_axis: bool) -> Cause | None:
    """A layer in front gives another width than the one that is split: 584 for `3 * 3 * 64`."""
    width, split = number(given.dims[-1]), number(product(size for size, _ in asked))
    if width is None or not same(left, width) or not split or not asked:
        return None
    wanted = max(1, round(width / split)) * split if open_axis else split
    shown = factors_text(size for size, _ in asked)
    told = f"{shown} = {split}" if len(asked) > 1 else shown
    message = f"{call.operator} splits {width}, the last axis of {given}, by {told}"
    repairs = widths_behind(call.root, given, -1, Expr.const(wanted), message)
    if not repairs:
        return None
    first = repairs[0]
    where = first.location or call.location
    return Cause(first.message, first.fix, names_in(width, split), where, candidates=tuple(repairs))


def _plain(call: Call, given: Operand, have: tuple[Expr, ...], wanted: Wanted) -> Cause:
    sizes = [size for size, _ in wanted]
    closed = product(Expr.const(1) * size for size in sizes if not (isinstance(size, int) and size == -1))
    asked = " ".join(str(size) for size in sizes)
    count = f"{product(have)} numbers"
    if any(isinstance(size, int) and size == -1 for size in sizes):
        message = f"{call.operator} of {given} as {asked}: {count} do not split by {closed}"
    else:
        message = f"{call.operator} of {given} as {asked}: {count} there, {closed} asked for"
    return Cause(message, "", names_in(product(have), closed), call.location)
