"""How a view re-groups axes: which of the old ones make up which of the new ones.

>>> list(groups(axes, (B, T, d), (B * T, n_heads, d_head)))
[((B, T), (B*T,)), ((d,), (n_heads, d_head))]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shapeflow.check.axis import ONE, Axis, Factor, split
from shapeflow.dims.expr import Expr, product

if TYPE_CHECKING:
    from shapeflow.check.axes import Axes

MOST = 7
"""So many factors are put into another order; of more nobody can tell what was meant."""

Group = tuple[tuple[Factor, ...], tuple[Expr, ...]]


def groups(axes: Axes, factors: Sequence[Factor], dims: Sequence[Expr]) -> list[Group]:
    """Rows of factors and of dims with the same product, as short as may be, in order.

    Where no row is known to be equal, one group holds what is left between those that are; its products may differ.
    """
    front = _from_front(axes, [each.size for each in factors], list(dims))
    at, to = (sum(many for many, _ in front), sum(wide for _, wide in front))
    left, wanted = list(factors[at:]), list(dims[to:])
    back = _from_front(axes, [each.size for each in reversed(left)], list(reversed(wanted))) if left or wanted else []
    end, stop = len(left) - sum(many for many, _ in back), len(wanted) - sum(wide for _, wide in back)
    middle = [(end, stop)] if end or stop else []
    found: list[Group] = []
    at = to = 0
    for many, wide in [*front, *middle, *reversed(back)]:
        found.append((tuple(factors[at : at + many]), tuple(dims[to : to + wide])))
        at, to = at + many, to + wide
    return found


def _from_front(axes: Axes, sizes: list[Expr], dims: list[Expr]) -> list[tuple[int, int]]:
    """The lengths of equal rows from the first one on, as far as they are known."""
    found: list[tuple[int, int]] = []
    while sizes and dims:
        pair = _shortest(axes, sizes, dims)
        if pair is None:
            break
        found.append(pair)
        sizes, dims = sizes[pair[0] :], dims[pair[1] :]
    return found


def _shortest(axes: Axes, sizes: list[Expr], dims: list[Expr]) -> tuple[int, int] | None:
    """Products at this run's sizes only grow: where both meet, the rows may be equal."""
    many = wide = 1
    left, right = sizes[0], dims[0]
    while True:
        one, other = axes.hint(left), axes.hint(right)
        if one == other and axes.equal(left, right):
            return many, wide
        if one <= other and many < len(sizes):
            left, many = left * sizes[many], many + 1
        elif one >= other and wide < len(dims):
            right, wide = right * dims[wide], wide + 1
        else:
            return None


def nested(axes: Axes, factors: list[Factor], dims: Sequence[Expr]) -> list[Axis] | None:
    """Each dim out of whole factors and parts of them, from the left; None where they do not nest."""
    made: list[Axis] = []
    for dim in dims:
        taken: list[Factor] = []
        left = dim
        while not axes.equal(left, ONE):
            if not factors:
                return None
            factor = factors.pop(0)
            if (rest := _exactly(axes, left, factor.size)) is not None:
                taken.append(factor)
                left = rest
            elif (rest := _exactly(axes, factor.size, left)) is not None:
                first, second = split(factor, (left, rest))
                taken.append(first)
                factors.insert(0, second)
                left = ONE
            else:
                return None
        made.append(Axis(tuple(taken)))
    return made


def _exactly(axes: Axes, size: Expr, by: Expr) -> Expr | None:
    """`size / by` where it is a whole number for all sizes."""
    if by.value == 0 or axes.hint(size) % axes.hint(by):
        return None
    size, by = size.unpinned, by.unpinned
    quotient = size // by
    return quotient if axes.equal(quotient * by, size) else None


def reordered(axes: Axes, factors: Sequence[Factor], dims: Sequence[Expr]) -> list[list[int]] | None:
    """Which factors would make up each dim, if they stood in another order; None where none would."""
    if len(factors) > MOST:
        return None
    return _assigned(axes, list(range(len(factors))), factors, list(dims))


def _assigned(axes: Axes, left: list[int], factors: Sequence[Factor], dims: list[Expr]) -> list[list[int]] | None:
    if not dims:
        return [] if not left else None
    for chosen in _subsets(left):
        size = product(factors[at].size for at in chosen)
        if axes.hint(size) != axes.hint(dims[0]) or not axes.equal(size, dims[0]):
            continue
        rest = _assigned(axes, [at for at in left if at not in chosen], factors, dims[1:])
        if rest is not None:
            return [chosen, *rest]
    return None


def _subsets(items: list[int]) -> list[list[int]]:
    """All but the empty one: first the single ones, then those that stand in a row, the shortest first."""
    found = [[item for bit, item in enumerate(items) if mask >> bit & 1] for mask in range(1, 1 << len(items))]
    return sorted(found, key=lambda each: (len(each), each[-1] - each[0]))
