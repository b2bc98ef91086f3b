"""Mermaid charts, read by Mermaid's own parser where npm has brought it: npm install --prefix tests/draw/mermaid"""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch import nn

import shapeflow as sf
from models.gpt import toy as gpt
from shapeflow.check.problem import Problem, Report
from shapeflow.draw.mermaid import MOST_EDGES, escaped, to_mermaid
from shapeflow.errors import DrawError
from shapeflow.graph import build
from tests.handmade import Model, toy

PARSER = Path(__file__).parent / "mermaid"
needs_parser = pytest.mark.skipif(
    not shutil.which("node") or not (PARSER / "node_modules" / "mermaid").is_dir(),
    reason="Mermaid's parser is not here: npm install --prefix tests/draw/mermaid",
)


def parsed(*charts: str) -> list[dict]:
    """What Mermaid understands of each chart; it takes seconds to start, so they go there together."""
    done = subprocess.run(
        ["node", "parse.mjs"], cwd=PARSER, input=json.dumps(charts), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


START = """\
---
title: "GPT: 19,108 parameters, 17 operators"
config:
  flowchart:
    wrappingWidth: 400
    subGraphTitleMargin: {top: 4, bottom: 14}
---
flowchart TB
  accDescr: free B, T#59; fixed d_model = 32, d_ff = 128, vocab = 100#59; inputs ids: B T:int64#59; \
outputs B T vocab#59; for B #62;= 1, T #62;= 1
  n0(["ids<br/>B T:int64"]):::outside
  n1["embed<br/>Embedding, 3,200 parameters"]:::weights
"""


def test_a_chart_is_readable_as_text() -> None:
    text = to_mermaid(build(toy(1).trace()), depth=3)
    assert text.startswith(START)
    assert '  subgraph s0["blocks.0: DecoderBlock, 12,608 parameters"]\n    n4["ln' in text
    assert '    subgraph s1["attn: Attention, 4,096 parameters"]\n      n5["qkv<br/>Linear' in text
    assert '  n6 -->|"B T d_model"| n7' in text
    assert '  n1 ==>|"B T d_model"| n12' in text  # the residual stream
    assert "  class s0,s1,s2 scope" in text


@needs_parser
def test_mermaid_reads_every_node_edge_and_box() -> None:
    (seen,) = parsed(to_mermaid(build(toy(3).trace()), depth=3, sizes={"B": 2, "T": 5}))
    assert seen["about"].startswith("free B = 2, T = 5; fixed d_model = 32")
    assert seen["nodes"][:2] == [
        ["n0", "ids<br>B T:int64", ["outside"]],
        ["n1", "embed<br>Embedding, 3,200 parameters", ["weights"]],
    ]
    assert ["n0", "n1", "B T:int64<br>2 5"] in seen["edges"]
    drawn = [classes for _, _, classes in seen["nodes"] if classes != ["reference"]]
    assert len(drawn) == 1 + 1 + 2 + 13 + 1 + 1
    boxes = dict(seen["boxes"])
    assert {title: len(inside) for title, inside in boxes.items()} == {
        "blocks.0 to blocks.2, x3: DecoderBlock, 12,608 parameters each": 5,  # a norm, two sums, two boxes
        "attn: Attention, 4,096 parameters": 8,  # seven operators, and the name of the mask
        "ffn: FeedForward, 8,448 parameters": 3,
    }


@needs_parser
def test_mermaid_reads_real_models() -> None:
    traces = [
        (sf.trace(gpt()), None),
        (sf.trace(gpt()), 0),
        (sf.trace(nn.LSTM(5, 7, batch_first=True), "B T 5"), None),
        (sf.trace(nn.Transformer(32, 4, 2, 2, 64, batch_first=True), "B S 32", "B T 32"), 2),
        (sf.trace(lambda x: torch.nonzero(x), "B T"), None),
    ]
    for seen in parsed(*(to_mermaid(trace.to_networkx(), depth=depth) for trace, depth in traces)):
        ids = {name for name, _, _ in seen["nodes"]}
        assert ["outside"] in [classes for _, _, classes in seen["nodes"]]
        assert seen["edges"]
        assert all(start in ids and end in ids for start, end, _ in seen["edges"])


TEXTS = [
    "<img src=x onerror=alert(1)>",
    '"quoted" `code`',
    "__init__ *a* a*b*c _x_ d_model",
    "1. list",
    "- list",
    "2) x",
    "# head",
    "a;b",
    '%%{init: {"theme":"dark"}}%%',
    "end",
    "x | y [link](http://x.y) {z}",
    "a#35;b &amp; &lt;",
    "日本 é",
    "= x",
    "$$x^2$$ ~~x~~ a\\b",
    "max(H - 2, 0)//3 % 4",
]


@needs_parser
def test_what_names_say_is_text_and_nothing_else() -> None:
    model = Model("<b>Net</b>")
    x = model.input('x"]:::y', "B T")
    for text in TEXTS:
        with model.module(text, text):
            x = model.op(text, x, out="B T")
            x = model.op(text, x, out="B T")
    model.output(x)
    text = to_mermaid(build(model.trace()), unfold=True)
    assert json.loads(text.splitlines()[1].removeprefix("title: ")).startswith("<b>Net</b>: 0 parameters")
    (seen,) = parsed(text)
    assert seen["nodes"][0][1] == 'x"]:::y<br>B T'
    assert [text for _, text, _ in seen["nodes"][1:-1]] == [text for text in TEXTS for _ in range(2)]
    assert sorted(title for title, _ in seen["boxes"]) == sorted(f"{text}: {text}" for text in TEXTS)


@pytest.mark.parametrize("text", TEXTS)
def test_no_letter_is_left_that_mermaid_or_markdown_reads(text: str) -> None:
    written = escaped(text)
    assert not any(letter in written for letter in '<>"`[]{}|*%&\\$~')
    assert "\n" not in written


def test_line_breaks_and_nothing_at_all() -> None:
    assert escaped("a\nb\x07c\u2028d") == "a b c d"
    assert escaped("") == "#32;"
    assert escaped("B T d_model") == "B T d_model"
    assert escaped("4*d^2") == "4#42;d#94;2"


def test_a_tensor_for_many_is_named_at_each() -> None:
    model = Model("Wide")
    x, mask = model.input("x", "B T"), model.input("mask", "T T")
    for i in range(9):
        x = model.op(f"step{i}", x, mask, out="B T")
    model.output(x)
    text = to_mermaid(build(model.trace()), unfold=True)
    assert text.count('(["mask"]):::reference') == 9
    assert "n1 -->" not in text
    assert 'n1(["mask<br/>T T"]):::outside' in text


def test_what_github_would_not_draw_is_refused() -> None:
    model = Model("Long")
    x = model.input("x", "B T")
    for i in range(MOST_EDGES):
        x = model.op(f"step{i}", x, out="B T")
    model.output(x)
    with pytest.raises(
        DrawError, match=r"too large for Mermaid: Long has 501 edges and .* GitHub draws 500 and 50,000"
    ):
        to_mermaid(build(model.trace()), unfold=True)
    assert to_mermaid(build(model.trace())).count("-->") + to_mermaid(build(model.trace())).count("==>") < 60


def test_what_a_check_found_is_marked() -> None:
    problem = Problem("SF301", "error", "heads are merged <wrongly>", "models/tiny.py", 31, module="blocks.0.ln")
    text = to_mermaid(build(toy(1).trace()), report=Report("GPT", (problem,)))
    (line,) = [line for line in text.splitlines() if ":::finding" in line]
    assert "SF301" in line
    assert "#60;wrongly#62;" in line


def test_the_dark_theme() -> None:
    text = to_mermaid(build(toy(1).trace()), theme="dark")
    assert "classDef plain fill:#1d232a" in text


def test_saved_by_suffix_with_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.mmd", "b.mmd"):
        sf.trace(gpt()).save(tmp_path / name)
    assert (tmp_path / "a.mmd").read_bytes() == (tmp_path / "b.mmd").read_bytes()
    assert "flowchart TB" in (tmp_path / "a.mmd").read_text()
