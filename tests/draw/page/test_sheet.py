"""Sheets: one for each distinct module, and how their items hang together."""

import networkx as nx
import pytest

from shapeflow.dims.expr import Expr
from shapeflow.draw.page.sheet import sheets_of
from shapeflow.graph import build, fold, nodes
from tests.handmade import Model, block, toy


def kinds(graph: nx.MultiDiGraph) -> list[str]:
    return [sheet.kind for sheet in sheets_of(fold(graph))]


@pytest.mark.parametrize("layers", [1, 2, 48])
def test_equal_blocks_share_their_sheets(layers):
    assert kinds(build(toy(layers).trace())) == ["GPT", "DecoderBlock", "FeedForward", "Attention"]


def test_equal_modules_that_are_no_neighbours_share_a_sheet():
    model = Model("GPT", d_model=32, d_ff=128)
    x, mask = model.input("x", "B T d_model"), model.input("mask", "T T:bool")
    for path, norm in [("a", "layer_norm"), ("b", "rms_norm"), ("c", "layer_norm"), ("d", "rms_norm")]:
        x = block(model, path, x, mask, norm=norm)
    model.output(x)
    root, *others = sheets_of(fold(build(model.trace())))
    a, b, c, d = (item.sheet for item in root.items if item.type == "module")
    assert a == c != b == d
    assert [sheet.kind for sheet in others].count("DecoderBlock") == 2


def test_a_module_of_another_shape_has_a_sheet_of_its_own():
    model = Model("Net")
    x = model.input("x", "B 4")
    for path, out in [("a", "B 8"), ("b", "B 16"), ("c", "B 8")]:
        with model.module(path, "Part"):
            x = model.op("relu", model.op("linear", x, out=out), out=out)
    model.output(x)
    assert kinds(build(model.trace())).count("Part") == 3, "the inputs differ, 4, 8 and 16"


def test_modules_that_differ_in_arguments_share_a_sheet_that_tells_all():
    model = Model("Net")
    x = model.input("x", "B 4")
    given = {}
    for path, dilation in [("a", 1), ("b", 2)]:
        with model.module(path, "Part"):
            x = model.op("exp", model.op("conv1d", x, out="B 4"), out="B 4")
        given[model.nodes[-2].name] = (("dilation", (str(dilation),)),)
        x = model.op("sin", x, out="B 4")
    model.output(x)
    _, *others = sheets_of(fold(build(model.trace())), arguments=given)
    assert [sheet.kind for sheet in others] == ["Part"]
    assert [item.arguments for item in others[0].items if item.operator == "conv1d"] == [(("dilation", ("1", "2")),)]


def test_items_of_a_block():
    sheets = sheets_of(fold(build(toy(3).trace())))
    block_sheet = sheets[1]
    assert [(item.type, item.title) for item in block_sheet.items] == [
        ("entry", "in 1"),
        ("entry", "in 2"),
        ("leaf", "ln"),
        ("module", "attn"),
        ("operator", "add"),
        ("module", "ffn"),
        ("operator", "add"),
        ("exit", "out"),
    ]
    wires = [(wire.source, wire.target, [str(shape) for _, _, shape in wire.tensors]) for wire in block_sheet.wires]
    assert (1, 3, ["T T"]) in wires, "the mask goes to the attention, as its second input"
    (mask,) = [wire for wire in block_sheet.wires if (wire.source, wire.target) == (1, 3)]
    assert mask.tensors[0][1] == 1
    assert block_sheet.operators == 13
    assert sheets[0].operators == 13 * 3 + 4


def test_operations_are_summed_over_copies():
    graph = fold(build(toy(3).trace()))
    one = {node.name: Expr.symbol("B") for node in nodes(graph) if node.kind == "operator"}
    sheets = sheets_of(graph, one)
    assert [str(sheet.flops) for sheet in sheets] == ["43*B", "13*B", "3*B", "7*B"]


def test_a_tensor_that_is_read_twice_is_one_wire_with_both_arguments():
    model = Model("Square")
    x = model.input("x", "B 4")
    model.output(model.op("mul", x, x, out="B 4"))
    (sheet,) = sheets_of(build(model.trace()))
    assert [[tensor[:2] for tensor in wire.tensors] for wire in sheet.wires] == [[(0, 0), (0, 1)], [(0, 0)]]


def test_a_module_that_is_called_twice_counts_its_calls():
    model = Model("Twice")
    x = model.input("x", "B 4")
    y = model.op("relu", x, out="B 4")
    for z in (x, y):
        with model.module("layer", "Layer"):
            out = model.op("exp", model.op("sin", z, out="B 4"), out="B 4")
        x = model.op("neg", out, out="B 4")
    model.output(x)
    root, *others = sheets_of(fold(build(model.trace())))
    assert [(item.title, item.call) for item in root.items if item.type == "module"] == [("layer", 0), ("layer", 1)]
    assert [sheet.kind for sheet in others] == ["Layer"]


def test_parameters_are_named_from_the_sheet_and_tied_ones_from_the_model():
    model = Model("Tied")
    ids = model.input("ids", "B T:int64")
    with model.module("body", "Body"):
        x = model.op("embedding", ids, out="B T 8", reads=("body.table.weight",))
        x = model.op("linear", x, out="B T 8", reads=("head.weight",))
    model.output(x)
    _, body = sheets_of(build(model.trace()))
    names = [name for item in body.items for name, _ in item.reads]
    assert [(name.text, name.below) for name in names] == [("table.weight", True), ("head.weight", False)]
