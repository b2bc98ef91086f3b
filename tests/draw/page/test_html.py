"""The page as a file: whole, deterministic, small, and nothing in it that is loaded from elsewhere."""

import json
import re
import time

import pytest

import shapeflow as sf
from models.gpt import GPT, GPT2_XL
from models.gpt import toy as gpt
from shapeflow.draw import save
from shapeflow.draw.page import to_html
from shapeflow.errors import DrawError
from shapeflow.graph import build
from tests.handmade import Model, toy

DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


def data_of(html: str) -> dict:
    return json.loads(DATA.search(html)[1])


def test_same_graph_same_bytes(engine):
    assert to_html(build(toy(3).trace())) == to_html(build(toy(3).trace()))


def test_same_model_same_bytes(tmp_path):
    for name in ("a.html", "b.html"):
        sf.trace(gpt()).save(tmp_path / name)
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_nothing_is_loaded_from_elsewhere():
    html = to_html(build(toy(2).trace()))
    addresses = set(re.findall(r"https?://[^\"' ]*", html))
    assert addresses == {"http://www.w3.org/2000/svg"}, "SVG's name is no address"
    assert not re.search(r"<(?:link|img|iframe|script)[^>]*\b(?:src|href)=(?!\"data:,\")", html)
    assert not re.search(r"\b(?:fetch|XMLHttpRequest|WebSocket|import)\b\s*\(", html)
    assert "default-src 'none'" in html and "unsafe" not in html


def test_names_cannot_end_the_data_nor_the_title():
    model = Model("</title></script><!-- & 'x'")
    model.output(model.op("]]></script>\u2028", model.input("<!--<script>", "B"), out="B"))
    html = to_html(build(model.trace()))
    assert html.count("</script") == 2 and html.count("<!--") == 0
    titles = [item["title"] for item in data_of(html)["sheets"][0]["items"]]
    assert titles == ["<!--<script>", "]]></script>\u2028", "output"]


def test_a_mark_of_the_template_in_a_name_stays_a_name():
    model = Model("<!--script--><!--data-->")
    model.output(model.op("<!--style-->", model.input("x", "B"), out="B"))
    assert data_of(to_html(build(model.trace())))["name"] == "<!--script--><!--data-->"


def test_sheets_are_laid_out_side_by_side_without_overlap(engine):
    data = data_of(to_html(build(toy(4).trace())))
    assert [sheet["kind"] for sheet in data["sheets"]] == ["GPT", "DecoderBlock", "FeedForward", "Attention"]
    for sheet in data["sheets"]:
        width, height = sheet["size"]
        boxes = [item["box"] for item in sheet["items"]]
        for i, (x, y, w, h) in enumerate(boxes):
            assert w / 2 - 1 <= x <= width - w / 2 + 1 and h / 2 - 1 <= y <= height - h / 2 + 1
            assert all(abs(x - a) * 2 >= w + b - 1 or abs(y - c) * 2 >= h + e - 1 for a, c, b, e in boxes[:i])


def test_a_long_loop_is_drawn(engine):
    """Bent lines between 600 items took more than a minute, straight ones in fewer rounds take 1.5 s."""
    model = Model("Scan")
    x, state = model.input("x", "B T"), model.input("state", "B")
    states = []
    for _ in range(80):
        gate, step = (model.op("getitem", x, out="B") for _ in range(2))
        state = model.op("add", model.op("mul", state, gate, out="B"), step, out="B")
        states.append(state)
    model.output(model.op("stack", *states, out="B T"))
    (sheet,) = data_of(to_html(build(model.trace())))["sheets"]
    assert len(sheet["items"]) == 2 + 4 * 80 + 2
    assert all("reference" in wire for wire in sheet["wires"] if wire["from"] == 0), "80 steps read x"
    assert len({tuple(item["box"][:2]) for item in sheet["items"]}) == len(sheet["items"])


def test_the_html_of_a_gpt2_xl_is_quick_and_small():
    """The bar is 5 s and 3 MB; it takes about 0.7 s and 100 kB."""
    import torch

    with torch.device("meta"):
        model = GPT(GPT2_XL)
    graph = sf.trace(model, "B T:int64").to_networkx()
    start = time.perf_counter()
    html = to_html(graph)
    assert time.perf_counter() - start < 5
    assert len(html.encode()) < 3_000_000
    assert len(data_of(html)["sheets"]) < 12


def test_save_writes_a_page(tmp_path):
    trace = sf.trace(gpt())
    trace.save(tmp_path / "gpt.HTML")
    html = (tmp_path / "gpt.HTML").read_text()
    assert html.startswith("<!doctype html>") and "16384*B*T" in html, "operations are counted"
    trace.save(tmp_path / "less.html", flops=False)
    assert not data_of((tmp_path / "less.html").read_text())["counted"]
    save(trace.to_networkx(), tmp_path / "sized.html", sizes={"B": 2, "T": 5}, depth=1)
    data = data_of((tmp_path / "sized.html").read_text())
    assert data["sizes"] == {"B": 2, "T": 5} and len(data["sheets"]) == 1


def test_save_marks_what_a_check_found(tmp_path):
    trace = sf.trace(gpt())
    trace.save(tmp_path / "gpt.html", report=sf.check(gpt()))
    data = data_of((tmp_path / "gpt.html").read_text())
    (finding,) = data["findings"]
    assert (finding["rule"], finding["level"], finding["code"][0]) == ("SF104", "note", "models/gpt.py:70")
    assert data["checked"] == "checked: holds for all B >= 1, 1 <= T <= 64"


def test_a_graphviz_that_fails_is_told(monkeypatch, tmp_path):
    failing = tmp_path / "dot"
    failing.write_text("#!/bin/sh\necho 'out of ink' >&2\nexit 3\n")
    failing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    with pytest.raises(DrawError, match="Graphviz could not lay out the page: out of ink"):
        to_html(build(toy(1).trace()))


def test_a_dot_that_crashes_is_replaced_by_the_bundled_one(monkeypatch, tmp_path):
    crashing = tmp_path / "dot"
    crashing.write_text("#!/bin/sh\nkill -SEGV $$\n")
    crashing.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert data_of(to_html(build(toy(1).trace())))["sheets"]
