"""What guards teach: later questions that they answer, and those that they leave open."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shapeflow.dims.bounds import bounds
from shapeflow.dims.expr import Expr
from shapeflow.dims.facts import Facts
from shapeflow.dims.relation import Relation

B, T, S, H, K = (Expr.symbol(name) for name in "BTSHK")


def relation(left, compare, right):
    return Relation.between(left, compare, right if isinstance(right, Expr) else Expr.const(right))


def facts(*known):
    result = Facts()
    for each in known:
        result.learn(each)
    return result


def at_least_one(expr):
    return bounds(expr, lambda symbol: (1, None))


@pytest.mark.parametrize(
    ("known", "asked", "answer"),
    [
        (relation(T, "==", S), relation(T, "==", S), True),
        (relation(T, "==", S), relation(S, "==", T), True),
        (relation(T, "==", S), relation(S, "!=", T), False),
        (relation(T, "==", S), relation(S, ">=", T), True),
        (relation(T, "!=", S), relation(S, "==", T), False),
        (relation(T, "!=", S), relation(S, "!=", T), True),
        (relation(T, ">=", S), relation(T, ">=", S), True),
        (relation(T, ">=", S), relation(S, ">=", T), None),
        (relation(T, "==", S), relation(T, "==", B), None),
    ],
)
def test_the_very_question_that_was_learnt(known, asked, answer):
    assert Facts().decide(asked) is None
    assert facts(known).decide(asked) is answer


@pytest.mark.parametrize(
    ("known", "asked", "answer"),
    [
        (relation(T, ">=", S + 3), relation(T, ">=", S), True),
        (relation(T, ">=", S + 3), relation(T, "!=", S), True),
        (relation(T, ">=", S + 3), relation(T, "==", S), False),
        (relation(T, ">=", S + 3), relation(S, ">=", T), False),
        (relation(T, ">=", S), relation(T + B, ">=", S), True),
        (relation(T, ">=", S), relation(S, ">=", T + 1), False),
        (relation(T, ">=", S), relation(T, ">=", S + 1), None),
        (relation(T, ">=", S), relation(T, "==", S), None),
        (relation(H, ">=", 2 * K), relation(H, ">=", K), True),
    ],
)
def test_an_inequality_implies_weaker_ones_and_no_stronger_one(known, asked, answer):
    assert Facts().decide_by_difference(asked, at_least_one) is None
    assert facts(known).decide_by_difference(asked, at_least_one) is answer


@pytest.mark.parametrize(
    ("known", "asked"),
    [
        (relation(H % 32, "==", 0), relation(32 * (H // 32), "==", H)),
        (relation(32 * (H // 32), "==", H), relation(H % 32, "==", 0)),
        (relation(H % 32, "==", 0), relation(B * 32 * (H // 32), "==", B * H)),
        (relation((B * T) % S, "==", 0), relation(S * ((B * T) // S), "==", B * T)),
        (relation(H % 32, "==", 0), relation(32 * (H // 32) + H % 32, ">=", H)),
        (relation(((H + 3) // 4) % 8, "==", 0), relation(8 * ((H + 3) // 32), "==", (H + 3) // 4)),
        (relation(((H + 3) // 4) % 8, "==", 0), relation((T * ((H + 3) // 4)) % (8 * ((H + 3) // 32)), "==", 0)),
        (relation(((H + 3) // 4) % 2, "==", 0), relation(2 * ((H + 3) // 8), "==", (H + 3) // 4)),
        (relation((H // 4 + 1) % 8, "==", 0), relation(8 * ((H + 4) // 32), "==", H // 4 + 1)),
        (relation(H % 2, "==", 0), relation((H + 1) // 2, "==", H // 2)),
        (relation(H // 32, "==", 1), relation(T // (H // 32), "==", T)),
        (relation(T, "==", S), relation(B * T, "==", B * S)),
        (relation(T, "==", S + 1), relation(T * T, "==", S * S + 2 * S + 1)),
        (relation(T, "==", 8), relation(5 * T, "==", 40)),
        (relation(T, "==", 8), relation(T // 3, "==", 2)),
    ],
)
def test_known_sizes_and_divisions_are_put_in(known, asked):
    assert Facts().simplify(asked).constant is None
    assert facts(known).simplify(asked).constant is True


def test_a_division_known_for_one_divisor_says_nothing_of_another():
    known = facts(relation(H % 32, "==", 0))
    assert known.simplify(relation(48 * (H // 48), "==", H)).constant is None
    assert known.simplify(relation(32 * (T // 32), "==", T)).constant is None


def test_values_learnt_one_after_the_other_are_put_into_each_other():
    known = facts(relation(T, "==", S + 1), relation(S, "==", 4))
    assert known.simplify(relation(T, "==", 5)).constant is True


@pytest.mark.parametrize(
    ("known", "before", "after"),
    [
        ([relation(T, "<=", 512)], (1, None), (1, 512)),
        ([relation(T, ">=", 5)], (1, None), (5, None)),
        ([relation(T, ">=", 5), relation(T, "<=", 9)], (1, 7), (5, 7)),
        ([relation(3 * T, "<=", 10)], (1, None), (1, 3)),
        ([relation(3 * T, ">=", 10)], (1, None), (4, None)),
        ([relation(T, "<=", 512), relation(T, "<=", 64), relation(T, "<=", 100)], (1, None), (1, 64)),
        ([relation(T, ">=", 1)], (2, None), (2, None)),
        ([relation(T * S, ">=", 5)], (1, None), (1, None)),
        ([relation(S, ">=", 5)], (1, None), (1, None)),
    ],
)
def test_limits_narrow_a_symbol(known, before, after):
    (symbol,) = T.symbols
    assert facts(*known).narrow(symbol, *before) == after


@pytest.mark.parametrize("multiple", [2, 3, 8])
@pytest.mark.parametrize("quotient", [H // 4, (H + 3) // 4, (H - 1) // 4 + 1, (H + 1) // 2 + 5, H // T])
def test_what_a_quotient_is_known_to_be_is_equal_wherever_the_fact_holds(quotient, multiple):
    known = facts(relation(quotient % multiple, "==", 0))
    sizes = [quotient, quotient // multiple, (quotient + multiple - 1) // multiple, T * quotient + quotient // 2]
    for h in range(1, 200):
        at = {"H": h, "T": 3}
        if quotient.at(**at) % multiple == 0:
            assert [known.put_in(size).at(**at) for size in sizes] == [size.at(**at) for size in sizes]


def test_quotients_learnt_one_after_the_other_are_put_into_each_other():
    known = facts(relation((H // 4) % 8, "==", 0), relation((H // 32) % 2, "==", 0))
    assert known.put_in(H // 4) is 16 * (H // 64)


small = st.integers(1, 9)
sides = st.sampled_from(
    [
        T,
        S,
        B,
        2 * T,
        T + S,
        T // 2,
        (T + 1) // 2,
        T // 4,
        (T + 3) // 4,
        T % 3,
        T * S,
        3 * (T // 3),
        T + 1,
        Expr.const(4),
    ]
)
questions = st.builds(Relation.between, sides, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), sides)


@given(st.lists(questions, max_size=4), questions, small, small, small)
def test_no_answer_is_wrong_where_the_facts_hold(known, asked, b, t, s):
    at = {"B": b, "T": t, "S": s}
    learnt = Facts()
    for each in known:
        if each.holds(each.difference.at(**at)):
            learnt.learn(each)
    holds = asked.holds(asked.difference.at(**at))
    assert learnt.decide(asked) in (None, holds)
    assert learnt.decide_by_difference(asked, at_least_one) in (None, holds)
    simple = learnt.simplify(asked)
    named = [symbol.name.partition("/") for symbol in simple.difference.symbols if "/" in symbol.name]
    at |= {f"{name}/{divisor}": at[name] // int(divisor) for name, _, divisor in named}  # T is a multiple: T/3 of them
    assert simple.holds(simple.difference.at(**at)) is holds
