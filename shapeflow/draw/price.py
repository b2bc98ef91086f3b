"""What modules cost, in words that fit a box, or operator by operator for a page and for a saved trace.

>>> flops_words(trace.nodes, operations_of(trace).flops, {"B": 2, "T": 5})
{'': '1.06 GFLOPs', 'blocks.0': '88.3 MFLOPs', ...}
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from shapeflow.dims.expr import Expr
from shapeflow.errors import ShapeflowError
from shapeflow.graph import Block
from shapeflow.graph.operations import Operations
from shapeflow.trace.result import Node

UNITS = ((10**15, "P"), (10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))


IN_FULL = (".html", ".json")  # formats that take the operations of each operator


def priced(
    options: Mapping[str, Any],
    nodes: Iterable[Node | Block],
    count: Callable[[], Operations],
    *,
    path: str | PathLike[str] = "",
) -> dict[str, Any]:
    """The options of a drawing with `flops`, if it is asked for, in the form that the format of `path` takes.

    A page of html has it unless it is told not to. `count` is called where it is needed.
    """
    suffix = Path(path).suffix.lower()
    others = {name: value for name, value in options.items() if name != "flops"}
    if not options.get("flops", suffix == ".html"):
        return others
    if suffix in IN_FULL:
        return {**others, "operations": count()}
    return {**others, "flops": flops_words(nodes, count().flops, options.get("sizes") or {})}


def flops_words(nodes: Iterable[Node | Block], flops: Mapping[str, Expr], sizes: Mapping[str, int]) -> dict[str, str]:
    """The operations of one forward by module path: a number at these sizes, a formula where they do not tell it.

    `flops` are those of each node by name.
    """
    spent: dict[str, Counter[Expr]] = defaultdict(Counter)
    for node in nodes:
        if node.name in flops:
            for path in dict.fromkeys(["", *(scope.path for scope in node.scopes)]):
                spent[path][flops[node.name]] += 1
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
