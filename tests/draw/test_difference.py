"""Two graphs in one drawing."""

import re
from pathlib import Path

import pytest
from torch import nn

import shapeflow as sf
from models.gpt import toy as gpt
from shapeflow.draw.difference import to_dot
from shapeflow.draw.plan import Frame, plan
from shapeflow.errors import DrawError
from shapeflow.graph import build, diff
from tests.draw.test_changes import sequence, stack
from tests.handmade import Model, toy


def outline(frame: Frame) -> list:
    """The first lines of boxes, and frames as lists."""
    return [
        [item.words[0], *outline(item)] if isinstance(item, Frame) else f"{item.mark} {item.words[0]}"
        for item in frame.items
    ]


def test_what_is_the_same_is_closed_and_drawn_once() -> None:
    frame = plan(diff(build(toy(3).trace()), build(toy(5).trace())))
    assert outline(frame) == [
        "  ids",
        "  embed",
        "  ones",
        "  tril",
        "  blocks.0 to blocks.2, x3",
        "+ + blocks.3 to blocks.4, x2",
        "  head",
        "  output",
    ]


def test_modules_with_a_change_inside_are_open() -> None:
    frame = plan(sf.diff(stack(), stack(norm=nn.RMSNorm)))
    inside = ["norm: LayerNorm -> RMSNorm", "- - layer_norm", "+ + rms_norm"]
    assert outline(frame) == ["  input", ["0 to 2, x3: Layer", inside, "  mix", "  add"], "  output"]


def test_other_arguments_stand_in_the_box() -> None:
    dot = to_dot(sf.diff(sequence(nn.Softmax(-1), nn.Dropout(0.1)), sequence(nn.Softmax(0), nn.Dropout(0.2))))
    assert "~ softmax  dim -1 -> 0" in dot and "~ dropout  p 0.1 -> 0.2" in dot


def test_many_operators_that_did_not_change_are_one_box() -> None:
    frame = plan(sf.diff(sf.trace(gpt()), sf.trace(gpt(d_model=64))))
    ((_, *attention),) = [item for item in outline(frame)[4] if item[0] == "attn: MultiHeadSelfAttention"]
    assert attention == ["~ qkv", "  45 operators as before", "~ out"]


def test_arrows_tell_what_comes_and_goes() -> None:
    source = to_dot(diff(build(toy(1).trace()), build(toy(2).trace())))
    blue, orange = "penwidth=2]", "style=dashed]"
    assert re.search(rf'n4 -> n5 \[label=" B T d_model ", color="#2a6ea6".*{blue}', source)
    assert re.search(rf'n4 -> n6 \[label=" B T d_model ", color="#b8660b".*{orange}', source)
    assert 'n0 -> n1 [label=" B T:int64 "]' in source


def test_shapes_before_and_after_stand_at_the_arrow() -> None:
    widths = [sequence(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 4)) for width in (16, 32)]
    source = to_dot(sf.diff(*widths))
    assert 'n1 -> n2 [label=" B 16 -> B 32 ", color="#7a3aa8"' in source
    assert 'label="0\\nLinear\\n~ linear  B 16 -> B 32\\n~ weight  16 8 -> 32 8\\n~ bias  16 -> 32"' in source


def test_marks_are_told_by_line_style_too() -> None:
    source = to_dot(sf.diff(sequence(nn.ReLU(), nn.Linear(8, 4)), sequence(nn.GELU(), nn.Linear(8, 5))))
    for label, style in [(r"- relu", "dashed"), (r"\+ gelu", "penwidth=2.5"), ("1.nLinear", "peripheries=2")]:
        assert re.search(rf'label="{label}[^\n]*{style}', source), label


def test_no_difference_is_drawn_as_that() -> None:
    source = to_dot(diff(build(toy(1).trace()), build(toy(1).trace())))
    assert 'label="GPT -> GPT\\lno difference' in source


def test_the_same_text_each_time() -> None:
    texts = {to_dot(sf.diff(sf.trace(gpt()), sf.trace(gpt(n_layers=3, d_ff=64)))) for _ in range(2)}
    assert len(texts) == 1


def test_any_name_stays_text() -> None:
    name = '<img src=x>"]; \\N \\n &lt;'
    model = Model(name)
    with model.module(name, name):
        model.output(model.op(name, model.input("x", "B T"), out="B T"))
    source = to_dot(diff(build(toy(1).trace()), build(model.trace())))
    assert 'label="+ <img src=x>\\"]; \\\\N \\\\n &amp;lt;' in source


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf", "dot"])
def test_saved_by_suffix(suffix: str, tmp_path: Path) -> None:
    found = diff(build(toy(1).trace()), build(toy(2).trace()))
    path = found.save(tmp_path / f"diff.{suffix}")
    start = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF", "dot": b"digraph"}[suffix]
    assert path.read_bytes().startswith(start)
    if suffix == "svg":
        assert "+ blocks.1" in path.read_text()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("diff.gif", r"cannot draw a difference to .*diff\.gif: its suffix has to be \.svg, \.png, \.pdf or \.dot"),
        ("diff", "its suffix has to be"),
        ("gone/diff.svg", "gone is not a directory; create it first"),
    ],
)
def test_places_that_cannot_be_written(name: str, message: str, tmp_path: Path) -> None:
    found = diff(build(toy(1).trace()), build(toy(2).trace()))
    with pytest.raises(DrawError, match=message):
        found.save(tmp_path / name)
    assert not list(tmp_path.iterdir())
