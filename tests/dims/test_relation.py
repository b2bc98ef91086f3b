"""Comparisons of sizes: one normal form, its negation, and the way a condition is printed."""

import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shapeflow.dims.expr import Expr
from shapeflow.dims.relation import Relation
from shapeflow.dims.text import parse

B, T, S, H = (Expr.symbol(name) for name in "BTSH")
COMPARE = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
sizes = st.fixed_dictionaries({name: st.integers(1, 40) for name in "BTSH"})
numbers = st.integers(-9, 40)


@st.composite
def exprs(draw):
    """Sums and products of sizes as guards contain them, some divided."""
    total = Expr.const(draw(numbers))
    for symbol in draw(st.lists(st.sampled_from([B, T, S, H, B * T, H * H]), max_size=3)):
        total = total + draw(st.integers(-4, 4)) * symbol
    return draw(st.sampled_from([total, total // 2, total % 32, (total + 1) // 3 - 1]))


@given(exprs(), st.sampled_from([*COMPARE]), exprs(), sizes)
def test_a_relation_holds_where_the_comparison_of_numbers_does(left, compare, right, at):
    relation = Relation.between(left, compare, right)
    expected = COMPARE[compare](left.at(**at), right.at(**at))
    assert relation.holds(relation.difference.at(**at)) is expected
    assert relation.negated.holds(relation.negated.difference.at(**at)) is not expected


@given(exprs(), st.sampled_from([*COMPARE]), exprs(), sizes)
def test_the_printed_condition_means_what_was_asked(left, compare, right, at):
    relation = Relation.between(left, compare, right)
    shown_left, shown, shown_right = str(relation).rpartition(_operator_in(str(relation)))
    holds = COMPARE[shown](parse(shown_left.strip()).at(**at), parse(shown_right.strip()).at(**at))
    assert holds is relation.holds(relation.difference.at(**at))


def _operator_in(text):
    return next(compare for compare in ("==", "!=", "<=", ">=") if compare in text)


@pytest.mark.parametrize(
    ("relation", "text"),
    [
        (Relation.between(T, "<=", Expr.const(512)), "T <= 512"),
        (Relation.between(T, "<", Expr.const(512)), "T <= 511"),
        (Relation.between(T, ">", Expr.const(2)), "T >= 3"),
        (Relation.between(Expr.const(512), ">=", T), "T <= 512"),
        (Relation.between(3 * T, ">=", Expr.const(7)), "T >= 3"),
        (Relation.between(3 * T, "<=", Expr.const(7)), "T <= 2"),
        (Relation.between(Expr.const(5), "==", T), "T == 5"),
        (Relation.between(T, "==", S), ("T == S", "S == T")),
        (Relation.between(T, "!=", S), ("T != S", "S != T")),
        (Relation.between(5 * T, "==", Expr.const(40)), "T == 8"),
        (Relation.between(2 * T, "==", 4 * S), ("T == 2*S", "2*S == T")),
        (Relation.between(T, "<=", S + 3), ("S + 3 >= T", "T <= S + 3")),
        (Relation.between(H % 32, "==", Expr.const(0)), "H % 32 == 0"),
        (Relation.between(H % 32, "!=", Expr.const(0)), "H % 32 != 0"),
        (Relation.between(32 * (H // 32), "==", H), "H % 32 == 0"),
        (Relation.between(H, "!=", 32 * (H // 32)), "H % 32 != 0"),
        (Relation.between(2 * ((H + 35) // 64), "==", (H + 3) // 32), "((H + 3)//32) % 2 == 0"),
        (Relation.between(8 * (H // 32), "!=", H // 4), "(H//4) % 8 != 0"),
        (Relation.between((B * T) % S, "==", Expr.const(0)), "(B*T) % S == 0"),
        (Relation.between(S * ((B * T) // S), "==", B * T), "(B*T) % S == 0"),
        (Relation.between(H % 32, "==", Expr.const(5)), "H % 32 == 5"),
        (Relation.between(B * T, "==", Expr.const(12)), "B*T == 12"),
        (Relation.between(H // 2, ">=", Expr.const(3)), "H//2 >= 3"),
        (Relation.between(Expr.symbol("d", 32), "<=", T), "T >= d"),
    ],
)
def test_conditions_print_the_way_a_person_writes_them(relation, text):
    assert str(relation) in ((text,) if isinstance(text, str) else text)


@pytest.mark.parametrize(
    ("relation", "low", "high", "answer"),
    [
        (Relation(">=", T - 5), 0, None, True),
        (Relation(">=", T - 5), None, -1, False),
        (Relation(">=", T - 5), -1, 0, None),
        (Relation("==", T - 5), 1, None, False),
        (Relation("==", T - 5), None, -1, False),
        (Relation("==", T - 5), 0, 4, None),
        (Relation("!=", T - 5), 1, None, True),
        (Relation("!=", T - 5), None, None, None),
    ],
)
def test_bounds_of_the_difference_tell(relation, low, high, answer):
    assert relation.within(low, high) is answer


def test_a_pinned_name_compares_as_its_number():
    d = Expr.symbol("d_model", 32)
    assert Relation.between(d, "==", Expr.const(32)).constant is None
    assert Relation.between(d, "==", Expr.const(32)).unpinned.constant is True
    assert Relation.between(d, "==", Expr.const(33)).unpinned.constant is False
    assert Relation.between(T, "==", d).unpinned == Relation.between(T, "==", Expr.const(32))
