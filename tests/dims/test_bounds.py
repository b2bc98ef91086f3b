import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shapeflow.dims import interval
from shapeflow.dims.bounds import bounds, is_natural
from shapeflow.dims.expr import Expr
from shapeflow.dims.text import parse
from tests.dims.expressions import PINNED, SYMBOLS, anything, build, compute, several, sizes

FROM_ONE = (1, None)


@st.composite
def ranges_and_points(draw):
    """A range for each free symbol, and a point that lies within all of them."""
    ranges, point = {}, dict(PINNED)
    for name in SYMBOLS.keys() - PINNED.keys():
        low = draw(st.integers(1, 6))
        point[name] = draw(st.integers(low, low + 30))
        ranges[name] = (low, draw(st.sampled_from([None, point[name], point[name] + 3])))
    return ranges, point


@several
@given(anything, ranges_and_points())
def test_every_value_lies_within_the_bounds(tree, case):
    ranges, point = case
    try:
        expr, number = build(tree), compute(tree, point)
    except ZeroDivisionError:
        assume(False)
    low, high = bounds(expr, lambda symbol: ranges[symbol.name])
    assert low is None or low <= number
    assert high is None or number <= high


@several
@given(anything, sizes)
def test_an_expression_knows_its_range_for_all_sizes(tree, at):
    try:
        expr, number = build(tree), compute(tree, at)
    except ZeroDivisionError:
        assume(False)
    low, high = expr.range
    assert low is None or low <= number
    assert high is None or number <= high
    assert number >= 0 or not is_natural(expr)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", (7, 7)),
        ("B", (1, None)),
        ("3 - B", (None, 2)),
        ("B*T - B", (0, None)),
        ("B*T - B - T + 1", (0, None)),
        ("B*T*d - B*T", (0, None)),
        ("B*T - T - 5", (-5, None)),
        ("B - T", (None, None)),
        ("H//2", (0, None)),
        ("H - H//2", (1, None)),
        ("H - 2*(H//2)", (0, 1)),
        ("H//2 + (H + 1)//2 - H", (0, 0)),
        ("B*(H//2)*2 - B*H", (None, 0)),
        ("(H + 31)//32*32 - H", (0, 31)),
        ("x % 8", (0, 7)),
        ("x - x % 8", (0, None)),
        ("x % 8 + 8*(x//8) - x", (0, 0)),
        ("x//T*T - x", (None, 0)),
        ("max(H - 2, 0)", (0, None)),
        ("max(H - 2, 0) - H", (-2, -1)),
        ("min(H, 7)", (1, 7)),
        ("H - min(H, W)", (0, None)),
        ("max(H, W) - min(H, W)", (0, None)),
        ("B**2 - 2*B*T + T**2", (None, None)),
        ("(B - T)**2 - B**2 + 2*B*T", (1, None)),
    ],
)
def test_bounds_for_sizes_of_at_least_one(text, expected):
    assert bounds(parse(text), lambda symbol: FROM_ONE) == expected


@pytest.mark.parametrize(
    ("text", "ranges", "expected"),
    [
        ("B*T", {"B": (2, 4), "T": (3, 5)}, (6, 20)),
        ("B - T", {"B": (2, 4), "T": (3, 5)}, (-3, 1)),
        ("512 - T", {"T": (1, 512)}, (0, 511)),
        ("512*T - T*T", {"T": (1, 512)}, (0, None)),
        ("T//128", {"T": (256, 511)}, (2, 3)),
        ("T % 128", {"T": (5, 100)}, (5, 100)),
        ("100//T", {"T": (3, 9)}, (11, 33)),
        ("B*T - B", {"B": (0, None), "T": (2, None)}, (0, None)),
        ("H - 7", {"H": (8, None)}, (1, None)),
    ],
)
def test_bounds_for_sizes_in_a_range(text, ranges, expected):
    low, high = bounds(parse(text), lambda symbol: ranges[symbol.name])
    assert low == expected[0]
    assert expected[1] is None or high == expected[1]


def test_a_pinned_symbol_is_a_point():
    d_model, heads = Expr.symbol("d_model", 32), Expr.symbol("n_heads", 4)
    assert bounds(d_model // heads - 7, lambda symbol: pytest.fail("a pinned symbol has a value")) == (1, 1)


intervals = st.tuples(st.integers(-9, 9), st.integers(0, 9)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(intervals, intervals, st.data())
def test_interval_arithmetic_holds_every_result(a, b, data):
    x, y = data.draw(st.integers(*a)), data.draw(st.integers(*b))
    a = data.draw(st.sampled_from([a, (None, a[1]), (a[0], None), (None, None)]))
    b = data.draw(st.sampled_from([b, (None, b[1]), (b[0], None), (None, None)]))
    results = [
        (x + y, interval.plus(a, b)),
        (x * y, interval.times(a, b)),
        (3 * x, interval.scaled(a, 3)),
        (-2 * x, interval.scaled(a, -2)),
        (x**2, interval.power(a, 2)),
        (x**3, interval.power(a, 3)),
        (max(x, y), interval.largest([a, b])),
        (min(x, y), interval.smallest([a, b])),
    ]
    if y:
        results += [(x // y, interval.floor_divide(a, b)), (x % y, interval.modulo(a, b))]
    for value, (low, high) in results:
        assert (low is None or low <= value) and (high is None or value <= high)
