"""The printed shape trace, line for line."""

from textwrap import dedent

import pytest
from rich.console import Console

from shapeflow.draw import render_rich, render_text
from shapeflow.errors import DrawError
from shapeflow.graph import build, fold
from shapeflow.trace.result import Condition, Location
from tests.handmade import Model, toy


def body(graph, **options):
    """The trace without legend and closing lines."""
    return render_text(graph, **options).split("\n\n")[1].splitlines()


def flat(text):
    """Runs of blanks as one: what a line says, wherever its columns stand."""
    return " ".join(text.split())


def test_the_whole_page():
    model = toy(1)
    model.domain = "B >= 1, 1 <= T <= 512"
    model.conditions.append(Condition("T <= 512", Location("models/tiny.py", 12, "if t > 512:")))
    model.assumptions += [Condition("all(...) is True", Location("models/tiny.py", 40, "if not x.all():"))] * 2
    expected = """\
        GPT
          free        B, T
          fixed       d_model = 32, d_ff = 128, vocab = 100
          inputs      ids: B T:int64
          outputs     B T vocab

        embed  Embedding  3,200 parameters
          embedding      B T:int64                -> B T d_model        weight
        ones                                      -> T T:bool
        tril             T T:bool                 -> T T:bool
        blocks.0  DecoderBlock  12,608 parameters
          blocks.0.ln  LayerNorm  64 parameters
            layer_norm   B T d_model              -> B T d_model        weight, bias
          blocks.0.attn  Attention  4,096 parameters
            blocks.0.attn.qkv  Linear  3,072 parameters
              linear     B T d_model              -> B T 3*d_model      weight
            chunk        B T 3*d_model            -> 3 x (B T d_model)
            transpose    B T d_model              -> B d_model T
            matmul       B T d_model, B d_model T -> B T T
            masked_fill  B T T, T T:bool          -> B T T
            softmax      B T T                    -> B T T
            matmul       B T T, B T d_model       -> B T d_model
          add            B T d_model, B T d_model -> B T d_model
          blocks.0.ffn  FeedForward  8,448 parameters
            linear       B T d_model              -> B T d_ff           up.weight
            gelu         B T d_ff                 -> B T d_ff
            linear       B T d_ff                 -> B T d_model
          add            B T d_model, B T d_model -> B T d_model
        head  Linear  3,300 parameters
          linear         B T d_model              -> B T vocab          weight, bias

          for         B >= 1, 1 <= T <= 512
          as long as  T <= 512   models/tiny.py:12  if t > 512:
          taking      all(...) is True   models/tiny.py:40  if not x.all():  x2
          total       19,108 parameters, 17 operators"""
    assert render_text(build(model.trace())) == dedent(expected)


def test_depth_closes_modules_to_one_line():
    assert (
        body(build(toy(2).trace()), depth=1)
        == dedent("""\
        embed  Embedding        B T:int64             -> B T d_model  3,200 parameters, 1 operator
        ones                                          -> T T:bool
        tril                    T T:bool              -> T T:bool
        blocks.0  DecoderBlock  B T d_model, T T:bool -> B T d_model  12,608 parameters, 13 operators
        blocks.1  DecoderBlock  B T d_model, T T:bool -> B T d_model  12,608 parameters, 13 operators
        head  Linear            B T d_model           -> B T vocab    3,300 parameters, 1 operator""").splitlines()
    )
    assert body(build(toy(2).trace()), depth=0) == ["GPT  B T:int64 -> B T vocab  31,716 parameters, 30 operators"]


def test_sizes_stand_beside_the_names():
    text = render_text(build(toy(1).trace()), sizes={"B": 2, "T": 5})
    assert "  free        B = 2, T = 5\n" in text
    assert "  inputs      ids: B T:int64 = 2 5\n" in text
    assert "  outputs     B T vocab = 2 5 100\n" in text
    lines = [flat(line) for line in text.splitlines()]
    assert "embedding B T:int64 -> B T d_model 2 5 32 weight" in lines
    assert "transpose B T d_model -> B d_model T 2 32 5" in lines
    assert "chunk B T 3*d_model -> 3 x (B T d_model) 2 5 32, 2 5 32, 2 5 32" in lines


def test_a_size_that_is_not_known_is_a_question_mark_and_an_alias_is_worked_out():
    model = Model("Some")
    x = model.input("x", "B T")
    y = model.op("nonzero", x, out="B n")
    model.op("pool", y, out="B H")
    model.fresh["n"] = "nonzero"
    model.dims |= {"n": None, "H": model.shape("2*T").dims[0], "unused": model.shape("3*T").dims[0]}
    text = render_text(build(model.trace()), sizes={"T": 5})
    assert "  by value    n (nonzero)\n  where       H = 2*T\n" in text
    assert body(build(model.trace()), sizes={"T": 5}) == ["nonzero  B T -> B n  ? ?", "pool     B n -> B H  ? 10"]


def test_long_sizes_that_recur_get_names_so_that_lines_stay_short():
    model = Model("Conv")
    half = "((T-1)//2+1)"
    x = model.op("conv1d", model.input("x", "B 3 T"), out=f"B 8 {half}")
    x = model.op("relu", x, out=f"B 8 {half}")
    x = model.op("batch_norm", x, out=f"B 8 {half}")
    model.output(model.op("pad", x, out=f"B 8 (T+1) {half}"))
    model.dims["T1"] = None  # a name that is taken
    text = render_text(build(model.trace()), sizes={"B": 2, "T": 9})
    assert "  where       T2 = (T - 1)//2 + 1\n" in text
    assert "relu        B 8 T2 -> B 8 T2          2 8 5\n" in text
    assert "pad         B 8 T2 -> B 8 (T + 1) T2  2 8 10 5\n" in text


def test_locations():
    assert body(build(toy(1).trace()), locations=True)[6].endswith("weight, bias  models/tiny.py:31  x = layer_norm(x)")


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("/opt/env/lib/python3.11/site-packages/torch/nn/functional.py", "torch/nn/functional.py"),
        ("/somewhere/else/project/net.py", "project/net.py"),
    ],
)
def test_a_location_tells_the_file_but_not_the_machine(file, shown):
    model = Model("Where")
    model.output(model.op("relu", model.input("x", "B"), out="B", line=7))
    node = model.nodes[1]
    model.nodes[1] = type(node)(node.name, "operator", "relu", (), node.outputs, (), Location(file, 7, "y = relu(x)"))
    assert body(build(model.trace()), locations=True) == [f"relu  B -> B  {shown}:7  y = relu(x)"]


def test_a_module_called_twice_appears_twice():
    model = Model("Shared")
    x = model.input("x", "B T")
    for _ in range(2):
        with model.module("layer", "Layer", parameters=5):
            x = model.op("relu", x, out="B T")
    model.output(x)
    graph = build(model.trace())
    assert [line for line in body(graph) if "Layer" in line] == [
        "layer  Layer  5 parameters",
        "layer, call 2  Layer  5 parameters",
    ]
    assert body(graph, depth=1)[1].startswith("layer, call 2  Layer  B T -> B T")


def test_a_folded_run_says_what_it_stands_for():
    text = render_text(fold(build(toy(12).trace())))
    assert "\nblocks.0 to blocks.11, x12  DecoderBlock  12,608 parameters\n" in text
    assert text.endswith("total       157,796 parameters, 160 operators")


def test_a_folded_page_still_tells_every_output():
    model = Model("Caches")
    x = model.input("x", "B T")
    caches = []
    for i in range(6):
        with model.module(f"layers.{i}", "Layer"):
            caches.append(model.op("linear", x, out="B 4 T"))
            x = model.op("relu", x, out="B T")
    model.output(x, *caches)
    assert "  outputs     B T, 6 x (B 4 T)\n" in render_text(fold(build(model.trace())))


def test_a_tied_parameter_keeps_its_full_name():
    model = Model("Tied", d_model=8)
    with model.module("head", "Linear"):
        model.op("linear", model.input("x", "B d_model"), out="B d_model", reads=("embed.weight", "head.bias"))
    assert body(build(model.trace()))[1].endswith("embed.weight, bias")


def test_many_parameters_are_counted():
    model = Model("Recurrent")
    weights = [f"rnn.weight_{i}" for i in range(16)]
    with model.module("rnn", "LSTM"):
        model.op("lstm", model.input("x", "B T"), out="B T", reads=weights)
    assert body(build(model.trace()))[1] == "  lstm  B T -> B T  weight_0, ..., weight_15 (16 in all)"


def test_dtypes_are_told_where_they_are_not_the_common_one():
    model = Model("Half")
    x = model.input("x", "B T:bfloat16")
    y = model.op("relu", x, out="B T:bfloat16")
    model.output(model.op("argmax", model.op("float", y, out="B T:float32"), out=":int64"))
    assert [flat(line) for line in body(build(model.trace()))] == [
        "relu B T -> B T",
        "float B T -> B T:float32",
        "argmax B T:float32 -> scalar:int64",
    ]


def test_a_long_shape_is_never_cut_and_moves_only_its_own_line():
    model = Model("Long")
    x = model.input("x", "B T")
    long = "B " + "*".join(f"a_rather_long_name_{i}" for i in range(6))
    y = model.op("stretch", x, out=long)
    model.output(model.op("shrink", y, out="B T"))
    stretched, shrunk = body(build(model.trace()))
    assert stretched == f"stretch  B T -> {y.shape}"
    assert shrunk == f"shrink   {y.shape} -> B T"


def test_rich_says_the_same_as_text():
    graph = build(toy(2).trace())
    console = Console(width=20, no_color=True, highlight=False)
    with console.capture() as capture:
        console.print(render_rich(graph, sizes={"B": 2, "T": 5}), soft_wrap=True)
    assert capture.get().splitlines() == render_text(graph, sizes={"B": 2, "T": 5}).splitlines()


def test_markup_in_a_name_stays_text():
    model = Model("[bold]Odd[/]")
    with model.module("a[red]", "K[i]"):
        model.op("relu", model.input("x", "B"), out="B")
    assert render_rich(build(model.trace())).plain.startswith("[bold]Odd[/]\n")


def test_a_function_without_parameters_inputs_or_operators():
    empty = Model("nothing")
    empty.free, empty.dims, empty.domain = (), {}, ""
    empty.output()
    assert render_text(build(empty.trace())) == "nothing\n\n\n  total       0 parameters, 0 operators"


def test_a_negative_depth_is_refused():
    with pytest.raises(DrawError, match="depth is -2"):
        render_text(build(toy(1).trace()), depth=-2)
