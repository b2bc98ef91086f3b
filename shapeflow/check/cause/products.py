"""matmul, bmm, einsum, scaled_dot_product_attention: axes that are contracted, or walk side by side, differ.

q @ k: B T 32 by B S 32: the last axis of q meets S; a transpose of k is missing
fix: q @ k.transpose(-2, -1)
"""

from __future__ import annotations

from shapeflow.check.cause.call import Call, Operand, names_in, number, same, valued
from shapeflow.check.cause.elementwise import differing
from shapeflow.check.cause.result import Cause
from shapeflow.check.cause.suspects import widths_behind
from shapeflow.check.cause.swapping import rewritten
from shapeflow.dims.expr import Expr

SECOND = {"matmul": "other", "bmm": "mat2", "mm": "mat2", "baddbmm": "mat2", "addmm": "mat2", "mv": "vec"}


def matmul(call: Call) -> Cause | None:
    """The cause for a product of two matrices, or batches of them."""
    second = SECOND[call.operator]
    a, b = call.tensor("input"), call.tensor(second)
    if a is None or b is None or not a.rank or not b.rank:
        return None
    left, right = call.text("input", "the left"), call.text(second, "the right")
    inner, outer = a.dims[-1], b.dims[-2 if b.rank > 1 else -1]
    message = f"{left} is {a}, {right} is {b}"
    dims = names_in(inner, outer)
    if same(inner, outer):
        return _batches(call, message, a, b)
    message += f": {valued(inner)} meets {valued(outer)}"
    if b.rank > 1 and same(inner, b.dims[-1]):
        fix = rewritten(call, second, ".transpose(-2, -1)" if b.rank > 2 else ".T")
        return Cause(f"{message}, a transpose of {right} is missing", fix, dims, call.location)
    if a.rank > 1 and same(a.dims[-2], outer):
        fix = rewritten(call, "input", ".transpose(-2, -1)" if a.rank > 2 else ".T")
        return Cause(f"{message}, a transpose of {left} is missing", fix, dims, call.location)
    repairs = widths_behind(call.root, b, -2 if b.rank > 1 else -1, inner, message)
    repairs += widths_behind(call.root, a, -1, outer, message)
    if not repairs:
        return Cause(message, "", dims, call.location)
    first = repairs[0]
    return Cause(first.message, first.fix, dims, first.location or call.location, candidates=tuple(repairs))


def _batches(call: Call, message: str, a: Operand, b: Operand) -> Cause | None:
    """The axes in front of the matrices."""
    front_a, front_b = a.dims[:-2], b.dims[:-2]
    if call.operator == "bmm" and (a.rank != 3 or b.rank != 3):
        fix = rewritten(call, "input", "").replace("bmm", "matmul")
        return Cause(f"{message}: bmm takes three axes each", fix, names_in(), call.location)
    axes = differing(front_a, front_b)
    if not axes:
        return None
    axis = axes[0]
    told = f"{message}: the axes in front differ, {front_a[axis]} and {front_b[axis]}"
    if abs(len(front_a) - len(front_b)) == 1:
        short, name = (b, SECOND[call.operator]) if len(front_b) < len(front_a) else (a, "input")
        longer = front_a if short is b else front_b
        if same(short.dims[0], longer[0]):
            return Cause(told, rewritten(call, name, ".unsqueeze(1)"), names_in(longer[1]), call.location)
    return Cause(told, "", names_in(front_a[axis], front_b[axis]), call.location)


def einsum(call: Call) -> Cause | None:
    """The cause for an einsum: a letter with two sizes, or letters that are not as many as axes."""
    equation = call.arguments.get("equation")
    tensors = call.tensors
    if not isinstance(equation, str) or "." in equation:
        return None
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    sizes: dict[str, tuple[Expr, Operand]] = {}
    for at, (term, tensor) in enumerate(zip(terms, tensors, strict=False)):
        if len(term) != tensor.rank:
            message = f"einsum '{equation}': '{term}' has {len(term)} letters, its tensor {tensor.rank} axes: {tensor}"
            return Cause(message, "", names_in(*tensor.dims), call.location)
        for letter, dim in zip(term, tensor.dims, strict=True):
            before = sizes.setdefault(letter, (dim, tensor))
            known = before[0]
            if not same(known, dim) and not same(known, 1) and not same(dim, 1):
                shown = f"'{letter}' is {valued(known)} in {before[1]} and {valued(dim)} in {tensor}"
                dims = names_in(known, dim)
                return Cause(
                    f"einsum '{equation}': {shown}", _letters(equation, terms, at, tensor, sizes), dims, call.location
                )
    return None


def _letters(equation: str, terms: list[str], at: int, tensor: Operand, sizes: dict[str, tuple[Expr, Operand]]) -> str:
    """The term with two letters swapped, where that fits."""
    term = terms[at]
    for i in range(len(term)):
        for j in range(i + 1, len(term)):
            letters = list(term)
            letters[i], letters[j] = letters[j], letters[i]
            known = {**sizes}
            fits = all(
                letter not in known or known[letter][1] is tensor or same(known[letter][0], dim)
                for letter, dim in zip(letters, tensor.dims, strict=True)
            )
            if fits:
                return f"'{equation.replace(' ', '').replace(term, ''.join(letters), 1)}'"
    return ""


def attention(call: Call) -> Cause | None:
    """The cause for `F.scaled_dot_product_attention`."""
    q, k, v, mask = (call.tensor(name) for name in ("query", "key", "value", "attn_mask"))
    if q is None or k is None or v is None:
        return None
    shown = f"query is {q}, key is {k}, value is {v}"
    if not same(q.dims[-1], k.dims[-1]):
        message = f"{shown}: query and key have another width, {q.dims[-1]} and {k.dims[-1]}"
        repairs = widths_behind(call.root, k, -1, q.dims[-1], message)
        fix, where = (repairs[0].fix, repairs[0].location) if repairs else ("", None)
        return Cause(message, fix, names_in(q.dims[-1], k.dims[-1]), where or call.location, candidates=tuple(repairs))
    if not same(k.dims[-2], v.dims[-2]):
        message = f"{shown}: key and value have another length, {k.dims[-2]} and {v.dims[-2]}"
        return Cause(message, "", names_in(k.dims[-2], v.dims[-2]), call.location)
    axes = differing(q.dims[:-2], k.dims[:-2])
    if axes:
        a, b = q.dims[:-2][axes[0]], k.dims[:-2][axes[0]]
        heads = (number(a), number(b))
        fix = "enable_gqa=True" if heads[0] and heads[1] and heads[0] % heads[1] == 0 and axes == [-1] else ""
        return Cause(f"{shown}: the axes in front differ, {a} and {b}", fix, names_in(a, b), call.location)
    return None if mask is None else _mask(call, q, k, mask)


def _mask(call: Call, q: Operand, k: Operand, mask: Operand) -> Cause | None:
    scores = (*q.dims[:-2], q.dims[-2], k.dims[-2])
    axes = differing(mask.dims, scores)
    if not axes:
        return None
    shown = " ".join(map(str, scores))
    text, fix = call.text("attn_mask", "mask"), ""
    if mask.rank == 2 and same(mask.dims[0], q.dims[0]) and same(mask.dims[1], k.dims[-2]):
        fix = f"attn_mask={text}[:, None, None, :]" if q.rank == 4 else f"attn_mask={text}[:, None, :]"
    elif mask.rank == 3 and q.rank == 4 and same(mask.dims[0], q.dims[0]):
        fix = f"attn_mask={text}[:, None]"
    message = f"the scores are {shown}, the mask is {mask}"
    return Cause(message, fix, names_in(mask.dims[axes[0]], scores[axes[0]]), call.location)
