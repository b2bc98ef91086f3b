"""A graph written to JSON and read back; files that are something else, or damaged."""

import json
import re
from pathlib import Path

import jsonschema
import pytest
import torch
from torch import nn

import shapeflow as sf
from models.gpt import toy as gpt
from shapeflow.dims.expr import Expr, maximum, minimum
from shapeflow.dims.tree import from_tree, to_tree
from shapeflow.errors import FormatError
from shapeflow.graph import build, collapse, edges, fold, from_json, load, nodes, to_json
from shapeflow.graph.ends import bundle
from shapeflow.graph.page import one_page
from tests.handmade import toy

SCHEMA = json.loads((Path(sf.__file__).parent / "graph" / "schema.json").read_text())
jsonschema.Draft202012Validator.check_schema(SCHEMA)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


class Chosen(nn.Module):
    """A size that only values decide, a branch on values, and a size that the code names."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        kept = x[x > 0]
        if x.sum() > 0:
            kept = kept * 2
        return kept, x.flatten()[: x.shape[0] // 2]


def convolutions() -> nn.Module:
    layers = [nn.Conv2d(3, 3, 3, stride=2, padding=1) for _ in range(3)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 5))


def unnamed(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(x, (1, 1)).view(-1)


TRACES = {
    "gpt": lambda: sf.trace(gpt()),
    "function": lambda: sf.trace(unnamed, "B T"),
    "values": lambda: sf.trace(Chosen(), "B T"),
    "convolutions": lambda: sf.trace(convolutions(), "B 3 H W"),
    "lstm": lambda: sf.trace(nn.LSTM(5, 7, batch_first=True), "B T 5"),
    "encoder": lambda: sf.trace(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), "B T 32"),
    "sized": lambda: sf.trace(gpt()).at(B=2, T=5),
}


def same(a, b):
    """Whether two graphs hold the same: nodes, edges, facts, and all of it in the same order."""
    assert list(nodes(a)) == list(nodes(b))
    assert list(edges(a)) == list(edges(b))
    assert a.graph == {name: b.graph[name] for name in a.graph}
    assert b.graph.keys() - a.graph.keys() <= {"groups", "standing", "unread"}, "how it was folded is not saved"
    assert [list(a.graph[name]) for name in ("modules", "parameters", "dims", "repeats")] == [
        list(b.graph[name]) for name in ("modules", "parameters", "dims", "repeats")
    ]
    return True


@pytest.mark.parametrize("trace", TRACES.values(), ids=TRACES)
def test_a_trace_comes_back_equal(trace, tmp_path: Path) -> None:
    made = trace()
    made.save(tmp_path / "x.json")
    graph = load(tmp_path / "x.json")
    assert same(graph, made.to_networkx())
    VALIDATOR.validate(json.loads((tmp_path / "x.json").read_text()))
    assert to_json(graph) == (tmp_path / "x.json").read_text(), "a saved trace is saved again as it is"


def test_arguments_are_values_for_programs(tmp_path: Path) -> None:
    sf.trace(convolutions(), "B 3 H W").save(tmp_path / "x.json")
    document = json.loads((tmp_path / "x.json").read_text())
    first = next(node for node in document["nodes"] if node["operator"] == "conv2d")
    assert first["arguments"] == {"stride": [2, 2], "padding": [1, 1], "dilation": [1, 1], "groups": 1}


def test_infinite_numbers_and_sizes_among_the_arguments_come_back() -> None:
    trace = sf.trace(lambda x: x.masked_fill(x > float("inf"), float("nan")).view(x.shape[0], -1), "B T 8")
    text = to_json(trace.to_networkx())
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    found = {node.operator: dict(node.arguments) for node in nodes(from_json(text))}
    assert found["gt"] == {"other": float("inf")} and str(found["masked_fill"]["value"]) == "nan"
    assert found["view"] == {"size": (Expr.symbol("B"), -1)}


def test_names_that_the_trace_made_come_back() -> None:
    text = to_json(sf.trace(Chosen(), "B T").to_networkx())
    graph = from_json(text)
    assert list(graph.graph["fresh"].values()) == ["nonzero"]
    assert graph.graph["assumptions"]


@pytest.mark.parametrize(
    "change",
    [fold, one_page, bundle, lambda graph: collapse(graph, 1), lambda graph: collapse(fold(graph), 1)],
    ids=["folded", "page", "bundled", "closed", "folded and closed"],
)
def test_folded_and_closed_graphs_come_back_equal(change) -> None:
    graph = change(build(toy(30).trace()))
    VALIDATOR.validate(json.loads(to_json(graph)))
    assert same(from_json(to_json(graph)), graph)


@pytest.fixture(scope="module")
def live():
    return sf.trace(gpt())


@pytest.fixture(scope="module")
def again(live, tmp_path_factory: pytest.TempPathFactory) -> sf.SavedTrace:
    path = tmp_path_factory.mktemp("saved") / "gpt.json"
    live.save(path, flops=True)
    VALIDATOR.validate(json.loads(path.read_text()))
    return load(path)


FILES = [("x.svg", {}), ("x.dot", {"sizes": {"B": 2, "T": 5}, "flops": True}), ("x.dot", {"unfold": True, "depth": 2})]
FILES += [("x.dot", {"theme": "dark", "parameters": True}), ("x.mmd", {"depth": 1}), ("x.mmd", {}), ("x.graphml", {})]
FILES += [("x.html", {}), ("x.html", {"sizes": {"B": 2}, "depth": 1, "theme": "dark"}), ("x.html", {"flops": False})]
FILES += [("x.json", {"flops": True}), ("x.json", {"flops": False}), ("x.json", {"depth": 1, "flops": True})]


@pytest.mark.parametrize(("name", "options"), FILES, ids=str)
def test_what_is_drawn_of_a_saved_trace_is_what_the_live_one_draws(live, again, name: str, options, tmp_path: Path):
    (tmp_path / "live").mkdir()
    live.save(tmp_path / "live" / name, **options)
    again.save(tmp_path / name, **options)
    assert (tmp_path / name).read_bytes() == (tmp_path / "live" / name).read_bytes()


def test_a_saved_trace_prints_and_shows_itself_as_the_live_one(live, again) -> None:
    assert str(again) == str(live)
    assert again.to_dot(depth=1) == live.to_dot(depth=1)
    assert again._repr_svg_() == live._repr_svg_() == again.draw()._repr_svg_()
    assert again._repr_mimebundle_()["text/plain"] == "<Saved trace of GPT: 116 nodes, B >= 2, 2 <= T <= 64>"


def test_findings_are_marked_in_a_saved_trace(live, again) -> None:
    where = next(node.location for node in live.nodes if node.operator == "softmax")
    report = sf.Report("GPT", (sf.Problem("SF306", "error", "softmax", file=where.file, line=where.line),))
    assert again.to_dot(report=report) == live.to_dot(report=report) != live.to_dot()


def test_what_modules_cost_has_to_be_saved(live, tmp_path: Path) -> None:
    live.save(tmp_path / "gpt.json")
    plain = load(tmp_path / "gpt.json")
    with pytest.raises(
        sf.DrawError, match=r'saved trace of GPT holds no FLOPs: save it .* trace.save\("x.json", flops'
    ):
        plain.save(tmp_path / "x.dot", flops=True)
    plain.save(tmp_path / "x.html")
    assert '"counted":false' in (tmp_path / "x.html").read_text()


def test_a_definition_comes_back() -> None:
    model = toy(1)
    model.dims = {**model.dims, "H1": (Expr.symbol("T") + 7) // 8, "d_head": Expr.symbol("d_model", 32) // 4}
    graph = build(model.trace())
    again = from_json(to_json(graph))
    assert again.graph["dims"] == graph.graph["dims"]
    assert str(again.graph["dims"]["H1"]) == "(T - 1)//8 + 1"


def test_depth_and_the_same_bytes(tmp_path: Path) -> None:
    trace = sf.trace(gpt())
    trace.save(tmp_path / "whole.json")
    trace.save(tmp_path / "again.json")
    sf.trace(gpt()).save(tmp_path / "anew.json")
    whole = (tmp_path / "whole.json").read_bytes()
    assert whole == (tmp_path / "again.json").read_bytes() == (tmp_path / "anew.json").read_bytes()
    trace.save(tmp_path / "closed.json", depth=1)
    assert [node.name for node in nodes(load(tmp_path / "closed.json"))][1] == "@tokens"


B, T, d = Expr.symbol("B"), Expr.symbol("T"), Expr.symbol("d", 32)
SIZES = [
    Expr.const(0),
    Expr.const(-7),
    Expr.const(10**40),
    B,
    d,
    -B,
    B**3 * T - 4 * d**2 + 1,
    (B * T + 7) // 8,
    ((T - 1) // 2 + 1) // (B + 3),
    (T + 5) % 7,
    maximum(T - 3, B),
    minimum(maximum(T - 3, B), 5 * d),
    Expr.symbol("length of x"),
    Expr.symbol("="),
]


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_size_is_exact(size: Expr) -> None:
    tree = json.loads(json.dumps(to_tree(size)))
    assert from_tree(tree) is size
    jsonschema.Draft202012Validator({**SCHEMA["$defs"]["tree"], "$defs": SCHEMA["$defs"]}).validate(tree)


def test_a_free_name_and_a_pinned_one_stay_two() -> None:
    assert from_tree(["=", "d", 32]) is not from_tree("d")


NO_SIZES = [None, True, 1.5, "", [], {}, [3], ["+"], ["//", "B"], ["//", "B", 0], ["%", "B", 0], ["^", "B", -1]]
NO_SIZES += [["^", "B", "B"], ["=", "d"], ["=", "d", "e"], ["=", "", 3], ["max", 1, 1], ["/", 1, 2], ["+", ["?"]]]


@pytest.mark.parametrize("tree", NO_SIZES, ids=str)
def test_what_is_no_size(tree) -> None:
    with pytest.raises(ValueError, match=r"no (size|power|name with a value)"):
        from_tree(tree)


def document():
    return json.loads(to_json(build(toy(1).trace())))


def changed(*path, value):
    """A document with one value replaced, or dropped where the value is `...`."""
    whole = document()
    place = whole
    for key in path[:-1]:
        place = place[key]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return json.dumps(whole)


DAMAGED = [
    ("", r"gpt.json is no saved graph: it is empty"),
    ("model.pt?", r"gpt.json is no saved graph: it is no JSON \(Expecting value"),
    ('{"format": "shapeflow gra', "it is no JSON"),
    (
        to_json(build(toy(1).trace()))[:5000],
        r"gpt.json is no saved graph: it ends in the middle of line \d+; save or copy",
    ),
    ("9" * 5000, "it is no JSON"),
    ("[" * 100_000, "nested too deep"),
    ("[1, 2]", r'it lacks "format": "shapeflow graph"; trace.save\("x.json"\) writes one'),
    ('{"version": 1, "ok": true, "targets": []}', 'it lacks "format"'),
    (changed("version", value=9), r"version 9 .* written by shapeflow .*; this is .* reads version 1: upgrade it"),
    (changed("version", value="1"), "version is a text; it has to be a whole number"),
    (changed("version", value=True), "version is true or false; it has to be a whole number"),
    (changed("version", value=0), "version is 0; versions start at 1"),
    (changed("nodes", value=...), r"gpt.json: nodes is missing"),
    (changed("nodes", value={}), "nodes is an object; it has to be a list"),
    (changed("nodes", 2, "name", value=...), r"nodes\[2\]\.name is missing"),
    (changed("nodes", 2, "name", value=None), r"nodes\[2\]\.name is null; it has to be a text"),
    (changed("nodes", 2, "name", value="ids"), r"nodes\[2\]\.name is 'ids', the name of an earlier node"),
    (changed("nodes", 2, "kind", value="box"), r"nodes\[2\]\.kind is 'box'; it has to be input, operator"),
    (changed("nodes", 1, "outputs", 0, "dims", 1, value=["//", "T", 0]), r"nodes\[1\]\.outputs\[0\]\.dims\[1\] does"),
    (changed("nodes", 1, "location", value="x.py"), r"nodes\[1\]\.location is a text; it has to be an object"),
    (changed("edges", 3, "source", value="gone"), r"edges\[3\]\.source is 'gone', and no node has that name"),
    (changed("edges", 3, "argument", value=0.5), r"edges\[3\]\.argument is a fraction; it has to be a whole number"),
    (changed("nodes", 1, "arguments", value=[]), r"nodes\[1\]\.arguments is a list; it has to be an object"),
    (changed("nodes", 1, "arguments", value={"p": None}), r"arguments\.p is null; it has to be a number, a text, true"),
    (
        changed("nodes", 1, "arguments", value={"p": {"float": "1"}}),
        r"arguments\.p\.float is '1'; it has to be inf, -inf",
    ),
    (changed("modules", 0, "parameters", value=None), r"modules\[0\]\.parameters is null"),
    (changed("operations", value={"flops": {"exp": 3}, "unknown": []}), r"operations\.flops\.exp is a whole number"),
    (changed("dims", value=[]), "dims is a list; it has to be an object"),
]


@pytest.mark.parametrize(("text", "message"), DAMAGED, ids=[message for _, message in DAMAGED])
def test_a_file_that_is_wrong_is_told(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "gpt.json").write_text(text)
    with pytest.raises(FormatError, match=message):
        load(tmp_path / "gpt.json")


@pytest.mark.parametrize(("text", "message"), DAMAGED[12:], ids=[message for _, message in DAMAGED[12:]])
def test_what_the_reader_refuses_the_schema_refuses_as_far_as_it_can(text: str, message: str) -> None:
    beyond = re.search("earlier node|no node has|does", message)  # names across the file; a division by zero
    assert VALIDATOR.is_valid(json.loads(text)) is bool(beyond)


def test_fields_that_are_not_known_are_passed_over() -> None:
    whole = document() | {"flops": 12}
    whole["nodes"][0]["cost"] = 3
    assert same(from_json(json.dumps(whole)), build(toy(1).trace()))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"gone\.json cannot be read: No such file"):
        load(tmp_path / "gone.json")
    with pytest.raises(FormatError, match=r"cannot be read: Is a directory"):
        load(tmp_path)
    (tmp_path / "picture.json").write_bytes(b"\x89PNG\r\n\xff")
    with pytest.raises(FormatError, match=r"picture\.json is no saved graph: it is no text in UTF-8"):
        load(tmp_path / "picture.json")
