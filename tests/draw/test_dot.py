"""DOT source: what is drawn how, escaping, references for what fans out, findings."""

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import graphviz
import pygraphviz
import pytest

from shapeflow.check.problem import Problem, Report
from shapeflow.draw import to_dot
from shapeflow.draw.palette import THEMES
from shapeflow.errors import DrawError
from shapeflow.graph import build
from shapeflow.trace.result import Location
from tests.handmade import Model, toy


def statements(dot):
    """Each node's and edge's statement, without indentation."""
    return [line.strip() for line in dot.splitlines()]


def parsed(dot):
    return pygraphviz.AGraph(string=dot)


def everything(graph, **options):
    return to_dot(graph, unfold=True, **options)


def test_the_same_graph_gives_the_same_text():
    assert to_dot(build(toy(3).trace())) == to_dot(build(toy(3).trace()))


def test_unfolded_every_edge_has_its_shape_and_nothing_is_lost():
    graph = build(toy(3).trace())
    drawn = parsed(everything(graph))
    titles = [name for name in drawn.nodes() if name.startswith("title ")]
    references = [name for name in drawn.nodes() if " for " in name]
    assert len(drawn.nodes()) == len(graph) + len(titles) + len(references)
    assert sorted(edge.attr["label"].strip() for edge in drawn.edges() if edge.attr["style"] != "invis") == sorted(
        str(edge.shape) + ("" if edge.shape.dtype == "float32" else f":{edge.shape.dtype}")
        for _, _, edge in graph.edges(data="edge")
    )


def test_equal_blocks_are_drawn_once_and_marked():
    drawn = parsed(to_dot(build(toy(12).trace())))
    title = drawn.get_node("title blocks.0#1").attr["label"]
    assert "<b>blocks.0 to blocks.11</b>" in title and "<b>  x12</b>" in title and "12,608 parameters each" in title
    assert not any("blocks.1" in name for name in drawn.nodes())
    closed = parsed(to_dot(build(toy(12).trace()), depth=1))
    assert (
        closed.get_node("@blocks.0").attr["peripheries"] == "2" and "x12" in closed.get_node("@blocks.0").attr["label"]
    )


def test_clusters_nest_as_the_modules_do():
    drawn = parsed(everything(build(toy(1).trace())))
    outer = drawn.get_subgraph("cluster_blocks.0#1")
    inner = outer.get_subgraph("cluster_blocks.0.attn#1")
    assert "softmax" in inner and "add" not in inner and "add" in outer
    assert "title blocks.0.attn#1" in inner


def test_a_title_is_a_node_beside_the_first_of_its_box_so_that_no_edge_crosses_it():
    svg = ElementTree.fromstring(graphviz_svg(to_dot(build(toy(3).trace()))))
    space = "{http://www.w3.org/2000/svg}"
    boxes, lines = [], []
    for group in svg.iter(f"{space}g"):
        name = group.findtext(f"{space}title")
        if group.get("class") == "node" and name.startswith("title "):
            texts = [(float(t.get("x")), float(t.get("y")), t.text) for t in group.iter(f"{space}text")]
            boxes.append((min(x for x, _, _ in texts), min(y for _, y, _ in texts) - 9, max(y for _, y, _ in texts)))
        if group.get("class") == "edge":
            lines += [points(path.get("d")) for path in group.iter(f"{space}path")]
    assert len(boxes) == 3 and lines
    for left, top, bottom in boxes:
        assert not any(left < x < left + 60 and top < y < bottom for line in lines for x, y in line)


def points(path):
    """Points along a path of cubic splines, close together."""
    numbers = list(map(float, re.findall(r"-?[\d.]+", path)))
    corners = list(zip(numbers[::2], numbers[1::2], strict=True))
    for i in range(0, len(corners) - 3, 3):
        for step in range(21):
            t, bend = step / 20, corners[i : i + 4]
            weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
            yield tuple(sum(w * p[axis] for w, p in zip(weights, bend, strict=True)) for axis in (0, 1))


def test_the_residual_stream_is_a_straight_line():
    out = parsed(to_dot(build(toy(3).trace()))).draw(format="plain", prog="dot").decode()
    places = {line.split()[1]: float(line.split()[2]) for line in out.splitlines() if re.match(r"node [\w.]+ ", line)}
    assert len({places[name] for name in ("add", "add_1", "linear_9", "output")}) == 1
    assert places["ids"] == places["embedding"]


def test_a_module_with_one_operator_is_one_box_that_tells_the_operator_if_the_class_does_not():
    assert words(everything(build(toy(1).trace())), "linear") == ["qkv", "Linear, 3,072 parameters"]
    model = Model("Gated")
    with model.module("gate", "Router"):
        model.op("linear", model.input("x", "B"), out="B")
    assert words(to_dot(build(model.trace())), "linear") == ["gate", "Router", "linear"]


def words(dot, name):
    """The lines of a node's label."""
    drawn = parsed(dot)  # kept: a node dies with its graph
    return [unescape(re.sub(r"<[^>]*>", "", line)) for line in drawn.get_node(name).attr["label"].split("<br/>")]


def test_a_head_that_is_tied_tells_to_what():
    model = Model("Tied")
    x = model.input("ids", "B T:int64")
    with model.module("embed", "Embedding", parameters=5):
        x = model.op("embedding", x, out="B T 4", reads=("embed.weight",))
    with model.module("head", "Linear", parameters=5):
        model.output(model.op("linear", x, out="B T 9", reads=("embed.weight",)))
    assert words(to_dot(build(model.trace())), "linear") == ["head", "Linear, 5 parameters", "tied to embed.weight"]


def test_inputs_constants_operators_and_outputs_look_different():
    model = Model("Kinds")
    total = model.op("add", model.input("x", "B T"), model.constant("table", "T"), out="B T")
    model.output(total)
    drawn = parsed(to_dot(build(model.trace())))
    fills = {name: drawn.get_node(name).attr["fillcolor"] for name in ("x", "table", "add", "output")}
    assert len({*fills.values()}) == 3 and fills["x"] == fills["output"]
    assert drawn.get_node("table").attr["shape"] == "note"
    assert drawn.get_node("output").attr["peripheries"] == "2"


@pytest.mark.parametrize("theme", THEMES)
def test_each_family_of_operators_has_its_colour_and_a_word_in_the_legend(theme):
    dot = to_dot(build(toy(1).trace()), theme=theme)
    drawn = parsed(dot)
    fills = {name: drawn.get_node(name).attr["fillcolor"] for name in ("linear", "matmul", "layer_norm", "gelu", "add")}
    assert len({*fills.values()}) == 5
    for word in ("weights", "products", "norms", "activations", "arithmetic", "residual stream"):
        assert f"{word}  <" in drawn.graph_attr["label"]
    assert "pooling" not in drawn.graph_attr["label"]  # there is none
    assert f'bgcolor="{THEMES[theme].ground}"' in dot


def test_an_unknown_theme_is_told():
    with pytest.raises(DrawError, match="no theme is called 'sepia'; there are: light, dark"):
        to_dot(build(toy(1).trace()), theme="sepia")


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_text_on_every_colour_can_be_read(theme):
    """A contrast of 7 to 1 is what WCAG asks for at its strictest, 4.5 for what is less important."""
    fills = [paint.fill for paint in theme.fills.values()]
    grounds = [theme.ground, theme.plain.fill, theme.block.fill, theme.made.fill, *theme.clusters, *fills]
    assert min(contrast(theme.text, ground) for ground in grounds) > 7
    assert min(contrast(theme.faint, ground) for ground in grounds) > 4.5
    assert contrast(theme.end_text, theme.end.fill) > 7
    assert min(contrast(paint.line, paint.fill) for paint in (theme.error, theme.warning)) > 4


def contrast(a, b):
    def light(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    high, low = sorted((light(a), light(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_sizes_stand_below_the_names():
    drawn = parsed(to_dot(build(toy(1).trace()), sizes={"B": 2, "T": 5}))
    assert drawn.get_edge("ids", "embedding").attr["label"] == " B T:int64 \\n 2 5 "


def test_sizes_that_only_values_decide_are_marked():
    model = Model("Chosen")
    x = model.input("x", "B T")
    chosen = model.op("nonzero", x, out="n")
    model.fresh = {"n": "nonzero"}
    model.output(model.op("add", chosen, chosen, out="n"))
    drawn = parsed(to_dot(build(model.trace())))
    assert drawn.get_edge("nonzero", "add").attr["style"] == "dashed"
    assert drawn.get_edge("x", "nonzero").attr["style"] != "dashed"
    label = drawn.graph_attr["label"]
    assert "by value: n (nonzero)" in label and "sizes that values decide" in label


def test_two_tensors_between_the_same_boxes_are_two_arrows():
    model = Model("Square")
    x = model.input("x", "B")
    model.output(model.op("mul", x, x, out="B"))
    assert len(parsed(to_dot(build(model.trace()))).edges("x", keys=True)) == 2


def test_a_tensor_that_every_block_reads_is_named_at_each():
    drawn = parsed(everything(build(toy(12).trace())))
    assert drawn.in_edges("tril") == [("ones", "tril")] and drawn.out_edges("tril") == []
    references = [name for name in drawn.nodes() if name.startswith("tril for masked_fill")]
    assert len(references) == 12
    assert drawn.get_node(references[0]).attr["label"] == "tril"
    assert drawn.successors("tril for masked_fill_3") == ["masked_fill_3"]
    assert "tril for masked_fill_3" in drawn.get_subgraph("cluster_blocks.3#1").get_subgraph("cluster_blocks.3.attn#1")


def test_what_all_copies_of_a_block_read_is_named_in_the_one_that_is_drawn():
    drawn = parsed(to_dot(build(toy(12).trace())))
    assert [edge.attr["style"] for edge in drawn.out_edges("tril")] == ["invis"]  # which keeps it near
    assert drawn.predecessors("masked_fill") == ["matmul", "tril for masked_fill"]
    assert drawn.has_edge("embedding", "layer_norm")  # only the first copy reads this one
    alone = parsed(to_dot(build(toy(1).trace())))
    assert alone.has_edge("tril", "masked_fill")


def test_the_stream_itself_is_never_cut_by_references():
    drawn = parsed(everything(build(toy(12).trace())))
    assert not [name for name in drawn.nodes() if " for add" in name or " for layer_norm" in name]
    assert drawn.has_edge("add", "add_1") and drawn.has_edge("add", "linear_1")


def test_a_box_that_is_referred_to_tells_the_name_that_the_references_use():
    model = Model("Masks")
    x = model.input("x", "B T")
    with model.module("masks", "Masks", parameters=7):
        halves = model.op("split", model.op("relu", x, out="B T"), out=("B T", "B T"))
    for tensor in (halves, model.also(halves, 1)):
        for _ in range(9):
            x = model.op("mul", x, tensor, out="B T")
    model.output(x)
    opened, closed = parsed(everything(build(model.trace()))), parsed(to_dot(build(model.trace()), depth=1))
    assert words(everything(build(model.trace())), "split") == ["split", "= masks"]
    assert opened.get_node("split for mul_12").attr["label"] == "masks 2"
    assert closed.get_node("@masks for mul_4").attr["label"] == "masks 1"


def test_a_reference_has_the_name_of_the_variable():
    model = Model("Named")
    x = model.input("x", "B T")
    mask = model.op("tril", model.op("ones", out="T T"), out="T T")
    model.nodes[-1] = replace(model.nodes[-1], location=Location("m.py", 7, "mask = torch.ones(t, t).tril()"))
    for _ in range(9):
        x = model.op("mul", x, mask, out="B T")
    model.output(x)
    drawn = parsed(everything(build(model.trace())))
    assert drawn.get_node("tril for mul_3").attr["label"] == "mask"
    assert words(everything(build(model.trace())), "tril") == ["tril", "= mask"]


def encoder_decoder(layers=3):
    """Layers of both read what the layer before made, the decoder's also what the encoder's last did, and a mask."""
    model = Model("Pair")
    memory, x = model.input("source", "B S 8"), model.input("target", "B T 8")
    with model.module("encoder", "Encoder"):
        for i in range(layers):
            with model.module(f"encoder.layers.{i}", "Layer"):
                y = model.op("sdpa", memory, out="B S 8")
                memory = model.op("add", memory, y, out="B S 8")
    mask = model.op("tril", out="T T")
    with model.module("decoder", "Decoder"):
        for i in range(layers):
            with model.module(f"decoder.layers.{i}", "Layer"):
                y = model.op("sdpa", x, mask, out="B T 8")
                x = model.op("add", x, y, out="B T 8")
                y = model.op("sdpa", x, memory, out="B T 8")
                x = model.op("add", x, y, out="B T 8")
    model.output(x, memory)
    model.output_names = ("decoded", "encoded")
    return build(model.trace())


def test_an_encoders_memory_is_named_where_the_decoder_reads_it_and_the_decoder_stands_below():
    """T5, BART, the Transformer of 2017: side by side they were twice as wide as a page, with a line across."""
    drawn = parsed(to_dot(encoder_decoder()))
    assert drawn.get_node("add for sdpa_4").attr["label"] == "encoder"
    assert "= encoder" in drawn.get_node("add").attr["label"]
    drawn.layout("dot")
    height = {name: float(drawn.get_node(name).attr["pos"].split(",")[1]) for name in ("source", "add", "target")}
    assert height["source"] > height["add"] > height["target"]
    assert "add" in {edge[0] for edge in drawn.in_edges("output encoded")}  # no reference beside the output


def test_a_reference_in_the_first_row_of_a_box_moves_the_box_down_and_not_beside_the_one_above():
    drawn = parsed(to_dot(encoder_decoder()))
    assert drawn.get_edge("target", "sdpa_3").attr["minlen"] == "2"
    assert drawn.get_edge("source", "sdpa").attr["minlen"] != "2"


def test_of_several_results_of_a_closed_module_each_has_the_name_of_its_variable():
    """T5: `encoder.block.0.layer.0 3` was the bias that all later blocks read."""
    model = Model("T5")
    x = model.input("x", "B T 8")
    with model.module("block.0", "First"):
        bias = model.op("embedding", out="T T", line=7)
        x = model.op("sdpa", x, bias, out="B T 8")
    for i in range(1, 5):
        with model.module(f"block.{i}", "Block"):
            x = model.op("sdpa", x, bias, out="B T 8")
    model.output(x)
    drawn = parsed(to_dot(build(model.trace()), depth=1))
    assert drawn.get_node("@block.0 for sdpa_1").attr["label"] == "x"  # the line is `x = embedding(x)`


def test_calls_of_one_module_that_fold_do_not_learn_each():
    model = Model("Shared")
    x = model.input("x", "B 8")
    for _ in range(3):
        with model.module("layer", "Layer", parameters=72):
            x = model.op("relu", model.op("linear", x, out="B 8", reads=("layer.weight",)), out="B 8")
    model.output(x)
    (label,) = (line for line in statements(to_dot(build(model.trace()))) if line.startswith('"title layer#1"'))
    assert "x3" in label and "72 parameters" in label and "each" not in label


def test_a_tensor_that_few_read_is_drawn_as_lines():
    assert "tril for" not in everything(build(toy(2).trace()))


def cached(layers):
    model = Model("Caches")
    x = model.input("x", "B T")
    caches = []
    for i in range(layers):
        with model.module(f"layers.{i}", "Layer"):
            caches.append(model.op("linear", x, out="B 4 T"))
            x = model.op("relu", x, out="B T")
    model.output(x, *caches)
    model.output_names = ("logits", *(f"cache[{i}]" for i in range(layers)))
    return build(model.trace())


def test_many_equal_outputs_are_one_node_that_counts_them():
    dot = to_dot(cached(24))
    drawn = parsed(dot)
    assert words(dot, "output") == ["logits"] and words(dot, "output cache") == ["cache  x24"]
    assert drawn.in_edges("output cache") == [("linear", "output cache")]


def test_of_folded_blocks_an_output_has_the_name_that_all_share():
    model = Model("Caches")
    x = model.input("x", "B T")
    made = []
    for i in range(4):
        with model.module(f"layers.{i}", "Layer"):
            made += [model.op(operator, x, out="B 4 T") for operator in ("sin", "cos", "exp", "log", "abs")]
            x = model.op("relu", x, out="B T")
        x = model.op(f"op{i}", x, out="B T")  # keeps the layers apart
        for j in range(2):
            with model.module(f"extra.{i}.{j}", "Extra"):
                x = model.op("tanh", x, out="B T")
    model.output(x, *made)
    model.output_names = ("logits", *(f"cache[{i}]" for i in range(20)))
    drawn = parsed(to_dot(build(model.trace())))
    assert drawn.get_node("output cache of cos_1").attr["label"] == "cache"
    assert not [name for name in drawn.nodes() if name.startswith("output cache 1")]


def test_unfolded_all_but_the_first_of_many_outputs_are_named_where_they_are_made():
    drawn = parsed(everything(cached(24)))
    assert drawn.in_edges("output cache") == [("linear", "output cache")]
    assert drawn.in_edges("output cache 4") == [("linear_2", "output cache 4")]
    assert drawn.get_node("output cache 4").attr["label"] == "cache[2]"
    assert "output cache 4" in drawn.get_subgraph("cluster_layers.2#1")


def test_parameters_are_boxes_when_asked_for_and_tied_ones_say_so():
    graph = build(toy(1).trace())
    assert "parameter " not in to_dot(graph)
    drawn = parsed(to_dot(graph, parameters=True))
    assert drawn.has_edge("parameter head.weight of linear_3", "linear_3")
    model = Model("Tied")
    x = model.input("ids", "B")
    for _ in range(2):
        x = model.op("linear", x, out="B", reads=("w",))
    model.parameters["w"] = model.shape("8 8")
    model.output(x)
    assert words(to_dot(build(model.trace()), parameters=True), "parameter w of linear") == ["w", "8 8", "tied"]


def problem(**fields):
    return Problem("SF301", "warning", "heads are merged without a transpose", file="models/tiny.py", **fields)


def test_findings_are_red_at_their_node_and_at_the_edges_into_it():
    graph, error = build(toy(12).trace()), THEMES["light"].warning.line
    report = Report("GPT", (problem(line=31, module="blocks.7.ln"),))
    drawn = parsed(to_dot(graph, report=report))
    assert drawn.get_node("layer_norm").attr["color"] == error
    assert words(to_dot(graph, report=report), "layer_norm")[-1] == "SF301: heads are merged without a transpose"
    assert drawn.get_edge("embedding", "layer_norm").attr["color"] == error
    assert drawn.get_node("linear").attr["color"] != error
    closed = parsed(to_dot(graph, report=report, depth=1))
    assert closed.get_node("@blocks.0").attr["color"] == error


def test_a_finding_without_a_line_is_at_its_module_or_in_the_title():
    graph = build(toy(2).trace())
    drawn = parsed(to_dot(graph, report=Report("GPT", (problem(module="blocks.1.attn"),))))
    assert "SF301" in drawn.get_node("linear").attr["label"]
    nowhere = parsed(to_dot(graph, report=Report("GPT", (problem(line=999),))))
    assert "SF301: heads are merged" in nowhere.graph_attr["label"]


def test_what_modules_cost_stands_on_them():
    dot = to_dot(build(toy(2).trace()), flops={"head": "6.6 kFLOPs", "": "1 MFLOPs", "blocks.0": "9 FLOPs"})
    drawn = parsed(dot)
    assert words(dot, "linear_6")[-1] == "6.6 kFLOPs"
    assert "1 MFLOPs" in drawn.graph_attr["label"] and "9 FLOPs" in drawn.get_node("title blocks.0#1").attr["label"]


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
    for options in ({}, {"unfold": True, "parameters": True}, {"depth": 1}, {"depth": 0}):
        svg = graphviz_svg(to_dot(graph, **options))
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


def test_tooltips_tell_arguments_and_labels_stay_short():
    model = toy(2)
    softmax = [i for i, node in enumerate(model.nodes) if node.operator == "softmax"]
    for i, dim in zip(softmax, (-1, -2), strict=True):
        model.nodes[i] = replace(model.nodes[i], arguments=(("dim", dim), ("note", '"<b>&')))
    dot = to_dot(build(model.trace()), unfold=True)
    lines = [line for line in dot.splitlines() if line.strip().startswith('"softmax') and " -> " not in line]
    assert ["dim = -1, note = " in line and "dim = -2" not in line for line in lines] == [True, False]
    assert all("dim" not in line.partition("tooltip")[0] for line in lines)
    folded = to_dot(build(model.trace()), depth=3)
    assert 'dim = -1, -2, note = \\"<b>&amp;' in folded, "of both copies"
