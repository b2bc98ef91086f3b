"""The sizes of a run: what bounds and facts decide, what the hint answers and is then recorded as a guard."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shapeflow.dims.env import DimEnv
from shapeflow.dims.expr import Expr
from shapeflow.dims.relation import Relation

COMPARISONS = ["==", "!=", "<", "<=", ">", ">="]


def relation(left, compare, right):
    return Relation.between(left, compare, right if isinstance(right, Expr) else Expr.const(right))


def sizes(*, where=lambda: None, **hints):
    env = DimEnv(where=where)
    return env, *(env.symbol(name, hint=hint) for name, hint in hints.items())


def guards(env):
    return [str(guard) for guard in env.guards.values()]


# What is recorded


@pytest.mark.parametrize(
    ("compare", "number", "answer", "guard"),
    [
        ("<=", 512, True, "T <= 512"),
        (">", 512, False, "T <= 512"),
        ("==", 7, True, "T == 7"),
        ("==", 8, False, "T != 8"),
        ("!=", 8, True, "T != 8"),
        (">=", 9, False, "T <= 8"),
    ],
)
def test_the_hint_answers_and_the_guard_says_what_held(compare, number, answer, guard):
    env, T = sizes(T=7)
    assert env.decide(relation(T, compare, number)) is None
    assert env.ask(relation(T, compare, number)) is answer
    assert guards(env) == [guard]


def test_a_guard_is_recorded_once_with_whoever_asked_first():
    askers = iter(["model.py:3", "model.py:9"])
    env, T = sizes(where=lambda: next(askers), T=7)
    for _ in range(3):
        env.ask(relation(T, "<=", 512))
    env.ask(relation(T, "<=", 64))
    assert [(str(guard), guard.where) for guard in env.guards.values()] == [
        ("T <= 512", "model.py:3"),
        ("T <= 64", "model.py:9"),
    ]


def test_deciding_records_nothing():
    env, T = sizes(T=7)
    assert env.decide(relation(T, "==", 7)) is None
    assert not env.guards


def test_assuming_the_same_twice_is_one_guard_of_the_first():
    askers = iter(["model.py:3", "model.py:9"])
    env, T = sizes(where=lambda: next(askers), T=7)
    env.assume(relation(T, "==", 7))
    env.assume(relation(T, "==", 7))
    assert [(str(guard), guard.where) for guard in env.guards.values()] == [("T == 7", "model.py:3")]


def test_what_is_assumed_quietly_is_not_recorded():
    env, T = sizes(T=7)
    env.quietly(env.assume, relation(T, "==", 7))
    assert not env.guards
    assert env.decide(relation(T, "==", 7)) is None


# What is decided without the hint


@pytest.mark.parametrize(
    ("compare", "number", "answer"),
    [(">=", 1, True), (">=", 2, True), ("==", 1, False), ("!=", 0, True), ("<", 0, False), ("<=", 2, None)],
)
def test_the_generic_run_takes_every_size_as_at_least_two(compare, number, answer):
    env, T = sizes(T=7)
    assert env.decide(relation(T, compare, number)) is answer


def test_a_lower_bound_of_one_leaves_the_question_open():
    env = DimEnv()
    T = env.symbol("T", hint=7, low=1)
    assert env.decide(relation(T, "==", 1)) is None


def test_declared_bounds_decide():
    env = DimEnv()
    T = env.symbol("T", hint=7, high=512)
    assert env.decide(relation(T, "<=", 512)) is True
    assert env.decide(relation(T, "<=", 511)) is None
    assert env.decide(relation(2 * T, ">", 1024)) is False


def test_what_torch_asks_for_its_own_sake_is_decided_by_bounds():
    env, B, T = sizes(B=3, T=7)
    assert env.decide(relation(B * T, "==", B)) is False
    assert env.decide(relation(B * T, "==", 1)) is False
    assert env.decide(relation(B * T, ">=", T)) is True
    assert env.decide(relation(B, "==", T)) is None


def test_pinned_names_are_answered_by_value_and_record_nothing():
    env, T = sizes(T=7)
    d = Expr.symbol("d_model", 32)
    assert env.ask(relation(d, "==", 32)) is True
    assert env.ask(relation(d, ">", 32)) is False
    assert not env.guards
    assert env.ask(relation(T, "<=", d)) is True
    assert guards(env) == ["T <= 32"]


@pytest.mark.parametrize(
    ("learnt", "asked", "answer"),
    [
        (lambda T, S: relation(T, "<=", 512), lambda T, S: relation(T, "<=", 600), True),
        (lambda T, S: relation(T, "<=", 512), lambda T, S: relation(T - 1, "<", 512), True),
        (lambda T, S: relation(T, "<=", 512), lambda T, S: relation(T, ">", 512), False),
        (lambda T, S: relation(T, "<=", 512), lambda T, S: relation(2 * T, "<=", 1024), True),
        (lambda T, S: relation(T, "==", S), lambda T, S: relation(3 * T, "==", 3 * S), True),
        (lambda T, S: relation(T, "==", S), lambda T, S: relation(T + 1, "==", S), False),
        (lambda T, S: relation(T, "==", S), lambda T, S: relation(T // 2, "==", S // 2), True),
        (lambda T, S: relation(T, "!=", S), lambda T, S: relation(S, "==", T), False),
        (lambda T, S: relation(T, ">=", S + 3), lambda T, S: relation(T, ">", S), True),
        (lambda T, S: relation(T, ">=", S + 3), lambda T, S: relation(T, "==", S), False),
        (lambda T, S: relation(T % 32, "==", 0), lambda T, S: relation(32 * (T // 32), "==", T), True),
        (lambda T, S: relation(32 * (T // 32), "==", T), lambda T, S: relation(T % 32, "==", 0), True),
        (lambda T, S: relation(T % 32, "==", 0), lambda T, S: relation(S * 32 * (T // 32), "==", S * T), True),
        (lambda T, S: relation(T, "==", 8), lambda T, S: relation(T * S, "==", 8 * S), True),
    ],
)
def test_a_guard_is_a_fact_for_the_rest_of_the_run(learnt, asked, answer):
    env, T, S = sizes(T=96, S=7)
    assert env.decide(asked(T, S)) is None
    env.assume(learnt(T, S))
    assert env.decide(asked(T, S)) is answer
    env.ask(asked(T, S))
    assert len(env.guards) == 1


def test_a_division_without_rest_is_a_remainder_of_zero():
    env, H = sizes(H=96)
    assert env.remainder(H, Expr.const(32)) is H % 32
    env.assume(relation(H % 32, "==", 0))
    assert env.remainder(H, Expr.const(32)) is Expr.const(0)


sides = st.sampled_from([0, 1, 2, 3, 4, 5])


@st.composite
def questions(draw):
    """A comparison of two formulas of T and S, as a function of the two."""
    form, compare, number = draw(st.integers(0, 8)), draw(st.sampled_from(COMPARISONS)), draw(st.integers(0, 12))
    forms = [
        lambda T, S: relation(T, compare, number),
        lambda T, S: relation(S, compare, number),
        lambda T, S: relation(T, compare, S),
        lambda T, S: relation(T % 3, compare, number % 3),
        lambda T, S: relation(3 * (T // 3), compare, T),
        lambda T, S: relation(T * S, compare, 2 * number),
        lambda T, S: relation(T + 1, compare, 2 * S),
        lambda T, S: relation(T // 2, compare, S - 1),
        lambda T, S: relation(T * S - S, compare, number),
    ]
    return forms[form]


@given(st.lists(questions(), min_size=1, max_size=6), st.integers(2, 9), st.integers(2, 9))
def test_where_all_guards_hold_every_answer_of_the_run_is_right(asked, t, s):
    env, T, S = sizes(T=t, S=s)
    answers = [(question(T, S), env.ask(question(T, S))) for question in asked]
    for a, b in itertools.product(range(2, 14), repeat=2):
        at = {"T": a, "S": b}
        if all(guard.relation.holds(guard.relation.difference.at(**at)) for guard in env.guards.values()):
            for question, answer in answers:
                assert question.holds(question.difference.at(**at)) is answer, (question, at, guards(env))


# Quiet


def test_a_quiet_question_is_answered_and_not_recorded():
    env, T = sizes(T=7)
    answers = []
    env.quietly(lambda: answers.append(env.ask(relation(T, "<=", 512))))
    assert answers == [True]
    assert not env.guards
    env.ask(relation(T, "<=", 512))
    assert guards(env) == ["T <= 512"]


def test_quiet_ends_when_the_call_raises():
    env, T = sizes(T=7)
    with pytest.raises(ZeroDivisionError):
        env.quietly(lambda: 1 // 0)
    env.ask(relation(T, "<=", 512))
    assert guards(env) == ["T <= 512"]


# Names for what grows


def test_a_long_expression_gets_a_name_the_same_each_time():
    env, *symbols = sizes(**{f"x{n}": n + 2 for n in range(13)})
    long = sum(symbols, start=Expr.const(0))
    named = env.short(long)
    (symbol,) = named.symbols
    assert named is not long
    assert env.short(long) is named
    assert env.definitions == {symbol: long}
    assert env.hint(named) == env.hint(long) == sum(range(2, 15))
    assert env.short(long - symbols[0]) is long - symbols[0]


def test_a_named_expression_keeps_its_bounds():
    env, T, S = sizes(T=7, S=5)
    named = env.name(T * S + T + S)
    assert env.decide(relation(named, ">=", 8)) is True
    assert env.decide(relation(named, ">=", 9)) is None


def test_two_names_never_clash_with_each_other_or_with_a_size_of_the_user():
    env, T, _taken = sizes(T=7, T_1=11)
    names = {str(env.name(T * T + shift)) for shift in range(3)}
    assert len(names) == 3
    assert not names & {"T", "T_1"}


# Sizes that only values decide


def test_fresh_sizes_are_numbered_by_their_stem_and_may_be_zero():
    env, _ = sizes(T=7)
    found = [env.fresh_symbol(stem, hint=3, origin="nonzero") for stem in ("u", "u", "n", "u")]
    assert [str(each) for each in found] == ["u0", "u1", "n0", "u2"]
    assert env.decide(relation(found[0], ">=", 0)) is True
    assert env.decide(relation(found[0], "==", 0)) is None


def test_a_fresh_size_does_not_take_a_name_of_the_user():
    env, u0 = sizes(u0=7)
    assert env.fresh_symbol("u", hint=3, origin="nonzero") is not u0


def test_a_division_by_a_quotient_that_is_known_to_fit_leaves_no_rest():
    """Windows of 8 on a grid of `H//4`: HaloNet's blocks."""
    env, h, t = sizes(H=64, T=7)
    rows = h // 4
    assert str(env.divide(t * rows, 8 * (rows // 8))) == "(T*(H//4))//(8*(H//32))"
    assert env.ask(relation(rows % 8, "==", 0), demanded=True)
    before = guards(env)
    assert env.divide(t * rows, 8 * (rows // 8)) is t
    assert env.remainder(t * rows, 8 * (rows // 8)).constant == 0
    assert guards(env) == before
