"""Building, collapsing, cutting out and folding graphs."""

import pytest

from shapeflow.errors import DrawError
from shapeflow.graph import build, collapse, edges, fold, inputs_of, nodes, within
from tests.handmade import Model, block, toy


def names(graph):
    return [node.name for node in nodes(graph)]


def arrows(graph):
    """Edges as text, in the order in which they are read."""
    return [f"{edge.source}.{edge.output} -> {edge.target}.{edge.argument}: {edge.shape}" for edge in edges(graph)]


def repeats(graph):
    return {scopes[-1].path: len(copies) for scopes, copies in graph.graph["repeats"].items()}


def test_build_keeps_order_arguments_and_facts():
    graph = build(toy(1).trace())
    assert names(graph)[:4] == ["ids", "embedding", "ones", "tril"]
    assert [str(edge.shape) for edge in inputs_of(graph, "matmul")] == ["B T d_model", "B d_model T"]
    assert graph.graph["name"] == "GPT"
    assert graph.graph["modules"]["blocks.0"].parameters == 12608
    assert graph.nodes["linear"]["node"].operator == "linear"


def test_a_tensor_read_twice_by_one_operator_is_two_edges():
    model = Model("Square")
    x = model.input("x", "B T")
    model.output(model.op("mul", x, x, out="B T"))
    assert arrows(build(model.trace()))[:2] == ["x.0 -> mul.0: B T", "x.0 -> mul.1: B T"]


def test_collapse_to_the_first_level():
    shown = collapse(build(toy(2).trace()), 1)
    assert names(shown) == ["ids", "@embed", "ones", "tril", "@blocks.0", "@blocks.1", "@head", "output"]
    assert arrows(shown) == [
        "ids.0 -> @embed.0: B T",
        "ones.0 -> tril.0: T T",
        "@embed.0 -> @blocks.0.0: B T d_model",
        "tril.0 -> @blocks.0.1: T T",
        "@blocks.0.0 -> @blocks.1.0: B T d_model",
        "tril.0 -> @blocks.1.1: T T",
        "@blocks.1.0 -> @head.0: B T d_model",
        "@head.0 -> output.0: B T vocab",
    ]


def test_a_block_knows_its_operators_parameters_and_outputs():
    shown = collapse(build(toy(1).trace()), 1)
    closed = shown.nodes["@blocks.0"]["node"]
    assert (closed.kind, closed.operators, closed.parameters) == ("module", 13, 12608)
    assert [str(shape) for shape in closed.outputs] == ["B T d_model"]


def test_collapse_to_nothing_leaves_the_whole_model_as_one_node():
    shown = collapse(build(toy(3).trace()), 0)
    assert names(shown) == ["ids", "@", "output"]
    assert shown.nodes["@"]["node"].operators == 2 + 2 + 3 * 13
    assert arrows(shown) == ["ids.0 -> @.0: B T", "@.0 -> output.0: B T vocab"]


def test_a_depth_below_every_module_changes_no_operator_at_the_root():
    graph = build(toy(1).trace())
    assert {"ones", "tril", "add", "add_1"} <= set(names(collapse(graph, 2)))
    assert names(collapse(graph, 9)) == names(graph)
    assert arrows(collapse(graph, 9)) == arrows(graph)


def test_collapse_in_two_steps_is_collapse_in_one():
    graph = build(toy(2).trace())
    steps, once = collapse(collapse(graph, 2), 1), collapse(graph, 1)
    assert list(nodes(steps)) == list(nodes(once))
    assert arrows(steps) == arrows(once)


def test_two_tensors_between_two_modules_are_two_edges_and_one_read_twice_is_one():
    model = Model("Pair")
    x = model.input("x", "B T")
    with model.module("a", "A"):
        first = model.op("relu", x, out="B T")
        second = model.op("gelu", x, out="B T")
    with model.module("b", "B"):
        model.op("mul", first, first, out="B T")
        out = model.op("add", first, second, out="B T")
    model.output(out)
    assert arrows(collapse(build(model.trace()), 1)) == [
        "x.0 -> @a.0: B T",
        "@a.0 -> @b.0: B T",
        "@a.1 -> @b.1: B T",
        "@b.0 -> output.0: B T",
    ]


def test_two_outputs_of_one_operator_stay_two():
    model = Model("Halves")
    with model.module("split", "Split"):
        left = model.op("chunk", model.input("x", "B T"), out=("B T", "B T"))
    model.output(model.op("sub", model.also(left, 1), left, out="B T"))
    assert arrows(collapse(build(model.trace()), 1))[1:3] == ["@split.1 -> sub.0: B T", "@split.0 -> sub.1: B T"]


def test_a_module_called_twice_is_two_blocks():
    model = Model("Shared")
    x = model.input("x", "B T")
    for _ in range(2):
        with model.module("layer", "Layer", parameters=5):
            x = model.op("relu", x, out="B T")
    model.output(x)
    assert names(collapse(build(model.trace()), 1)) == ["x", "@layer", "@layer#2", "output"]


def test_a_negative_depth_is_refused():
    with pytest.raises(DrawError, match=r"depth is -1; it counts levels of modules: 0 .*, 1, 2"):
        collapse(build(toy(1).trace()), -1)


def test_within_a_module_the_outside_becomes_inputs_and_output():
    part = within(build(toy(2).trace()), "blocks.1")
    assert names(part)[:2] == ["tril", "add_1"]
    assert [node.kind for node in nodes(part)][:2] == ["input", "input"]
    assert names(part)[-1] == "output"
    assert len(part) == 3 + 13
    assert arrows(part)[-1] == "add_3.0 -> output.0: B T d_model"
    assert part.graph["name"] == "DecoderBlock"
    assert part.graph["modules"][""].parameters == 12608
    assert "blocks.0" not in part.graph["modules"]
    assert [scope.path for scope in part.nodes["softmax_1"]["node"].scopes] == ["blocks.1.attn"]


def test_within_a_module_called_twice_shows_each_call():
    model = Model("Shared")
    x = model.input("x", "B T")
    for _ in range(2):
        with model.module("layer", "Layer"):
            x = model.op("relu", x, out="B T")
    model.output(x)
    part = within(build(model.trace()), "layer")
    assert [node.scopes[0].call for node in nodes(part) if node.kind == "operator"] == [0, 1]


def test_within_a_folded_model_keeps_the_folds_inside():
    model = Model("Nest")
    x = model.input("x", "B T")
    with model.module("stack", "Stack"):
        for i in range(3):
            with model.module(f"stack.{i}", "Layer"):
                x = model.op("relu", x, out="B T")
    model.output(x)
    assert repeats(within(fold(build(model.trace())), "stack")) == {"stack.0": 3}


def test_within_an_unknown_module_names_the_known():
    with pytest.raises(DrawError, match=r"no module 'block' ran; modules that did: embed, blocks\.0, blocks\.0\.ln"):
        within(build(toy(1).trace()), "block")


def test_equal_blocks_fold_to_one():
    folded = fold(build(toy(12).trace()))
    assert repeats(folded) == {"blocks.0": 12}
    alone = build(toy(1).trace())
    assert arrows(folded) == [
        *arrows(alone)[:-2],
        "add_1.0 -> linear_36.0: B T d_model",
        "linear_36.0 -> output.0: B T vocab",
    ]
    assert repeats(alone) == {}


def test_fold_then_collapse_draws_one_block():
    shown = collapse(fold(build(toy(12).trace())), 1)
    assert names(shown) == ["ids", "@embed", "ones", "tril", "@blocks.0", "@head", "output"]


def test_collapse_then_fold_gives_the_same_picture():
    graph = build(toy(12).trace())
    assert arrows(fold(collapse(graph, 1))) == arrows(collapse(fold(graph), 1))


def test_fold_twice_is_fold_once():
    once = fold(build(toy(4).trace()))
    assert names(fold(once)) == names(once)
    assert repeats(fold(once)) == repeats(once)


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({"norm": "rms_norm"}, {"blocks.1": 2}),
        ({}, {"blocks.0": 3}),
    ],
    ids=["another operator", "equal"],
)
def test_a_block_that_differs_stays_on_its_own(change, kept):
    model = Model("GPT", d_model=32, d_ff=128)
    x, mask = model.input("x", "B T d_model"), model.input("mask", "T T:bool")
    x = block(model, "blocks.0", x, mask, **change)
    for i in (1, 2):
        x = block(model, f"blocks.{i}", x, mask)
    model.output(x)
    assert repeats(fold(build(model.trace()))) == kept


def chain(*widths, reads=None):
    """Layers one after the other; `reads` gives for each the layer that it reads instead of the one before."""
    model = Model("Chain", d_model=8, d_ff=16)
    outs = [model.input("x", f"B {widths[0]}")]
    for i, width in enumerate(widths[1:]):
        with model.module(f"layers.{i}", "Layer"):
            source = outs[reads[i]] if reads else outs[-1]
            outs.append(model.op("tanh", source, out=f"B {width}"))
    model.output(outs[-1])
    return fold(build(model.trace()))


def test_other_shapes_do_not_fold():
    assert repeats(chain("d_model", "d_model", "d_model", "d_ff", "d_ff")) == {"layers.0": 2}


def test_branches_from_one_tensor_fold():
    assert repeats(chain(*["d_model"] * 5, reads=[0, 0, 0, 0])) == {"layers.0": 4}


def test_a_chain_that_turns_into_branches_does_not_fold_as_one():
    assert repeats(chain(*["d_model"] * 5, reads=[0, 1, 2, 2])) == {"layers.0": 3}


def test_a_skip_over_a_layer_is_not_a_chain():
    assert repeats(chain(*["d_model"] * 5, reads=[0, 1, 2, 1])) == {"layers.0": 3}


def test_an_operator_between_two_equal_modules_parts_them():
    model = Model("Parted")
    x = model.input("x", "B T")
    for i in range(2):
        with model.module(f"layers.{i}", "Layer"):
            x = model.op("tanh", x, out="B T")
        x = model.op("relu", x, out="B T")
    model.output(x)
    assert repeats(fold(build(model.trace()))) == {}


def test_equal_stages_of_equal_layers_fold_at_both_levels_and_unequal_ones_only_inside():
    def stages(*lengths):
        model = Model("Stages")
        x = model.input("x", "B T")
        for i, length in enumerate(lengths):
            with model.module(f"stages.{i}", "Stage"):
                for j in range(length):
                    with model.module(f"stages.{i}.{j}", "Layer"):
                        x = model.op("tanh", x, out="B T")
        model.output(x)
        return repeats(fold(fold(build(model.trace()))))

    assert stages(3, 3) == {"stages.0": 2, "stages.0.0": 3}
    assert stages(2, 3) == {"stages.0.0": 2, "stages.1.0": 3}


def test_sizes_that_only_exist_inside_each_block_do_not_keep_them_apart():
    model = Model("Chosen")
    x = model.input("x", "B T")
    for i in range(3):
        with model.module(f"layers.{i}", "Layer"):
            chosen = model.op("nonzero", x, out=f"n{i}")
            x = model.op("scatter", x, chosen, out="B T")
    model.output(x)
    assert repeats(fold(build(model.trace()))) == {"layers.0": 3}


def test_every_copy_keeps_its_own_input():
    model = Model("Caches")
    x = model.input("x", "B T")
    caches = [model.input(f"cache_{i}", "B T") for i in range(3)]
    for i, cache in enumerate(caches):
        with model.module(f"layers.{i}", "Layer"):
            x = model.op("add", x, cache, out="B T")
    model.output(x)
    folded = fold(build(model.trace()))
    assert [edge.source for edge in edges(folded) if edge.target == "add"] == ["x", "cache_0", "cache_1", "cache_2"]


def test_tensors_that_leave_every_copy_become_one_edge():
    model = Model("States")
    states = [model.input("x", "B T")]
    for i in range(4):
        with model.module(f"layers.{i}", "Layer"):
            states.append(model.op("tanh", states[-1], out="B T"))
    model.output(*states)
    assert arrows(fold(build(model.trace()))) == [
        "x.0 -> tanh.0: B T",
        "x.0 -> output.0: B T",
        "tanh.0 -> output.1: B T",
    ]
