"""What modules cost, in words that fit a box.

>>> flops_words(sf.cost(trace), {"B": 2, "T": 5})
{'': '1.06 GFLOPs', 'blocks.0': '88.3 MFLOPs', ...}
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from shapeflow.dims.expr import Expr
from shapeflow.errors import ShapeflowError

if TYPE_CHECKING:
    from shapeflow.cost.cost import Cost

UNITS = ((10**15, "P"), (10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))


def flops_words(cost: Cost, sizes: Mapping[str, int]) -> dict[str, str]:
    """The operations of one forward by module path: a number at these sizes, a formula where they do not tell it."""
    spent: dict[str, Counter[Expr]] = defaultdict(Counter)
    for call, flops in zip(cost.calls, cost.forward, strict=True):
        for path in dict.fromkeys(["", *(scope.path for scope in call.record.scopes)]):
            spent[path][flops] += 1
    sums = {path: _sum(parts) for path, parts in spent.items()}
    return {path: _words(flops, sizes) for path, flops in sums.items() if flops != Expr.const(0)}


def _sum(parts: Mapping[Expr, int]) -> Expr:
    return sum((part * times for part, times in parts.items()), Expr.const(0))


def _words(flops: Expr, sizes: Mapping[str, int]) -> str:
    try:
        number = flops.at(**sizes)
    except ShapeflowError:  # a size that is not given
        return f"{flops} FLOPs"
    return rounded(number)


def rounded(number: int) -> str:
    """Three digits and a unit: `88.3 MFLOPs`."""
    for size, unit in UNITS:
        if number >= size:
            return f"{number / size:.3g} {unit}FLOPs"
    return f"{number} FLOPs"
