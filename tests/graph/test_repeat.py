"""Groups of different neighbours that repeat: layers that alternate, and layers with operators of the loop between."""

import networkx as nx
import pytest

from shapeflow.draw.label import parameters_of, title_of
from shapeflow.draw.legend import size_of
from shapeflow.graph import build, collapse, edges, fold, nodes
from shapeflow.graph.flow import members_of
from shapeflow.graph.page import arrange, one_page
from shapeflow.graph.period import Item, Read, Run, runs
from tests.handmade import Model


def repeats(graph):
    """What is drawn how often, by its title."""
    return {title_of(graph, scopes): len(copies) for scopes, copies in graph.graph["repeats"].items()}


def layers(kinds, *, masks=None, sums=False):
    """A layer for each letter, which alone tells its operators; `masks` (a letter each) tell which mask it reads."""
    model = Model("Layers", d_model=8)
    x = model.input("x", "B T d_model")
    known = {name: model.input(f"mask_{name}", "T T:bool") for name in sorted(set(masks or ""))}
    for i, kind in enumerate(kinds):
        before = x
        with model.module(f"layers.{i}", f"Layer{kind.upper()}", parameters=72):
            read = [known[masks[i]]] if masks else []
            x = model.op("linear", x, out="B T d_model", reads=(f"layers.{i}.weight",))
            for operator in ("sdpa", f"act_{kind}"):
                x = model.op(operator, x, *read, out="B T d_model")
        if sums:
            x = model.op("add", before, x, out="B T d_model")
    model.output(x)
    return build(model.trace())


@pytest.mark.parametrize(
    ("kinds", "found"),
    [
        ("abababab", {"layers.0 to layers.7": 4}),
        ("aaabaaab", {"layers.0 to layers.7": 2, "layers.0 to layers.2": 3}),
        ("caaaaabaaaaabaa", {"layers.1 to layers.12": 2, "layers.1 to layers.5": 5, "layers.13 to layers.14": 2}),
        ("aababab", {"layers.1 to layers.6": 3}),
        ("abcabcabcd", {"layers.0 to layers.8": 3}),
        ("abcd", {}),
        ("aabb", {"layers.0 to layers.1": 2, "layers.2 to layers.3": 2}),
    ],
)
def test_layers_of_several_kinds_fold_in_groups(kinds, found):
    assert repeats(fold(layers(kinds))) == found


@pytest.mark.parametrize(
    ("masks", "found"),
    [
        ("aaaaaa", {"layers.0 to layers.5": 6}),
        ("ababab", {"layers.0 to layers.5": 3}),  # a window, full attention, and so on
        ("aaabaaab", {"layers.0 to layers.7": 2, "layers.0 to layers.2": 3}),
        ("abaabbbaab", {"layers.0 to layers.9": 10}),  # without an order: better than ten blocks that are equal inside
    ],
)
def test_layers_that_differ_in_the_mask_alone_fold(masks, found):
    folded = fold(layers("x" * len(masks), masks=masks))
    assert repeats(folded) == found
    assert {edge.source for edge in edges(folded) if edge.source.startswith("mask")} == {
        "mask_a",
        *(["mask_b"] if "b" in masks else []),
    }


def test_layers_of_a_group_fold_with_a_tensor_that_each_has_for_itself():
    """Gemma 3: a scalar for the window of each of five local layers, none for the global one."""
    model = Model("Gemma")
    x = model.input("x", "B T 8")
    windows = [model.op("tensor", out="1") for _ in range(12)]
    for i in range(12):
        own = [] if i % 6 == 5 else [windows[i]]
        with model.module(f"layers.{i}", "Layer"):
            for operator in ("norm", "sdpa", "linear"):
                x = model.op(operator, x, *own, out="B T 8")
    model.output(x)
    assert repeats(fold(build(model.trace()))) == {"layers.0 to layers.11": 2, "layers.0 to layers.4": 5}


def test_two_branches_through_one_dropout_stay_two():
    """DeiT: both heads hung on one box, and nothing told which of them reads which token."""
    model = Model("DeiT")
    x = model.input("x", "B 2 8")
    tokens = [model.op("getitem", x, out="B 8") for _ in range(2)]
    dropped = []
    for token in tokens:
        with model.module("head_drop", "Dropout"):
            dropped.append(model.op("dropout", token, out="B 8"))
    model.output(*dropped)
    assert repeats(fold(build(model.trace()))) == {}


def test_operators_of_the_loop_between_layers_are_in_the_group():
    """The sum of a residual block is often written in the forward of the model."""
    folded = fold(layers("ababab", sums=True))
    assert repeats(folded) == {"layers.0 to layers.5": 3}
    inside = [node.operator for node in nodes(folded) if node.scopes]
    assert inside == ["linear", "sdpa", "act_a", "add", "linear", "sdpa", "act_b", "add"]
    assert members_of(folded, "add") == ("add", "add_2", "add_4")
    assert nx.is_directed_acyclic_graph(folded)


def test_what_is_folded_in_groups_is_counted():
    graph = layers("ababab", sums=True)
    assert size_of(fold(graph)) == size_of(graph)
    folded = fold(graph)
    (group,) = folded.graph["groups"].keys() & {scope for node in nodes(folded) for scope in node.scopes}
    assert (group.kind, parameters_of(folded, group.path)) == ("LayerA, LayerB", 144)


def test_a_group_is_no_level_of_modules():
    graph = layers("abababab")
    assert [node.name for node in nodes(collapse(fold(graph), 1))] == ["x", "@layers.0", "@layers.1", "output"]
    assert [node.name for node in nodes(arrange(graph, depth=1))] == ["x", "@layers.0", "@layers.1", "output"]
    assert len(arrange(graph, depth=1, unfold=True)) == 10


def test_a_group_that_spares_little_is_left_as_it_is():
    model = Model("MLP")
    x = model.input("x", "B 8")
    for i in range(2):
        with model.module(f"layers.{2 * i}", "Linear"):
            x = model.op("linear", x, out="B 8")
        x = model.op("relu", x, out="B 8")
    model.output(x)
    assert repeats(fold(build(model.trace()))) == {}


def test_experts_that_take_what_values_choose_fold_with_the_choosing():
    """Sizes that only values decide have a name for each expert."""
    model = Model("Experts")
    model.fresh = {f"n{i}": "nonzero" for i in range(4)}
    x = model.input("x", "B 8")
    y = model.op("zeros_like", x, out="B 8")
    for i in range(4):
        chosen = model.op("nonzero", x, out=f"n{i}")
        part = model.op("getitem", x, chosen, out=f"n{i} 8")
        with model.module(f"experts.{i}", "Linear", parameters=72):
            part = model.op("linear", part, out=f"n{i} 8")
        y = model.op("index_put", y, chosen, part, out="B 8")
    model.output(y)
    folded = fold(build(model.trace()))
    assert repeats(folded) == {"experts.0 to experts.3": 4}
    assert [node.name for node in nodes(folded)] == [
        "x",
        "zeros_like",
        "nonzero",
        "getitem",
        "linear",
        "index_put",
        "output",
    ]


def test_a_long_row_of_two_kinds_of_layers_fits_a_page():
    page = one_page(layers("ab" * 40, masks="ab" * 40, sums=True))
    assert len(page) < 20
    assert repeats(page) == {"layers.0 to layers.79": 40}


def row(keys, reads):
    """Items of these keys; each reads what the item of this number made, -1 being an input of the model."""
    made = [Read((f"op{i}", 0), (i, 0) if i >= 0 else None) for i in reads]
    return [Item(ord(key), (read,), 3, True) for key, read in zip(keys, made, strict=True)]


@pytest.mark.parametrize(
    ("keys", "reads", "found"),
    [
        ("aaaa", (-1, 0, 1, 2), [Run(0, 1, 4)]),
        ("aaaa", (-1, -1, -1, -1), [Run(0, 1, 4)]),
        ("aaaa", (-1, 0, 1, 1), [Run(0, 1, 3), Run(3, 1, 1)]),
        ("aaaa", (-1, 0, 0, 0), [Run(0, 1, 1), Run(1, 1, 3)]),
        ("abab", (-1, 0, 1, 2), [Run(0, 2, 2)]),
        ("abab", (-1, 0, 1, 1), [Run(i, 1, 1) for i in range(4)]),
        ("abab", (-1, -1, 1, -1), [Run(0, 2, 2)]),
        ("", (), []),
    ],
)
def test_groups_hang_on_each_other_alike(keys, reads, found):
    assert list(runs(row(keys, reads))) == found
