"""The grammar of inputs: what each form means, and what a spec with a fault is told."""

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shapeflow.dims.dtype import DTYPES, nearest
from shapeflow.dims.expr import Expr, maximum, minimum
from shapeflow.dims.spec import Dim, TensorSpec, parse_spec
from shapeflow.errors import SpecError

B, T, h, k = (Expr.symbol(name) for name in ("B", "T", "h", "k"))


def pinned(name, size):
    return Dim(Expr.symbol(name, size), name)


@pytest.mark.parametrize(
    ("text", "dims"),
    [
        ("", []),
        ("   ", []),
        ("B T", [Dim(B, "B"), Dim(T, "T")]),
        (" T", [Dim(T, "T")]),  # the way F722 wants one axis
        ("B\tT\n", [Dim(B, "B"), Dim(T, "T")]),
        ("d_model größe x1", [Dim(Expr.symbol(name), name) for name in ("d_model", "größe", "x1")]),
        ("28 0", [Dim(Expr.const(28)), Dim(Expr.const(0))]),
        ("B 3 H=224", [Dim(B, "B"), Dim(Expr.const(3)), pinned("H", 224)]),
        ("H=2*112", [pinned("H", 224)]),
        ("2*T h*k T+1 T-1 T//2 T%2", [Dim(e) for e in (2 * T, h * k, T + 1, T - 1, T // 2, T % 2)]),
        ("T**2 T^2 (T-1)*B", [Dim(T * T), Dim(T * T), Dim((T - 1) * B)]),
        ("min(B,T) max(B,T-1)", [Dim(minimum(B, T)), Dim(maximum(B, T - 1))]),
        ("d=h*k", [Dim(h * k, "d")]),
        # bounds are inclusive
        ("T<=512", [Dim(T, "T", high=512)]),
        ("T>=2", [Dim(T, "T", low=2)]),
        ("B<8", [Dim(B, "B", high=7)]),
        ("B>1", [Dim(B, "B", low=2)]),
        ("T>=0", [Dim(T, "T", low=0)]),
        ("T>=2<=512", [Dim(T, "T", low=2, high=512)]),
        ("T<512>3", [Dim(T, "T", low=4, high=511)]),
        # jaxtyping's marks
        ("*batch T", [Dim(name="batch", variadic=True), Dim(T, "T")]),
        ("...", [Dim(variadic=True)]),
        ("B ... 3", [Dim(B, "B"), Dim(variadic=True), Dim(Expr.const(3))]),
        ("_ _name", [Dim(), Dim()]),
        ("*_ 3", [Dim(variadic=True), Dim(Expr.const(3))]),
        ("*_batch", [Dim(variadic=True)]),
        ("#B #3 #2*T", [Dim(B, "B", True), Dim(Expr.const(3), broadcast=True), Dim(2 * T, broadcast=True)]),
        ("#H=4", [Dim(Expr.symbol("H", 4), "H", broadcast=True)]),
        ("#T<=5", [Dim(T, "T", broadcast=True, high=5)]),
        ("#*b", [Dim(name="b", broadcast=True, variadic=True)]),
        ("*#b", [Dim(name="b", broadcast=True, variadic=True)]),
        ("?x", [Dim(name="x")]),
        ("#?x", [Dim(name="x", broadcast=True)]),
        ("?_", [Dim()]),
        ("?*x", [Dim(variadic=True)]),
        # one name is one size
        ("H=4 H 2*H", [pinned("H", 4), pinned("H", 4), Dim(2 * Expr.symbol("H", 4))]),
        ("2*H H=4", [Dim(2 * Expr.symbol("H", 4)), pinned("H", 4)]),
        ("H<=8 H=4 H=4", [pinned("H", 4)] * 3),
    ],
)
def test_axes(text, dims):
    assert parse_spec(text) == TensorSpec(tuple(dims))
    assert parse_spec(text).text == text


@pytest.mark.parametrize(
    ("text", "axes", "dtype"),
    [
        ("B T", 2, "float32"),
        ("B T:int64", 2, "int64"),
        ("B T: bool", 2, "bool"),
        ("B T :bfloat16", 2, "bfloat16"),
        (":int64", 0, "int64"),
        ("T<=512:complex64", 1, "complex64"),
        ("*batch H=224:float8_e4m3fn", 2, "float8_e4m3fn"),
    ],
)
def test_dtype_follows_a_colon(text, axes, dtype):
    spec = parse_spec(text)
    assert (len(spec.dims), spec.dtype) == (axes, dtype)


def test_every_dtype_is_one_of_torch():
    assert all(isinstance(getattr(torch, name), torch.dtype) for name in DTYPES)
    assert all(parse_spec(f"B:{name}").dtype == name for name in DTYPES)


def test_every_usual_dtype_of_torch_is_known():
    ours_not = re.compile(
        r"q?u?int[1-7]?(\dx\d)?|bits.*|bcomplex32|quint.*|qint.*"
    )  # sub-byte, quantised, experimental
    names = {str(value).removeprefix("torch.") for value in vars(torch).values() if isinstance(value, torch.dtype)}
    assert {name for name in names - set(DTYPES) if not ours_not.fullmatch(name)} == set()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("int", "int64"),
        ("float", "float32"),
        ("long", "int64"),
        ("half", "float16"),
        ("boolean", "bool"),
        ("double", "float64"),
        ("torch.int64", "int64"),
        ("torch.long", "int64"),
        ("Int64", "int64"),
        ("f32", "float32"),
        ("bf16", "bfloat16"),
        ("fp16", "float16"),
        ("i64", "int64"),
        ("u8", "uint8"),
        ("flaot32", "float32"),
        ("blool", "bool"),
        ("words", ""),
    ],
)
def test_nearest_dtype(name, meant):
    assert nearest(name) == meant


# text, the characters at the caret ("" is the end), the reason, the hint
FAULTS = [
    # between axes
    ("B,T", ",T", "separated by spaces, not commas", "B T"),
    ("B, 3, H", ", 3", "separated by spaces, not commas", "B 3 H"),
    ("max(B,T),3", ",3", "separated by spaces, not commas", "max(B,T) 3"),
    ("(B, T)", "(B", "without brackets around them", "B T"),
    ("[B T]:int64", "[B", "without brackets around them", "B T:int64"),
    ("(2, 3)", "(2", "without brackets around them", "2 3"),
    ("3x224x224", "x224x224", "not by `x`", "3 224 224"),
    ("B 3;4", ";4", "`;` has no meaning", ""),
    # dtypes
    ("B T:", "", "a dtype is missing after the colon", "B T:int64"),
    (":", "", "a dtype is missing after the colon", ":int64"),
    ("B T:int", "int", "no dtype is called `int`", "B T:int64"),
    ("B T: float", "float", "no dtype is called `float`", "B T:float32"),
    ("B:long", "long", "no dtype is called `long`", "B:int64"),
    ("B:half", "half", "no dtype is called `half`", "B:float16"),
    ("B:torch.bool", "torch.bool", "no dtype is called `torch.bool`", "B:bool"),
    ("B:words", "words", r"no dtype is called `words` \(there are float32, int64, bool", ""),
    ("B:int64 T", " T", "the dtype stands once, after the last axis", "B T:int64"),
    ("B:int64 T:int64", " T:int64", "the dtype stands once", "B T:int64"),
    ("B T:int:bool", ":bool", "the dtype stands once", "B T:int64"),
    # numbers and expressions
    ("B 3x", "3x", "a name does not start with a digit", "B 3*x"),
    ("2*3x", "3x", "a name does not start with a digit", "2*3*x"),
    ("B -1", "-1", "a size is not negative; `_` is an axis of any size", "B _"),
    ("-4", "-4", "a size is not negative", "4"),
    ("2-3", "2-3", "a size is not negative", ""),
    ("H=2 H-3", "H-3", "a size is not negative, and this is -1", ""),
    ("B (T+1", "(T+1", r"`\(` is never closed", ""),
    ("B T+1)", ")", r"`\)` closes nothing", "B T+1"),
    ("B (T + 1)", " + 1", "an axis has no spaces inside", "B (T+1)"),
    ("max(B, T) 3", " T", "an axis has no spaces inside", "max(B,T) 3"),
    ("B 2 * T", "* T", "an axis has no spaces inside", "B 2*T"),
    ("T - 1", "- 1", "an axis has no spaces inside", "T-1"),
    ("B T// 2", " 2", "an axis has no spaces inside", "B T//2"),
    ("T+", "", "T+", ""),
    ("T//0", "0", "zero", ""),
    ("B (T-1)/2", "/2", "divide with `//`", "B (T-1)//2"),
    ("2(T+1)", "(T+1)", "an operator is missing", "2*(T+1)"),
    ("abs(T)", "abs", "abs", ""),
    ("2*_x", "_x", "`_x` is an axis of any size", ""),
    ("T&1", "&1", "`&` has no meaning", ""),
    ("$", "$", r"`\$` has no meaning", ""),
    ("B {n}+1", "{n}", "braces read a value of the running program", "B n+1"),
    ("{self.n}", "{", "braces read a value", "n"),
    ("self.x", ".x", "a spec reads no attributes", "x"),
    ("B 2*self.d.e", ".d.e", "a spec reads no attributes", "B 2*e"),
    ("0.5*T", ".5", "a spec reads no attributes and no fractions", ""),
    ("B 'T'", "'T'", "`'` has no meaning", ""),
    # names with a size
    ("B=", "", "a size is missing after `=`; `B` alone is free", "B=8"),
    ("B= T", " T", "an axis has no spaces inside", "B=T"),
    ("B=:int64", ":int64", "a size is missing after `=`", "B=8:int64"),
    ("=4", "=4", "a name is missing before `=`", "4"),
    ("2*T=4", "2*T", "only a name can stand before `=`", "4"),
    ("T==4", "=4", "one `=` is enough", "T=4"),
    ("H = 224", "= 224", "an axis has no spaces inside", "H=224"),
    ("H= 224", " 224", "an axis has no spaces inside", "H=224"),
    ("H=0", "0", "a size with a name is at least 1", "0"),
    ("H=-2", "-2", "a size is not negative", "H=2"),
    ("T=T+1", "T+1", "`T` is defined by itself", "T+1"),
    ("H=2 H=3", "H=3", "`H` is 2 already", "H=2 H"),
    ("H=9 H<=8", "H<=8", "`H` is 9 already", "H=9 H"),
    ("a=#4", "#4", "`#` stands in front", "#a=4"),
    # bounds
    ("T<=", "", "a number is missing after `<=`", "T<=8"),
    ("T<= 512", " 512", "an axis has no spaces inside", "T<=512"),
    ("T <= 512", "<= 512", "an axis has no spaces inside", "T<=512"),
    ("T>=5<=3", ">=5<=3", "no size of `T` fits both bounds", ""),
    ("T>3<4", ">3<4", "no size of `T` fits both bounds", ""),
    ("T<=0", "<=0", "no size fits: without a lower bound `T` is at least 1", "T>=0<=0"),
    ("#T<=0", "<=0", "no size fits", "#T>=0<=0"),
    ("T<1", "<1", "no size fits", "T>=0<1"),
    ("T<=5<=3", "<=3", "`T` has two upper bounds", ""),
    ("T>5>=3", ">=3", "`T` has two lower bounds", ""),
    ("T<=N", "N", "a bound is a number, not `N`", ""),
    ("T<=2*3", "2*3", r"a bound is a number, not `2\*3`", ""),
    ("T>=-1", "-1", "sizes are not negative", "T"),
    ("T=<4", "=<4", "`=<` is no relation", "T<=4"),
    ("T=>4", "=>4", "`=>` is no relation", "T>=4"),
    ("T<>4", "<>4", "`<>` is no relation", ""),
    ("T!=4", "!=4", "a bound is one of < <= > >=, not `!=`", ""),
    ("<=4", "<=4", "a bound stands after a name", ""),
    ("2<=T", "2<=T", "a bound stands after a name", "T>=2"),
    ("2<=T<=512", "2<=T", "a bound stands after a name", "T>=2<=512"),
    ("2*T<=8", "2*T", "a bound stands after a name", ""),
    ("H=224<=300", "=224", "a bound is one of < <= > >=, not `=`", ""),
    # marks
    ("*4", "*4", r"`\*` stands before a name", "4"),
    ("*a+b", "*a", r"`\*` stands before a name", "a+b"),
    ("*T<=4", "*T", r"`\*` stands before a name", "T<=4"),
    ("?4", "?4", r"`\?` stands before a name", "4"),
    ("_4", "_4", "so it has no size of its own", "4"),
    ("_T<=4", "_T", "so it has no size of its own", "T<=4"),
    ("_a=4", "_a", "so it has no size of its own", "a=4"),
    ("#_", "#_", "so it cannot also broadcast", "_"),
    ("_#x", "#x", "so it cannot also broadcast", "_x"),
    ("##B", "#B", "`#` stands twice", "#B"),
    ("**b", "*b", r"`\*` stands twice", "*b"),
    ("__x", "_x", "`_` stands twice", "_x"),
    ("B #", "", "a name is missing after `#`", "B #B"),
    ("*", "", r"a name is missing after `\*`", "*B"),
    ("B#", "#", "`#` stands in front", "#B"),
    ("...T", "...T", r"`\.\.\.` stands alone", "..."),
    ("#...", "...", r"`\.\.\.` stands alone", "..."),
    ("*a *b", "*b", r"`\*a` stands for any number of axes already", "*a b"),
    ("... 3 ...", "...", r"`\.\.\.` stands for any number of axes already", "... 3 _"),
    # several faults: the first one is shown, all are mended
    ("B,T:int", ",T", "separated by spaces, not commas", "B T:int64"),
    ("[B, 3x]:float", "[B", "without brackets", "B 3*x:float32"),
]


@pytest.mark.parametrize(("text", "at", "reason", "hint"), FAULTS, ids=[fault[0] for fault in FAULTS])
def test_faults(text, at, reason, hint):
    with pytest.raises(SpecError, match=reason) as caught:
        parse_spec(text)
    assert text[caught.value.position :].startswith(at)
    assert caught.value.position == (text.rindex(at) if at else len(text))
    assert caught.value.hint == hint
    if hint:
        parse_spec(hint)


def test_the_message_has_a_caret_under_the_fault():
    with pytest.raises(SpecError) as caught:
        parse_spec("B\tT:int")
    assert str(caught.value) == "no dtype is called `int`\n    B T:int\n        ^\nwrite: B T:int64"


@pytest.mark.parametrize(
    "text",
    ["", "B T", "B 3 H=224 W=224", "B T:int64", "*batch #h*k ?x _ d=h*k", "... T>=2<=512", "#*b (T-1)//2+1", ":bool"],
)
def test_str_parses_back(text):
    assert str(parse_spec(text)) == text or parse_spec(str(parse_spec(text))) == parse_spec(text)
    assert parse_spec(str(parse_spec(text))) == parse_spec(text)


UNHURRIED = settings(deadline=None)  # other work on the machine is no fault of a spec
NAMES = st.sampled_from(["B", "T", "d_model", "x1"])
AXES = st.one_of(
    NAMES,
    st.integers(0, 99).map(str),
    st.builds("{}*{}+{}".format, st.integers(1, 9), NAMES, st.integers(0, 9)),
    st.builds("max({},{}//{})".format, NAMES, NAMES, st.integers(1, 9)),
    st.builds("{}>={}<={}".format, NAMES, st.integers(0, 9), st.integers(10, 99)),
    st.builds("p_{}={}".format, NAMES, st.just(7)),
    st.builds("{}{}".format, st.sampled_from(["#", "?", "_"]), NAMES),
    st.just("_"),
)


@UNHURRIED
@given(
    st.lists(AXES, max_size=5).map(" ".join), st.sampled_from(["", ":int64", ":bool"]), st.sampled_from(["", "... "])
)
def test_every_spec_prints_a_text_that_parses_to_it(axes, dtype, variadic):
    spec = parse_spec(variadic + axes + dtype)
    assert parse_spec(str(spec)) == spec


@UNHURRIED
@given(st.text(alphabet="BT12 _*#?=<>+-/%^(),.:[]{}'intx", max_size=12))
def test_any_text_parses_or_points_at_a_fault(text):
    try:
        spec = parse_spec(text)
    except SpecError as error:
        assert 0 <= error.position <= len(text)
        assert not error.hint or parse_spec(error.hint)
    else:
        assert parse_spec(str(spec)) == spec
