"""Sizes as trees, and the same numbers from them in the browser as from Python."""

from importlib.resources import files

import pytest

from shapeflow.dims.expr import Expr, maximum, minimum
from shapeflow.draw.page.formula import tree

B, T = Expr.symbol("B"), Expr.symbol("T")
d = Expr.symbol("d", 32)
TREES = {
    (): (Expr.const(0), 0),
    "number": (Expr.const(-7), -7),
    "name": (d, "d"),
    "sum": (B * T + 7, ["+", ["*", "B", "T"], 7]),
    "minus": (B - T, ["+", "B", ["*", -1, "T"]]),
    "power": (3 * T**2, ["*", 3, ["^", "T", 2]]),
    "division": ((T + 7) // 8, ["//", ["+", "T", 7], 8]),
    "remainder": (T % 8, ["%", "T", 8]),
    "max": (maximum(T, 8), ["max", "T", 8]),
    "min": (minimum(B, T), ["min", "B", "T"]),
    "long": (Expr.const(10**20), ["#", str(10**20)]),
}


@pytest.mark.parametrize(("expr", "expected"), TREES.values(), ids=map(str, TREES))
def test_tree(expr, expected):
    assert tree(expr) == expected


FORMULAS = [
    B * T + 7,
    (T - 9) // 2 + 1,
    (3 - T) // 4,
    (3 - T) % 4,
    (B - T) % 7 * B,
    maximum(B - T, T // 3) + minimum(B, 5),
    T**4 * B**3 * 10**9 + 10**17 * T,
    ((T + 1) // 2 + B) // 3 % 5,
    maximum(B, T) // (B + 1),
    d * T // 5,
]


@pytest.fixture
def evaluate(browser):
    """Values of `[tree, {name: size}]` cases by the page's script, as text; None where a size is missing."""
    script = (files("shapeflow.draw.page") / "formula.js").read_text()
    number = "(name) => name in sizes ? BigInt(sizes[name]) : null"
    page = browser.new_page()
    page.add_script_tag(content=f"{{ {script}; window.value = (tree, sizes) => evaluate(tree, {number}); }}")
    yield lambda cases: page.evaluate(
        "(cases) => cases.map(([tree, sizes]) => value(tree, sizes)?.toString() ?? null)", cases
    )
    page.close()


def test_the_script_counts_as_python_does(evaluate):
    """Whole numbers of any length, division that rounds down, remainders with the divisor's sign."""
    cases = [(expr, {"B": b, "T": t}) for expr in FORMULAS for b, t in [(2, 5), (3, 1), (97, 8191), (1, 2)]]
    found = evaluate([[tree(expr), {**sizes, "d": 32}] for expr, sizes in cases])
    assert found == [str(expr.at(**sizes)) for expr, sizes in cases]


@pytest.mark.parametrize("expr", [B * T + 1, T // B, maximum(B, T)], ids=str)
def test_a_name_without_a_size_has_no_number(evaluate, expr):
    assert evaluate([[tree(expr), {"B": 2}]]) == [None]


def test_a_division_by_nothing_has_no_number(evaluate):
    assert evaluate([[tree(T // B), {"B": 0, "T": 4}], [tree(T % B + 1), {"B": 0, "T": 4}]]) == [None, None]
