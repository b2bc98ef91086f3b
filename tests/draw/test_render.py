"""Files: every format, with the system's Graphviz and with the bundled one, and what happens when it cannot be."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import networkx as nx
import pytest

from shapeflow.draw import save, to_dot
from shapeflow.draw.layout import render
from shapeflow.draw.render import WRITERS
from shapeflow.errors import DrawError
from shapeflow.graph import build, fold
from tests.handmade import Model, toy

BEGINS = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF", "dot": b'digraph "GPT"'}


@pytest.fixture
def graph():
    return build(toy(2).trace())


@pytest.mark.parametrize("suffix", BEGINS)
def test_the_suffix_tells_the_format(engine, graph, tmp_path, suffix):
    path = save(graph, tmp_path / f"gpt.{suffix}", depth=2)
    assert path.read_bytes().startswith(BEGINS[suffix])
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_picture_shows_names_shapes_and_modules(engine, graph, tmp_path):
    svg = ElementTree.fromstring(save(graph, tmp_path / "gpt.svg", unfold=True).read_text())
    texts = [(text.text or "").replace("\xa0", " ").strip() for text in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert {"GPT", "blocks.1", "softmax", "B T 3*d_model", "qkv", "Linear, 3,072 parameters"} <= set(texts)
    assert sum(text == "B T T" for text in texts) == 2 * 3  # matmul, masked_fill, softmax in each block


def test_a_large_graph_is_drawn(engine, tmp_path):
    path = save(build(toy(20).trace()), tmp_path / "deep.svg", unfold=True)
    assert path.read_text().count("softmax") >= 20


def test_dot_source_is_what_to_dot_gives(graph, tmp_path):
    path = save(graph, str(tmp_path / "gpt.DOT"), depth=1, sizes={"B": 2, "T": 5})
    assert path.read_text() == to_dot(graph, depth=1, sizes={"B": 2, "T": 5})


def test_an_existing_file_is_replaced(graph, tmp_path):
    path = tmp_path / "gpt.dot"
    path.write_text("before")
    save(graph, path)
    assert path.read_text().startswith("digraph")


def test_a_relative_path(graph, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(graph, "gpt.dot")
    assert Path("gpt.dot").is_file()


def test_a_model_that_only_hands_its_input_on_is_a_drawing_too(engine, tmp_path):
    model = Model("Identity")
    model.output(model.input("x", "B T"))
    assert "B T" in save(fold(build(model.trace())), tmp_path / "identity.svg").read_text()


def test_an_empty_graph_is_told(tmp_path):
    model = Model("Nothing")
    model.output()
    for graph, name in ((nx.MultiDiGraph(), "the graph"), (build(model.trace()), "Nothing")):
        with pytest.raises(DrawError, match=f"nothing to draw: {name} is empty; it ran no operator"):
            save(graph, tmp_path / "empty.svg")
    assert list(tmp_path.iterdir()) == []


def test_a_format_is_one_line_in_the_table(graph, tmp_path, monkeypatch):
    def names(graph, *, depth, sizes, **options):
        return " ".join(graph).encode()

    monkeypatch.setattr("shapeflow.draw.render.WRITERS", {**WRITERS, ".names": names})
    assert save(graph, tmp_path / "gpt.names").read_text().startswith("ids embedding")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpt.jpeg", r"cannot draw to .*gpt\.jpeg: \.jpeg is not a format; use \.svg, \.png, \.pdf"),
        ("gpt", r"the name has no suffix to tell the format; use \.svg, .* or \.\w+"),
        ("missing/gpt.svg", r"cannot write .*gpt\.svg: .*missing is not a directory; create it first"),
        ("folder.svg", r"cannot write .*folder\.svg: it is a directory; name a file in it"),
        ("file/gpt.svg", r"cannot write .*gpt\.svg: .*file is not a directory"),
        (f"{'long' * 80}.svg", r"cannot write .*: File name too long; choose a place"),
    ],
)
def test_a_place_that_cannot_be_written_says_what_would_be_right(graph, tmp_path, name, message):
    (tmp_path / "folder.svg").mkdir()
    (tmp_path / "file").write_text("")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DrawError, match=message):
        save(graph, tmp_path / name)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_place_without_permission(graph, tmp_path, monkeypatch):
    def refuse(path, content):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "write_bytes", refuse)  # root may write anywhere, so no folder refuses in every test run
    with pytest.raises(DrawError, match=r"cannot write .*gpt\.dot: Permission denied; choose a place that you may"):
        save(graph, tmp_path / "gpt.dot")


def test_a_write_that_fails_half_way_leaves_the_old_file(graph, tmp_path, monkeypatch):
    def half(path, content):
        with path.open("wb") as file:
            file.write(content[:10])
        raise OSError(28, "No space left on device")

    path = tmp_path / "gpt.dot"
    path.write_text("before")
    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(DrawError, match="No space left on device"):
        save(graph, path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_drawing_that_fails_leaves_no_file(engine, graph, tmp_path, monkeypatch):
    monkeypatch.setattr("shapeflow.draw.render.to_dot", lambda *args, **options: "digraph {{{")
    with pytest.raises(DrawError, match=r"could not lay out the drawing: .*(syntax error|Invalid Input)"):
        save(graph, tmp_path / "gpt.svg")
    assert list(tmp_path.iterdir()) == []


def test_a_dot_that_crashes_is_replaced_by_the_bundled_one(graph, tmp_path, monkeypatch):
    """Debian's 2.43 died of a segmentation fault on a GPT-2 with every operator drawn."""
    crashing = tmp_path / "dot"
    crashing.write_text("#!/bin/sh\nkill -SEGV $$\n")
    crashing.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert save(graph, tmp_path / "gpt.png").read_bytes().startswith(BEGINS["png"])


def test_an_unknown_picture():
    with pytest.raises(DrawError, match="cannot draw 'gif': known are svg, png, pdf"):
        render("digraph {}", "gif")
