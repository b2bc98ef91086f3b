"""What fits one page: bundled ends, modules opened within the budget, bookkeeping gathered; and the residual stream."""

import pytest

from shapeflow.draw.legend import size_of
from shapeflow.graph import build, edges, fold, nodes
from shapeflow.graph.ends import bundle, spoken, stem
from shapeflow.graph.flow import members_of
from shapeflow.graph.page import PAGE, Budget, arrange, gather, join_views, levels, one_page, rows
from shapeflow.graph.spine import spine
from tests.handmade import Model, toy


def page_of(graph, budget=PAGE):
    return one_page(bundle(graph), budget)


def names(graph):
    return [node.name for node in nodes(graph)]


def arrows(graph):
    return [f"{edge.source} -> {edge.target}: {edge.shape}" for edge in edges(graph)]


def cached(layers, *, read=False):
    """Layers that each hand out two tensors for a cache, and with `read` take two in."""
    model = Model("Cached")
    x = model.input("x", "B T")
    made = []
    for i in range(layers):
        past = [model.input(f"past[{i}].{part}", "B P") for part in ("keys", "values")] if read else []
        with model.module(f"layers.{i}", "Layer"):
            pair = [model.op("linear", x, *past, out="B T 4") for _ in range(2)]
            x = model.op("sdpa", x, *pair, out="B T")
        made += pair
    model.output(x, *made)
    model.output_names = ("logits", *(f"cache[{i}].{part}" for i in range(layers) for part in ("keys", "values")))
    return build(model.trace())


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("logits", "logits"),
        ("cache.layers[0].keys", "cache"),
        ("past_key_values[11][1]", "past_key_values"),
        ("[3]", ""),
        ("", ""),
        ("x1", "x"),
        ("hidden_states_2", "hidden_states"),
    ],
)
def test_the_stem_is_what_comes_before_the_first_number(name, known):
    assert stem(name) == known


def test_tensors_of_a_cache_are_one_input_and_one_output():
    graph = bundle(cached(12, read=True))
    inputs = [node.name for node in nodes(graph) if node.kind == "input"]
    outputs = [node.name for node in nodes(graph) if node.kind == "output"]
    assert inputs == ["x", "past[0].keys"] and outputs == ["output", "output cache"]
    ends = graph.graph["ends"]
    assert {name: (spoken(ends[name]), len(ends[name])) for name in ends} == {
        "past[0].keys": ("past", 24),
        "output": ("logits", 1),
        "output cache": ("cache", 24),
    }
    assert len([edge for edge in edges(graph) if edge.target == "output cache"]) == 24


def test_a_pair_of_outputs_stays_two_edges_of_one_node():
    model = Model("Pair")
    x = model.input("x", "B T")
    model.output(model.op("mean", x, out="B"), model.op("var", x, out="B"))
    graph = bundle(build(model.trace()))
    assert names(graph) == ["x", "mean", "var", "output"] and graph.graph["ends"] == {}


def test_outputs_that_were_folded_away_are_counted_all_the_same():
    page = page_of(cached(12))
    assert names(page)[-2:] == ["output", "output cache"]
    assert len(page.graph["ends"]["output cache"]) == 24


def deep(blocks, width):
    """Unequal blocks, each of `width` operators of unequal shapes."""
    model = Model("Deep")
    x = model.input("x", "B T")
    for i in range(blocks):
        with model.module(f"blocks.{i}", f"Block{i}"), model.module(f"blocks.{i}.inner", "Inner"):
            for j in range(width):
                x = model.op("conv2d", x, out=f"B {i * width + j + 3}")
            with model.module(f"blocks.{i}.inner.last", "Last"):
                x = model.op("relu", model.op("conv2d", x, out="B T"), out="B T")
    model.output(x)
    return build(model.trace())


@pytest.mark.parametrize(("blocks", "width"), [(3, 2), (3, 7), (5, 11), (20, 3), (1, 60), (70, 1)])
def test_any_model_fits_the_page(blocks, width):
    page = page_of(deep(blocks, width))
    assert len(page) <= PAGE.nodes and rows(page) <= PAGE.rows


def test_modules_open_while_there_is_room():
    graph = build(toy(3).trace())
    assert "softmax" in page_of(graph)
    assert {"@blocks.0.attn", "@blocks.0.ffn", "add_1"} <= set(page_of(graph, Budget(nodes=12, rows=12)))
    assert {"softmax", "@blocks.0.ffn"} <= set(page_of(graph, Budget(nodes=18, rows=16)))  # no module inside: last
    least = page_of(graph, Budget(nodes=8, rows=8))
    assert names(least) == ["ids", "embedding", "tril", "@blocks.0", "linear_9", "output"]


def test_of_modules_of_one_kind_the_first_opens_when_not_all_can():
    page = page_of(deep(1, 2), Budget(9, 9))
    assert names(page) == ["x", "conv2d", "conv2d_1", "conv2d_2", "relu", "output"]
    model = Model("Twins")
    x = model.input("x", "B T")
    for i in range(3):
        with model.module(f"twins.{i}", "Twin"):
            for operator in ("linear", "relu", "tanh"):
                with model.module(f"twins.{i}.{operator}", "Part"):
                    x = model.op(operator, x, out=f"B {i + 2}")
    model.output(x)
    page = page_of(build(model.trace()), Budget(nodes=8, rows=8))
    assert names(page) == ["x", "linear", "relu", "tanh", "@twins.1", "@twins.2", "output"]


def test_what_no_closing_shortens_has_its_middle_left_out():
    model = Model("Long")
    x = model.input("x", "B T")
    for _ in range(100):
        x = model.op("relu", x, out="B T")
    model.output(x)
    page = page_of(build(model.trace()), Budget(nodes=12, rows=12))
    assert len(page) == 12
    (left_out,) = [node for node in nodes(page) if node.kind == "more"]
    assert left_out.operators == 100 - 9
    assert arrows(page)[0] == "x -> relu: B T" and arrows(page)[-1] == "relu_99 -> output: B T"


def test_a_page_that_would_be_all_but_empty_shows_a_long_module_without_its_middle():
    """VGG: 31 layers in a row in one module."""
    model = Model("VGG")
    x = model.input("x", "B T")
    with model.module("features", "Sequential"):
        for i in range(31):
            with model.module(f"features.{i}", f"Layer{i}"):
                x = model.op("conv2d" if i % 2 else "relu", x, out=f"B {i + 3}")
    model.output(x)
    page = page_of(build(model.trace()))
    assert rows(page) <= PAGE.rows and len(page) > 20
    (left_out,) = [node for node in nodes(page) if node.kind == "more"]
    assert [scope.path for scope in left_out.scopes] == ["features"]


def test_operators_that_sizes_alone_feed_are_one_node():
    graph = gather(fold(build(toy(2).trace())))
    (made,) = [node for node in nodes(graph) if node.kind == "made"]
    assert (made.name, made.operators, [str(shape) for shape in made.outputs]) == ("tril", 2, ["T T"])
    assert "ones" not in graph and "tril -> masked_fill: T T" in arrows(graph)


def test_what_makes_no_number_and_nobody_reads_is_not_on_the_page():
    """BART: a slice of the embedding for its dtype alone, and the indices of heads of a mask without heads."""
    model = Model("Unread")
    x = model.input("x", "B T")
    model.op("getitem", model.op("unsqueeze", x, out="B 1 T"), out="B 1")
    model.op("add", model.op("arange", out="T"), out="T")
    model.op("matmul", x, x, out="B B")  # work that is done in vain is told
    model.output(model.op("relu", x, out="B T"))
    graph = build(model.trace())
    page = page_of(graph)
    assert names(page) == ["x", "matmul", "relu", "output"]
    assert size_of(page) == size_of(graph) == "0 parameters, 6 operators"


def test_tensors_made_alike_for_each_copy_of_a_block_are_one_node():
    """Gemma 3: a scalar of its own for each layer's sliding window."""
    model = Model("Windows")
    x = model.input("x", "B T")
    scalars = [model.op("tensor", out="") for _ in range(5)]
    for i, scalar in enumerate(scalars):
        with model.module(f"layers.{i}", "Layer"):
            x = model.op("relu", model.op("add", x, scalar, out="B T"), out="B T")
    model.output(x)
    (made,) = [node for node in nodes(page_of(build(model.trace()))) if node.kind == "made"]
    assert (made.operators, made.words) == (5, ("tensor",))


def test_views_in_a_row_are_one_node_while_one_reader_follows():
    model = Model("Views")
    x = model.input("x", "B T")
    heads = model.op("transpose", model.op("view", x, out="B T 2 4"), out="B 2 T 4")
    model.output(model.op("add", heads, model.op("permute", model.op("relu", heads, out="B"), out="B"), out="B"))
    graph = join_views(build(model.trace()))
    assert names(graph) == ["x", "view", "relu", "permute", "add", "output"]
    assert graph.nodes["view"]["node"].words == ("view", "transpose")
    assert [str(shape) for shape in graph.nodes["view"]["node"].outputs] == ["B 2 T 4"]


def test_depth_is_taken_as_it_is_said_and_unfold_keeps_every_block():
    graph = build(toy(12).trace())
    assert names(arrange(graph, depth=1)) == ["ids", "embedding", "ones", "tril", "@blocks.0", "linear_36", "output"]
    assert len([name for name in arrange(graph, depth=1, unfold=True) if name.startswith("@blocks")]) == 12
    assert names(arrange(graph, unfold=True)) == names(graph)
    assert names(arrange(graph, depth=0)) == ["ids", "@", "output"]
    assert names(levels(graph, 9)) == names(graph)


def test_a_drawn_node_knows_what_it_stands_for():
    graph = build(toy(12).trace())
    page = arrange(graph, depth=2)
    assert {"softmax_7", "softmax"} <= set(members_of(page, "@blocks.0.attn"))
    assert members_of(page, "add_1") == tuple(f"add_{i}" for i in range(1, 24, 2))
    assert members_of(page, "embedding") == ("embedding",)
    assert sorted(name for node in page for name in members_of(page, node)) == sorted(graph)
    assert members_of(page_of(graph), "tril") == ("ones", "tril")


def test_the_residual_stream_runs_from_the_input_to_the_output():
    assert spine(build(toy(2).trace())) == [
        ("ids", "embedding", "add", "add_1", "add_2", "add_3", "linear_6", "output")
    ]


def test_a_norm_behind_each_sum_is_on_the_stream():
    model = Model("Post")
    x = model.input("x", "B T")
    for _ in range(2):
        x = model.op("add", x, model.op("linear", x, out="B T"), out="B T")
        x = model.op("layer_norm", x, out="B T")
    model.output(x)
    assert spine(build(model.trace())) == [("x", "add", "layer_norm", "add_1", "layer_norm_1", "output")]


def test_a_sum_of_two_branches_is_no_stream():
    model = Model("Sum")
    x = model.input("x", "B T")
    model.output(model.op("add", model.op("relu", x, out="B T"), model.op("tanh", x, out="B T"), out="B T"))
    assert spine(build(model.trace())) == []


def test_a_shortcut_with_a_projection_does_not_stop_the_stream():
    """ResNet: the first block of each stage projects its shortcut, so neither input of its sum comes from the other."""
    model = Model("Net")
    x = model.input("x", "B T")
    for projects in (False, True, False):
        short = model.op("conv2d", x, out="B T") if projects else x
        x = model.op("add", model.op("relu", x, out="B T"), short, out="B T")
    model.output(x)
    (chain,) = spine(build(model.trace()))
    assert chain[:2] == ("x", "add") and chain[-3:] == ("add_1", "add_2", "output")
