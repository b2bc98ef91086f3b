"""Equal meaning, equal form: what the rules of division, remainder, max and min bring together, and what not."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shapeflow.dims.expr import Expr, maximum, minimum
from shapeflow.dims.text import parse
from tests.dims.expressions import (
    SYMBOLS,
    anything,
    build,
    monomials,
    names,
    numbers,
    polynomials,
    positive,
    several,
    trees,
)

number_divisors = positive.map(Expr.const)
monomial_divisors = st.tuples(positive, monomials).map(lambda parts: parts[0] * build(parts[1]))
divisors = st.one_of(number_divisors, monomial_divisors)
sums = trees("+ *", leaves=st.one_of(names, positive), size=6)
shallow = st.one_of(polynomials, trees("+ - * // % max min", size=4))


def built(tree) -> Expr:
    try:
        return build(tree)
    except ZeroDivisionError:
        assume(False)
        raise


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # exact division
        ("(4*d*T)//(2*d)", "2*T"),
        ("(6*B*T)//(4*T)", "(3*B)//2"),
        ("(2*(a + b))//(a + b)", "2"),
        ("(a*a - b*b)//(a - b)", "a + b"),
        ("(a + b + c)//(a + b)", "1 + c//(a + b)"),
        ("(a - b)//(b - a)", "-1"),
        ("(H - 3)//(H - 3)", "1"),
        # multiples are taken out
        ("(6*q + r)//6", "q + r//6"),
        ("(6*q + r) % 6", "r % 6"),
        ("(d*q + r)//d", "q + r//d"),
        ("(d*q + r) % d", "r % d"),
        ("(2*d*q + d + r)//(2*d)", "q + (d + r)//(2*d)"),
        ("(3*H)//2", "H + H//2"),
        ("(8*d)//3", "2*d + (2*d)//3"),
        ("H//1", "H"),
        ("H % 1", "0"),
        # and common factors
        ("(6*x)//(4*y)", "(3*x)//(2*y)"),
        ("(x*k)//(y*k)", "x//y"),
        ("(x*k) % (y*k)", "k*(x % y)"),
        ("(-B*B)//(2*B*B - B)", "-B//(2*B - 1)"),
        ("(6*x) % (4*y)", "2*((3*x) % (2*y))"),
        ("(2*H + 1)//4", "H//2"),
        ("(2*H + 1) % 4", "2*(H % 2) + 1"),
        ("(4*H + 1)//(2*W)", "(2*H)//W"),
        # nested
        ("(H//2)//3", "H//6"),
        ("((H + 1)//2 + 1)//2", "(H + 3)//4"),
        ("((H - 1)//2)//2", "(H - 1)//4"),
        ("(H//a)//b", "H//(a*b)"),
        ("(H//2 + W)//3", "(H + 2*W)//6"),
        ("(W - H//2)//3", "(2*W - H + 1)//6"),
        ("(H % 32) % 32", "H % 32"),
        ("(H % 32) % 8", "H % 8"),
        ("(H % 8) % 32", "H % 8"),
        ("(H % d) % d", "H % d"),
        ("(H % 32)//32", "0"),
        ("(H % 32 + 32)//32", "1"),
        # ceil divisions
        ("-(-H//2)", "(H + 1)//2"),
        ("(H - 1)//2 + 1", "(H + 1)//2"),
        ("-(-(H//2)//2)", "(H//2 + 1)//2"),
        ("-(-H//8)", "(H + 7)//8"),
        ("-(-(B*H)//(4*B))", "(H + 3)//4"),
        ("-((B - d)//T)", "(T - B + d - 1)//T"),
        ("(2*H//3)//2", "H//3"),
        ("-(-B//T)", "(B + T - 1)//T"),
        ("-(-(B*H)//(H*T))", "(B*H + H*T - 1)//(H*T)"),
        ("(T - 1)//T", "0"),
        ("-1//T", "-1"),
        ("-1 % T", "T - 1"),
        ("x + -x % 7", "7*((x + 6)//7)"),
        ("-x % T", "T*((x - 1)//T + 1) - x"),
        ("1//(T + 1)", "0"),
        # signs
        ("H//-2", "-((H + 1)//2)"),
        ("H % -3", "-(-H % 3)"),
        ("-H % 2", "H % 2"),
        ("H//(B - T)", "-H//(T - B)"),
        # max and min
        ("max(H, H)", "H"),
        ("max(H, H - 2)", "H"),
        ("min(H, H - 2)", "H - 2"),
        ("max(H, 0)", "H"),
        ("max(H, 1)", "H"),
        ("min(H, 0)", "0"),
        ("max(3, 5)", "5"),
        ("max(B*T, B)", "B*T"),
        ("max(H//2, -1)", "H//2"),
        ("min(H % 8, 8)", "H % 8"),
        ("max(max(H, 3), 5)", "max(H, 5)"),
        ("max(H, max(W, H - 1))", "max(H, W)"),
        ("min(H, max(H, W))", "H"),
        ("max(max(H, W) - 1, max(H, W))", "max(H, W)"),
    ],
)
def test_one_form(one, other):
    assert parse(one) is parse(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("(H - 3)//(H - 4)", "1"),
        ("(H*W)//(H + W)", "H"),
        ("H//B", "0"),
        ("1//B", "0"),
        ("(H + 1)//2", "H//2"),
        ("2*(H//2)", "H"),
        ("(H//(B - 3))//2 + (H//(B - 3))//-2", "0"),
        ("max(H, 2)", "H"),
        ("max(H - 2, 0)", "H - 2"),
        ("max(H, W)", "H"),
        ("(H % 8) % 5", "H % 5"),
        ("(-(H//(B - 3)))//2", "(-H)//(2*(B - 3))"),
    ],
)
def test_different_meanings_keep_their_forms(one, other):
    assert parse(one) is not parse(other)


@several
@given(sums, sums, divisors)
def test_multiples_of_the_divisor_are_taken_out(q, r, k):
    assert (k * build(q) + build(r)) // k is build(q) + build(r) // k


@several
@given(shallow, shallow, divisors, st.booleans())
def test_multiples_of_the_divisor_leave_nothing(q, r, k, negative):
    q, r, k = built(q), built(r), -k if negative else k
    assert (k * q + r) % k is r % k


@several
@given(anything, anything)
def test_a_product_is_divided_exactly(x, y):
    x, y = built(x), built(y)
    assume(y.constant != 0)
    assert x * y // y is x
    assert x * y % y is Expr.const(0)


@several
@given(shallow, shallow, divisors)
def test_common_factors_cancel(x, y, k):
    x, y = built(x), built(y)
    assume(y.constant != 0)
    assert (x * k) // (y * k) is x // y
    assert (x * k) % (y * k) is k * (x % y)


@several
@given(sums, numbers, positive, positive)
def test_a_division_within_a_division_is_one(x, n, a, b):
    x = build(x) + n
    assert (x // a) // b is x // (a * b)


@several
@given(polynomials, st.integers(2, 12))
def test_a_ceil_division_has_one_form(x, a):
    x = build(x)
    assert -(-x // a) is (x + a - 1) // a


@given(st.sampled_from("BTH").map(SYMBOLS.get), st.integers(2, 12), st.integers(2, 12), numbers)
def test_a_ceil_division_of_a_division_has_one_form(x, a, b, n):
    half = (x + n) // a
    assert -(-half // b) is (half + b - 1) // b


@several
@given(polynomials, st.sampled_from("BTH").map(SYMBOLS.get))
def test_a_ceil_division_by_a_symbol_has_one_form(x, k):
    assert -(-build(x) // k) is (build(x) + k - 1) // k


@several
@given(shallow, divisors, positive)
def test_a_remainder_of_a_remainder_is_one(x, k, times):
    x = built(x)
    assert (x % (times * k)) % k is x % k


@several
@given(anything, numbers)
def test_the_greater_of_two_that_differ_by_a_number_is_known(x, n):
    x = built(x)
    assert maximum(x, x + n) is (x + n if n > 0 else x)
    assert minimum(x + n, x) is (x if n > 0 else x + n)
