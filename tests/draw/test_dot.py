"""DOT source: golden text for a small model, escaping, references for what fans out."""

import re
from pathlib import Path

import graphviz
import pygraphviz
import pytest

from shapeflow.draw import to_dot
from shapeflow.graph import build, fold
from tests.handmade import Model, toy

GOLDEN = Path(__file__).parent / "toy.dot"


def statements(dot):
    """Each node's and edge's statement, without indentation."""
    return [line.strip() for line in dot.splitlines()]


def parsed(dot):
    return pygraphviz.AGraph(string=dot)


def test_golden():
    """To write it anew: python -m tests.draw.test_dot."""
    assert golden() == GOLDEN.read_text()


def golden():
    return to_dot(fold(build(toy(3).trace())), depth=2)


def test_the_same_graph_gives_the_same_text():
    assert to_dot(build(toy(3).trace())) == to_dot(build(toy(3).trace()))


def test_every_edge_has_its_shape_and_nothing_is_lost():
    graph = build(toy(3).trace())
    drawn = parsed(to_dot(graph))
    assert drawn.number_of_nodes() == len(graph)
    assert sorted(edge.attr["label"].strip() for edge in drawn.edges()) == sorted(
        str(edge.shape) + ("" if edge.shape.dtype == "float32" else f":{edge.shape.dtype}")
        for _, _, edge in graph.edges(data="edge")
    )


def test_clusters_nest_as_the_modules_do():
    drawn = parsed(to_dot(build(toy(1).trace())))
    outer = drawn.get_subgraph("cluster_blocks.0#1")
    inner = outer.get_subgraph("cluster_blocks.0.attn#1")
    assert "softmax" in inner and "add" not in inner and "add" in outer
    assert outer.graph_attr["label"] == (
        '<b>blocks.0</b><br align="left"/><font point-size="9">DecoderBlock, 12,608 parameters</font><br align="left"/>'
    )


def test_a_module_with_one_operator_is_one_box_that_tells_the_operator_if_the_class_does_not():
    lines = statements(to_dot(build(toy(1).trace())))
    assert (
        '"linear" [label=<<b>qkv</b><br/><font point-size="9">Linear, 3,072 parameters</font>>, '
        'fillcolor="#dcebf7", color="#3a78b0", tooltip="blocks.0.attn.qkv"]'
    ) in lines
    model = Model("Gated")
    with model.module("gate", "Router"):
        model.op("linear", model.input("x", "B"), out="B")
    assert (
        '"linear" [label=<<b>gate</b><br/><font point-size="9">Router<br/>linear</font>>, tooltip="gate"]'
    ) in statements(to_dot(build(model.trace())))


def test_inputs_constants_operators_and_outputs_have_shapes_of_their_own():
    model = Model("Kinds")
    total = model.op("add", model.input("x", "B T"), model.constant("table", "T"), out="B T")
    model.output(total)
    drawn = parsed(to_dot(build(model.trace())))
    shapes = {name: drawn.get_node(name).attr["shape"] or "default" for name in ("x", "table", "add", "output")}
    assert shapes == {"x": "ellipse", "table": "note", "add": "box", "output": "ellipse"}
    assert drawn.get_node("output").attr["peripheries"] == "2"


def test_sizes_stand_below_the_names():
    assert '"ids" -> "embedding" [label=" B T:int64 \\n 2 5 "]' in statements(
        to_dot(build(toy(1).trace()), sizes={"B": 2, "T": 5})
    )


def test_two_tensors_between_the_same_boxes_are_two_arrows():
    drawn = parsed(to_dot(build(toy(1).trace()), depth=1))
    assert len(drawn.edges("@blocks.0", keys=True)) == 3  # from embed, from the mask, to head
    model = Model("Square")
    x = model.input("x", "B")
    model.output(model.op("mul", x, x, out="B"))
    assert len(parsed(to_dot(build(model.trace()))).edges("x", keys=True)) == 2


def test_a_tensor_that_every_block_reads_is_named_at_each():
    dot = to_dot(build(toy(12).trace()))
    drawn = parsed(dot)
    assert len(drawn.edges("tril")) == 1  # from ones; none to the blocks
    references = [name for name in drawn.nodes() if name.startswith("tril.0 for masked_fill")]
    assert len(references) == 12
    assert drawn.get_node(references[0]).attr["label"] == "tril"
    assert drawn.successors("tril.0 for masked_fill_3") == ["masked_fill_3"]
    assert drawn.get_node("tril").attr["label"] == "<b>tril</b>"  # the reference calls it what the box does
    assert "tril.0 for masked_fill_3" in drawn.get_subgraph("cluster_blocks.3#1").get_subgraph(
        "cluster_blocks.3.attn#1"
    )


def test_a_box_that_is_referred_to_tells_the_name_that_the_references_use():
    model = Model("Masks")
    x = model.input("x", "B T")
    model.op("split", x, out="B T")
    with model.module("masks", "Masks", parameters=7):
        halves = model.op("split", x, out=("B T", "B T"))
    for tensor in (halves, model.also(halves, 1)):
        for _ in range(9):
            x = model.op("add", x, tensor, out="B T")
    model.output(x)
    opened, closed = parsed(to_dot(build(model.trace()))), parsed(to_dot(build(model.trace()), depth=1))
    assert opened.get_node("split_1").attr["label"] == (
        '<b>masks</b><br/><font point-size="9">Masks, 7 parameters<br/>split<br/>= split_1</font>'
    )
    assert opened.get_node("split_1.1 for add_12").attr["label"] == "split_1 2"
    assert closed.get_node("@masks.0 for add_4").attr["label"] == "masks 1"


def test_a_tensor_that_few_read_is_drawn_as_lines():
    assert "tril.0 for" not in to_dot(build(toy(8).trace()))


def test_of_many_outputs_all_but_the_first_are_named_where_they_are_made():
    def drawn(outputs):
        model = Model("Caches")
        x = model.input("x", "B T")
        caches = []
        for i in range(outputs - 1):
            with model.module(f"layers.{i}", "Layer"):
                caches.append(model.op("linear", x, out="B 4 T"))
                x = model.op("relu", x, out="B T")
        model.output(x, *caches)
        return parsed(to_dot(build(model.trace())))

    assert len(drawn(8).in_edges("output")) == 8
    many = drawn(9)
    assert many.in_edges("output") == [("relu_7", "output")]
    assert many.in_edges("output 4") == [("linear_2", "output 4")]
    assert "output 4" in many.get_subgraph("cluster_layers.2#1")


NASTY = [
    'say "hi"',
    "back\\slash",
    "\\N \\G",
    "trailing\\",
    "<b>&amp;</b>",
    "two\nlines",
    "]; }",
    "nul\0byte\x1b[31m",
    "größe_λ",
    "<img src=x onerror=alert(1)>",
]


@pytest.mark.parametrize("name", NASTY)
def test_any_name_is_shown_as_it_is(name):
    model = Model(name)
    x = model.input(name, "B T")
    with model.module(name, name, parameters=3):
        y = model.op(name, x, out="B T", reads=(name,))
        y = model.op(name, y, out="B T")
    with model.module("again", name):
        y = model.op("relu", y, out="B T")
    model.output(y)
    graph = build(model.trace())
    for depth in (None, 1, 0):
        svg = graphviz_svg(to_dot(graph, depth=depth))
        shown = "".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg))
        assert "<img" not in svg and "\x1b" not in svg
        for part in name.replace("\0", "\ufffd").replace("\x1b", "\ufffd").split("\n"):
            assert part in unescape(shown)


def graphviz_svg(dot):
    return parsed(dot).draw(format="svg", prog="dot").decode()


def unescape(text):
    from html import unescape

    return unescape(text).replace("\xa0", " ")


def test_the_graphviz_package_takes_the_source_too():
    assert graphviz.Source(to_dot(build(toy(1).trace()))).source.startswith('digraph "GPT" {')


if __name__ == "__main__":
    GOLDEN.write_text(golden())
