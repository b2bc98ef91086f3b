"""`torch.SymInt` over our nodes: what Python and torch compute with it is what they compute with the number."""

import functools
import math
import operator

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import shapeflow as sf
from shapeflow.dims import layout
from shapeflow.dims.env import DimEnv
from shapeflow.dims.expr import Expr
from shapeflow.dims.node import IntNode

sizes = st.integers(2, 40)
numbers = st.integers(-12, 40)
quick = settings(deadline=None)  # the first call of a torch function may take long


def sym(env, expr):
    return torch.SymInt(IntNode(env, expr))


def run(b, t):
    """An environment with B and T as symbolic sizes of these hints."""
    env = DimEnv()
    return env, sym(env, env.symbol("B", hint=b)), sym(env, env.symbol("T", hint=t))


def number(value, **at):
    """What a result is at some sizes: a plain number is itself."""
    return value.node.size.at(**at) if isinstance(value, torch.SymInt) else value


BINARY = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "sym_min": torch.sym_min,
    "sym_max": torch.sym_max,
}
PLAIN = {**BINARY, "sym_min": min, "sym_max": max}


@pytest.mark.parametrize("name", BINARY)
@quick
@given(b=sizes, t=sizes, k=numbers, other=sizes)
def test_arithmetic_of_sizes_is_that_of_integers(name, b, t, k, other):
    assume(name not in ("floordiv", "mod") or k)
    env, B, T = run(b, t)
    for symbolic, plain in [
        (lambda f: f(T, k), lambda f, t: f(t, k)),
        (lambda f: f(k, T), lambda f, t: f(k, t)),
        (lambda f: f(T, B), lambda f, t: f(t, b)),
        (lambda f: f(T - 5, B), lambda f, t: f(t - 5, b)),
        (lambda f: f(3 * T + 1, 2), lambda f, t: f(3 * t + 1, 2)),
        (lambda f: f(B * T, T), lambda f, t: f(b * t, t)),
    ]:
        result = symbolic(BINARY[name])
        assert number(result, B=b, T=t) == plain(PLAIN[name], t)
        assert number(result, B=b, T=other) == plain(PLAIN[name], other)  # the formula, not this run's number
    assert not env.guards


@quick
@given(t=sizes, k=st.integers(0, 3), other=sizes)
def test_powers_and_signs(t, k, other):
    env, _, T = run(2, t)
    for symbolic, plain in [
        (T**k, lambda t: t**k),
        (-T, lambda t: -t),
        (abs(T - 7), lambda t: abs(t - 7)),
        (torch.sym_sum([T, T, 1]), lambda t: 2 * t + 1),
    ]:
        assert number(symbolic, T=t) == plain(t)
        assert number(symbolic, T=other) == plain(other)
    assert not env.guards


@quick
@given(t=sizes, k=numbers, compare=st.sampled_from(["eq", "ne", "lt", "le", "gt", "ge"]))
def test_comparisons_answer_as_integers_do(t, k, compare):
    _, _, T = run(2, t)
    ask = getattr(operator, compare)
    assert bool(ask(T, k)) is ask(t, k)
    assert bool(ask(k, T)) is ask(k, t)


@quick
@given(
    t=sizes,
    other=sizes,
    a=st.integers(-7, 40),
    b=st.integers(1, 8),
    p=st.integers(-3, 5),
    q=st.sampled_from([1, 2, 4, 8]),
)
def test_floor_and_ceil_of_float_formulas_hold_at_other_sizes(t, other, a, b, p, q):
    env, _, T = run(2, t)
    for formula in [
        lambda x: x / b,
        lambda x: x * (p / q),
        lambda x: (x + a) / b + p / q,
        lambda x: (x / b - p / q) * q,
        lambda x: x / 2 / b,
        lambda x: x * 0.5 + a,
    ]:
        for rounding in (math.floor, math.ceil):
            result = rounding(formula(T))
            assert number(result, T=t) == rounding(formula(t))
            assert number(result, T=other) == rounding(formula(other))
    assert not env.guards


@quick
@given(t=sizes, k=st.integers(1, 9))
def test_other_float_functions_have_the_numbers_of_the_run(t, k):
    _, _, T = run(2, t)
    for symbolic, plain in [
        (torch.sym_sqrt(T), math.sqrt(t)),
        (T**0.5, t**0.5),
        (T**-0.5, t**-0.5),
        (k / T, k / t),
        (T / k + 1, t / k + 1),
        (torch.sym_float(T), float(t)),
        (torch.sym_max(T / k, 2.5), max(t / k, 2.5)),
        (T / k % 2.0, t / k % 2.0),
    ]:
        assert symbolic.node.hint == pytest.approx(plain)


def test_rounding_a_root_is_one_size_of_its_own_however_often_it_is_asked():
    _, _, T = run(2, 40)
    first, second = math.floor(torch.sym_sqrt(T)), math.floor(torch.sym_sqrt(T))
    assert number(first, n0=6) == 6
    assert first.node.size is second.node.size
    assert first.node.hint == 6
    assert math.floor(torch.sym_sqrt(T + 1)).node.size is not first.node.size


@quick
@given(t=sizes, k=st.integers(1, 9))
def test_float_comparisons_are_recorded_as_conditions_on_sizes(t, k):
    env, _, T = run(2, t)
    assert bool(T / k <= 3.5) is (t / k <= 3.5)
    for guard in env.guards.values():
        for other in range(2, 60):
            holds = guard.relation.holds(guard.relation.difference.at(T=other))
            assert holds is ((other / k <= 3.5) is (t / k <= 3.5))


def test_a_comparison_that_is_joined_with_another_asks_only_what_it_needs():
    env, B, T = run(3, 7)
    assert bool((T <= 9) & (B == 3))
    assert bool((T > 100) | (T <= 64))
    assert [str(guard) for guard in env.guards.values()] == ["T <= 9", "B == 3"]


def test_a_number_taken_from_a_size_fixes_it():
    env, _, T = run(2, 7)
    assert int(T) == 7
    assert list(range(T))[-1] == 6
    assert [str(guard) for guard in env.guards.values()] == ["T == 7"]


def test_a_number_taken_from_a_pinned_name_fixes_nothing():
    env, _, _ = run(2, 7)
    d = sym(env, Expr.symbol("d_model", 32))
    assert int(d) == 32
    assert d // 4 == 8
    assert not env.guards


def test_sizes_print_as_formulas():
    _, B, T = run(3, 7)
    assert str(torch.empty(B, 2 * T, 4, device="meta").shape) == "torch.Size([B, 2*T, 4])"


# Layout


@st.composite
def strided(draw, *, least=0, ranks=(1, 2, 3, 4, 5)):
    """A real tensor: permuted, sliced, expanded, with axes of 1 and `least` among others."""
    rank = draw(st.sampled_from(ranks))
    shape = draw(st.lists(st.integers(least, 4), min_size=rank, max_size=rank))
    tensor = torch.empty(shape).permute(draw(st.permutations(range(len(shape)))))
    for axis in range(len(shape)):
        match draw(st.sampled_from(["", "", "", "step", "narrow", "one"])):
            case "step":
                tensor = tensor[(slice(None),) * axis + (slice(None, None, 2),)]
            case "narrow" if tensor.shape[axis] > 1:
                tensor = tensor.narrow(axis, 0, tensor.shape[axis] - 1)
            case "one" if tensor.shape[axis]:
                tensor = (
                    tensor.narrow(axis, 0, 1).expand(*tensor.shape)
                    if draw(st.booleans())
                    else tensor.narrow(axis, 0, 1)
                )
    return tensor


@quick
@given(strided())
def test_layout_questions_answer_as_torch_does_for_real_tensors(x):
    sizes, strides = list(x.shape), list(x.stride())
    assert layout.is_contiguous(sizes, strides) is x.is_contiguous()
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if x.dim() in formats:
        expected = x.is_contiguous(memory_format=formats[x.dim()])
        assert layout.is_channels_last_contiguous(sizes, strides) is expected
    else:
        assert not layout.is_channels_last_contiguous(sizes, strides)


@quick
@given(strided(least=1))
def test_dense_tensors_are_those_that_fill_their_storage(x):
    offsets = [0]
    for size, stride in zip(x.shape, x.stride(), strict=True):
        offsets = [offset + stride * index for offset in offsets for index in range(size)]
    dense = sorted(offsets) == list(range(x.numel()))
    assert layout.is_non_overlapping_and_dense(list(x.shape), list(x.stride())) is dense


@quick
@given(strided(least=1, ranks=(4, 5)))
def test_strides_look_channels_last_where_torch_goes_on_in_channels_last(x):
    """`interpolate` gives its output the memory format that the strides of its input suggest."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    likely = layout.is_channels_last_strides(list(x.shape), list(x.stride()))
    wanted = torch.empty(x.shape, memory_format=formats[x.dim()] if likely else torch.contiguous_format)
    assert F.interpolate(x, scale_factor=1, mode="nearest").stride() == wanted.stride()


def test_an_image_of_one_pixel_and_one_channel_is_taken_for_contiguous():
    """Its strides say both; torch settles for the usual layout (c10/core/MemoryFormat.h)."""
    assert layout.is_channels_last_strides([3, 1, 1, 1], [1, 1, 1, 1]) is False
    assert layout.is_channels_last_strides([3, 2, 1, 1], [2, 1, 2, 2]) is True


@settings(deadline=None, max_examples=24)
@given(st.permutations(range(4)))
def test_symbolic_tensors_say_of_their_layout_what_real_ones_say(order):
    said = []

    def look(x):
        x = x.permute(order)
        said.append((x.is_contiguous(), x.is_contiguous(memory_format=torch.channels_last)))
        return x + 1

    trace = sf.trace(look, "B C H W")
    look(torch.empty(3, 5, 7, 11))
    assert said[0] == said[1]
    assert not trace.conditions


# Hashes


def test_while_tracing_a_size_is_a_key_as_its_number_is():
    """Models cache tables by shape: outside a trace, torch leaves symbolic sizes unhashable."""
    tables, lookups = [], []

    @functools.lru_cache
    def table(length):
        tables.append(length)
        return torch.arange(length)

    def forward(x, y):
        d = sym(env, Expr.symbol("d", 4))
        lookups.append(({4: "four"}[d], {x.shape[1]: "T"}[y.shape[1]], len({x.shape[0], x.shape[1], y.shape[1]})))
        return x + table(x.shape[1]) + table(y.shape[1]) + table(x.shape[0])[:1]

    env = DimEnv()
    sf.trace(forward, "B T", "B T")
    assert lookups == [("four", "T", 2)]
    assert [str(length) for length in tables] == ["T", "B"]
    _, _, T = run(3, 7)
    with pytest.raises(TypeError, match="unhashable"):
        hash(T)
