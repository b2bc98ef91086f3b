"""The one size that makes a difference zero: what a failed comparison asked for."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shapeflow.dims.env import DimEnv
from shapeflow.dims.expr import Expr
from shapeflow.dims.solve import solve

T, S, H = (Expr.symbol(name) for name in "TSH")


def env(**hints):
    result = DimEnv()
    for name, hint in hints.items():
        result.symbol(name, hint=hint)
    return result


@pytest.mark.parametrize(
    ("difference", "found"),
    [
        (T - 16, ("T", 16)),
        (16 - T, ("T", 16)),
        (5 * T - 40, ("T", 8)),
        (2 * (T + 1) - 40, ("T", 19)),
        (32 * Expr.symbol("d", 4) - T, None),  # two names, though one is a number
        (5 * T - 41, None),  # no whole size
        (T + 3, None),  # no positive one
        (T - S, None),  # two free names
        (T * T - 2, None),  # not linear, and no size does it
        (H % 32, ("H", 96)),  # from the run's 67 on
        (H % 32 - 5, ("H", 69)),
        (H % 4 - 7, None),
        (Expr.const(3), None),
    ],
)
def test_the_size_that_was_demanded(difference, found):
    assert solve(difference, env(T=7, S=11, H=67)) == found


def test_a_pinned_name_counts_as_its_number():
    assert solve((T - Expr.symbol("d_model", 32)).unpinned, env(T=7)) == ("T", 32)


def test_sizes_that_only_values_decide_are_not_chosen():
    sizes = env(T=7)
    rows = sizes.fresh_symbol("u", hint=3, origin="nonzero")
    assert solve(rows - 5, sizes) is None


def test_names_for_long_expressions_are_not_chosen():
    sizes = env(T=7)
    named = sizes.name(T * T + T + 1)
    assert solve(named - 5, sizes) is None


@given(st.integers(-9, 9), st.integers(-99, 99))
def test_whatever_is_found_is_a_solution_and_no_whole_one_is_missed(slope, shift):
    assume(slope)
    difference = slope * T + shift
    found = solve(difference, env(T=7))
    solutions = [size for size in range(1, 100) if slope * size + shift == 0]
    assert found == (("T", solutions[0]) if solutions else None)
