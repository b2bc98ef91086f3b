"""Random expressions for hypothesis, as trees that can be built symbolically and computed in plain Python.

tree = ("//", ("+", "H", 3), "T")
assert build(tree).at(H=6, T=2) == compute(tree, {"H": 6, "T": 2}) == 4
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from shapeflow.dims.expr import Expr, maximum, minimum

Tree = int | str | tuple[str, Any, Any]

PINNED = {"d_model": 6}
SYMBOLS = {name: Expr.symbol(name, PINNED.get(name)) for name in ("B", "T", "H", "d_model")}
_SYMBOLIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "max": maximum,
    "min": minimum,
}
_PLAIN = {**_SYMBOLIC, "max": max, "min": min}

numbers = st.integers(-8, 12)
positive = st.integers(1, 12)
names = st.sampled_from(sorted(SYMBOLS))
leaves = st.one_of(names, names, numbers)
sizes = st.fixed_dictionaries(
    {name: st.just(PINNED[name]) if name in PINNED else st.integers(1, 40) for name in SYMBOLS}
)

several = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def trees(operators: str, *, leaves: st.SearchStrategy[Tree] = leaves, size: int = 8) -> st.SearchStrategy[Tree]:
    """Trees with these operators (`"+ - max"`) and at most so many leaves."""
    return st.recursive(
        leaves, lambda inner: st.tuples(st.sampled_from(operators.split()), inner, inner), max_leaves=size
    )


anything = trees("+ - * // % max min")
polynomials = trees("+ - *", size=6)
monomials = trees("*", leaves=names, size=3)


def build(tree: Tree) -> Expr:
    if isinstance(tree, tuple):
        return _SYMBOLIC[tree[0]](build(tree[1]), build(tree[2]))
    return SYMBOLS[tree] if isinstance(tree, str) else Expr.const(tree)


def compute(tree: Tree, at: dict[str, int]) -> int:
    if isinstance(tree, tuple):
        return _PLAIN[tree[0]](compute(tree[1], at), compute(tree[2], at))
    return at[tree] if isinstance(tree, str) else tree
