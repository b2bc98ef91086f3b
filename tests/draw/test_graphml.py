"""GraphML, read back by networkx."""

from dataclasses import replace
from pathlib import Path

import networkx as nx
import pytest

import shapeflow as sf
from models.gpt import toy as gpt
from shapeflow.draw.graphml import to_graphml
from shapeflow.graph import build, edges, fold, nodes
from tests.handmade import Model, toy


def test_networkx_reads_back_nodes_edges_and_facts() -> None:
    graph = build(toy(2).trace())
    read = nx.parse_graphml(to_graphml(graph), force_multigraph=True)
    assert list(read) == list(graph)
    assert read.graph["name"] == "GPT"
    assert read.graph["pinned"] == "d_model = 32, d_ff = 128, vocab = 100"
    assert read.nodes["linear"] == {
        "kind": "operator",
        "operator": "linear",
        "module": "blocks.0.attn.qkv",
        "module_kind": "Linear",
        "call": 0,
        "shape": "B T 3*d_model",
        "dtype": "float32",
        "parameters": "blocks.0.attn.qkv.weight",
    }
    arrows = [(edge.source, edge.target, str(edge.shape), edge.output, edge.argument) for edge in edges(graph)]
    found = [
        (source, target, data["shape"], data["output"], data["argument"])
        for source, target, data in read.edges(data=True)
    ]
    assert sorted(found) == sorted(arrows)


def test_a_tensor_read_twice_is_two_edges() -> None:
    model = Model("Square")
    x = model.input("x", "B T")
    model.output(model.op("mul", x, x, out="B T", line=7))
    model.nodes[1] = replace(model.nodes[1], arguments=(("alpha", 2), ("note", "a, b")))
    read = nx.parse_graphml(to_graphml(build(model.trace())), force_multigraph=True)
    assert [read.edges[edge]["argument"] for edge in read.edges if edge[1] == "mul"] == [0, 1]
    assert read.nodes["mul"]["arguments"] == "alpha = 2, note = a, b"
    assert (read.nodes["mul"]["line"], read.nodes["mul"]["file"]) == (7, "models/tiny.py")


def test_closed_modules_tell_their_counts() -> None:
    read = nx.parse_graphml(to_graphml(fold(build(toy(3).trace())), depth=1), force_multigraph=True)
    assert (read.nodes["@blocks.0"]["count"], read.nodes["@blocks.0"]["operators"]) == (12608, 13)
    assert "@blocks.1" not in read


@pytest.mark.parametrize("name", ["<img src=x onerror=alert(1)>", 'a & "b"', "]]>", "line\nbreak", "\x07\x00", "日本"])
def test_any_name_stays_text(name: str) -> None:
    model = Model(name)
    with model.module(name, name):
        model.output(model.op(name, model.input("x", "B T"), out="B T"))
    read = nx.parse_graphml(to_graphml(build(model.trace())), force_multigraph=True)
    shown = name.replace("\x07", "\ufffd").replace("\x00", "\ufffd")
    assert [node["operator"] for _, node in read.nodes(data=True) if node["kind"] == "operator"] == [shown]
    assert read.graph["name"] == shown


def test_a_real_model_with_the_same_bytes(tmp_path: Path) -> None:
    trace = sf.trace(gpt())
    trace.save(tmp_path / "a.graphml")
    sf.trace(gpt()).save(tmp_path / "b.graphml")
    assert (tmp_path / "a.graphml").read_bytes() == (tmp_path / "b.graphml").read_bytes()
    read = nx.read_graphml(tmp_path / "a.graphml")
    assert [read.nodes[node.name]["kind"] for node in nodes(trace.to_networkx())].count("input") == 1
