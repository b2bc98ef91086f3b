import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shapeflow.dims.expr import Expr
from shapeflow.dims.text import parse, show
from shapeflow.errors import SpecError
from tests.dims.expressions import SYMBOLS, anything, build, several

x = Expr.symbol("x")


@several
@given(anything)
def test_what_is_printed_reads_back_as_the_same_object(tree):
    try:
        expr = build(tree)
    except ZeroDivisionError:
        assume(False)
    assert parse(str(expr), SYMBOLS) is expr


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "-3",
        "B",
        "-B",
        "B*T",
        "4*d_model",
        "d_model^2",
        "2*B - T - 1",
        "1 - B",
        "T - H",
        "4*d_model^2 + 2*d_ff*d_model + 9",
        "B*H*W + 3*B + H + 2",
        "T//2",
        "B*(T//2)",
        "-(T//2)",
        "T - H//2",
        "H//2 - 1",
        "(2*T)//3",
        "(T + 1)//3",
        "B//(2*T)",
        "B//(T + 1)",
        "(H//2)^2",
        "(H - 1)//2 + 1",
        "(H - 1)//32 + 1",
        "(H - 1)//2",
        "(H - 3)//4",
        "B*((H - 1)//2 + 1)",
        "2*((H - 1)//2 + 1)",
        "2*((H - 1)//2)",
        "64*B*((H - 1)//2 + 1)*((W - 1)//2 + 1)",
        "(B - 1)//T + 1",
        "H % 32",
        "B*(H % 32)",
        "(H + 5) % 32",
        "B % T + 1",
        "max(H - 2, 0)",
        "min(H, W, 7)",
        "B*max(H, 7)",
    ],
)
def test_sizes_print_as_a_person_writes_them(text):
    assert str(parse(text)) == text


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("T*B", "B*T"),
        ("9 + 2*d_model*d_ff + 4*d_model^2", "4*d_model^2 + 2*d_ff*d_model + 9"),
        ("-(-H//2)", "(H - 1)//2 + 1"),
        ("(H + 2*1 - 3)//2 + 1", "(H - 1)//2 + 1"),
        ("(H + 2*3 - 7)//2 + 1", "(H - 1)//2 + 1"),
        ("(H - 3)//2 + 1", "(H - 1)//2"),
        ("(H - 11 + 4)//4 + 1", "(H - 3)//4"),
        ("max(0, H - 2)", "max(H - 2, 0)"),
        ("B**2 * B", "B^3"),
        ("(x + 1)*(x - 1)", "x^2 - 1"),
        ("B * (3)", "3*B"),
        ("(8*d)//3", "(8*d)//3"),
        ("(3*H)//2", "(3*H)//2"),
        ("(5*B + 2*T)//3 + H", "B + H + (2*B + 2*T)//3"),
        ("B + T + (H + T)//2", "B + T + (H + T)//2"),
        ("H + -(-H//2)", "H + (H - 1)//2 + 1"),
        ("H - H//2", "H - H//2"),
    ],
)
def test_other_spellings_print_alike(text, printed):
    assert show(parse(text)) == str(parse(text)) == repr(parse(text)) == printed


def test_pinned_symbols_print_as_names():
    d_model = Expr.symbol("d_model", 32)
    assert str(3 * d_model) == "3*d_model"
    assert parse("3*d_model", {"d_model": d_model}) is 3 * d_model
    assert parse("3*d_model") is not 3 * d_model


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-x//2", -x // 2),
        ("-(x//2)", -(x // 2)),
        ("-x**2", -(x**2)),
        ("x**-0", Expr.const(1)),
        ("2**3**2", Expr.const(512)),
        ("2*x//3*4", 2 * x // 3 * 4),
        ("x - 1 - 2", x - 3),
        ("x // 2 // 3", x // 6),
        ("7 % x % 3", 7 % x % 3),
        ("- - x", x),
        ("2 - -x", x + 2),
        ("+x", x),
        ("  ( ( x ) )  ", x),
        ("max(x, 2, 3)", parse("max(max(x, 2), 3)")),
        ("max", Expr.symbol("max")),
        ("größe_2", Expr.symbol("größe_2")),
    ],
)
def test_text_is_read_with_the_precedence_of_python(text, expected):
    assert parse(text) is expected


@pytest.mark.parametrize(
    ("text", "caret", "reason", "hint"),
    [
        ("", 0, "an expression is empty", ""),
        ("   ", 3, "an expression is empty", ""),
        ("B +", 3, "a size is missing at the end", ""),
        ("B * )", 4, "a size is missing before ')'", ""),
        ("* B", 0, "a size is missing before '*'", ""),
        ("B $ T", 2, "'$' has no meaning in an expression", ""),
        ("B/2", 1, "sizes are whole numbers: divide with //", ""),
        ("1.5*B", 1, "sizes are whole numbers", ""),
        ("2 T", 2, "an operator is missing after '2'", "2*T"),
        ("2T + 1", 1, "an operator is missing after '2'", "2*T + 1"),
        ("(B + 1) T", 8, "an operator is missing after ')'", "(B + 1)*T"),
        ("3(B + 1)", 1, "an operator is missing after '3'", "3*(B + 1)"),
        ("B, T", 1, "an operator is missing after 'B'", ""),
        ("(B + 1", 0, "this bracket is never closed", ""),
        ("B + 1)", 5, "nothing opened this bracket", ""),
        ("(B T)", 3, "expected ) before 'T'", ""),
        ("max(B, T", 3, "this bracket is never closed", ""),
        ("max()", 4, "a size is missing before ')'", ""),
        ("sqrt(B)", 0, "'sqrt' is no function: there are max and min", ""),
        ("B//0", 3, "division by zero", ""),
        ("B % (T - T)", 4, "division by zero", ""),
        ("B^T", 2, "a power is a whole number of at least 0", ""),
        ("B^-1", 2, "a power is a whole number of at least 0", ""),
        ("B^999999999", 2, "a power is at most 64", ""),
        ("9^9^9^9", 4, "a power is at most 64", ""),
        ("(" * 100 + "B" + ")" * 100, 40, "more than 40 brackets within each other", ""),
    ],
)
def test_a_fault_is_pointed_at(text, caret, reason, hint):
    with pytest.raises(SpecError) as caught:
        parse(text)
    message = f"{reason}\n    {text}\n    {' ' * caret}^" + (f"\nwrite: {hint}" if hint else "")
    assert str(caught.value) == message


@given(st.text(alphabet="BT12 +-*/%^(),max.", max_size=12))
def test_any_text_is_read_or_refused_with_a_caret_inside_it(text):
    try:
        parse(text)
    except SpecError as error:
        assert 0 <= error.position <= len(text)
