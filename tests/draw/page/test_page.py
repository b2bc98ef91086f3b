"""The page as its reader meets it: every test ends with a silent console and nothing loaded (see conftest)."""

import math
import re
from dataclasses import replace

import pytest
from playwright.sync_api import expect

import shapeflow as sf
from models.gpt import toy as gpt
from shapeflow.check.problem import Problem, Report
from shapeflow.draw.page import operations_of
from shapeflow.draw.page.operations import Operations
from shapeflow.graph import build
from tests.draw.page.reading import address, chosen, crumbs, in_flow, item, labels, titles
from tests.handmade import Model, toy

BLOCKS = "blocks.0 … blocks.11  x12"


@pytest.fixture(scope="module")
def graph():
    return build(toy(12).trace())


def test_the_first_sheet_is_the_whole_model_with_equal_blocks_once(show, graph):
    page = show(graph)
    assert page.title() == "GPT"
    assert titles(page) == ["ids", "embed", "ones", "tril", BLOCKS, "head", "output"]
    assert "B T d_model" in labels(page) and "B T:int64" in labels(page)
    assert crumbs(page) == ["GPT"]


def test_clicks_lead_into_modules_and_breadcrumbs_lead_out(show, graph):
    page = show(graph)
    item(page, BLOCKS).click()
    assert crumbs(page) == ["GPT", "blocks.0"] and address(page) == "#blocks.0"
    item(page, "attn").click()
    assert crumbs(page) == ["GPT", "blocks.0", "attn"] and address(page) == "#blocks.0.attn"
    assert "softmax" in titles(page)
    page.locator("#breadcrumbs .crumb").nth(1).click()
    assert crumbs(page) == ["GPT", "blocks.0"]
    assert chosen(page) == "attn", "what was left is chosen"


def test_back_and_forward_buttons_follow_the_sheets(show, graph):
    page = show(graph)
    item(page, BLOCKS).click()
    item(page, "ffn").click()
    page.go_back()
    expect(page.locator(".crumb[aria-current]")).to_have_text("blocks.0")
    page.go_back()
    expect(page.locator(".crumb[aria-current]")).to_have_text("GPT")
    page.go_forward()
    page.go_forward()
    expect(page.locator(".crumb[aria-current]")).to_have_text("ffn")


def test_an_address_opens_its_sheet_in_its_copy(show, graph):
    page = show(graph, hash="#blocks.7.attn")
    assert crumbs(page) == ["GPT", "blocks.7", "attn"]
    assert page.locator("#details .path").inner_text() == "blocks.7.attn"


def test_an_address_of_nothing_opens_the_whole_model(show, graph):
    page = show(graph, hash="#blocks.99%zz")
    assert crumbs(page) == ["GPT"]
    expect(page).to_have_url(re.compile("page.html#$"))
    page.evaluate("location.hash = 'blocks.5'")
    expect(page.locator(".crumb[aria-current]")).to_have_text("blocks.5")
    page.evaluate("location.hash = 'blocks.77'")
    expect(page).to_have_url(re.compile("page.html#blocks.5$"))


def test_equal_modules_share_a_sheet_that_lists_them(show, graph):
    page = show(graph, hash="#blocks.3")
    page.get_by_text("12 equal modules share this sheet").click()
    instances = page.locator(".instances .link")
    assert instances.all_text_contents() == [f"blocks.{i}" for i in range(12)]
    instances.nth(11).click()
    assert address(page) == "#blocks.11"
    page.keyboard.press("[")
    expect(page.locator(".crumb[aria-current]")).to_have_text("blocks.10")
    page.locator("#breadcrumbs select").select_option("2")
    expect(page.locator(".crumb[aria-current]")).to_have_text("blocks.2")


def test_turning_to_another_copy_keeps_the_module_that_is_open(show, graph):
    page = show(graph, hash="#blocks.3.attn")
    page.keyboard.press("]")
    expect(page.locator(".crumb").nth(1)).to_have_text("blocks.4")
    assert address(page) == "#blocks.4.attn"


def test_contents_open_modules(show, graph):
    page = show(graph)
    page.get_by_label(re.compile(r"What is in blocks\.0 … blocks\.11")).click()
    page.locator("#contents .entry", has_text="ffn").click()
    assert crumbs(page) == ["GPT", "blocks.0", "ffn"]
    assert page.locator("#contents [aria-current] span").inner_text() == "ffn"


@pytest.mark.parametrize(
    ("words", "title", "place"),
    [
        ("softmax", "softmax", "blocks.0.attn"),
        ("blocks.7 softmax", "softmax", "blocks.7.attn"),
        ("feedforward", "ffn", "blocks.0"),
        ("3*d_model", "qkv", "blocks.0.attn"),
        ("qkv.weight", "qkv", "blocks.0.attn"),
        ("blocks.5.ffn", "ffn", "blocks.5"),
    ],
)
def test_search_finds_operators_modules_shapes_and_parameters(show, graph, words, title, place):
    page = show(graph)
    page.keyboard.press("/")
    page.keyboard.type(words)
    page.keyboard.press("Enter")
    expect(page.locator("#details h2")).to_have_text(title)
    assert address(page) == f"#{place}"
    assert page.locator(".item.chosen .title").text_content() == title
    assert page.locator("#results").is_hidden()


def test_words_that_stand_side_by_side_are_found_first(show):
    page = show(dropped(0.1, 0.7))
    page.locator("#search").fill("p = 0")
    assert page.locator("#results b").first.inner_text() == "dropout"
    page.locator("#search").fill("blocks.1")
    assert "blocks.1" in page.locator("#results small").first.inner_text(), "not the first copy"


def test_search_tells_what_is_found_once_and_where_nothing_is(show, graph):
    page = show(graph)
    page.locator("#search").fill("softmax")
    assert page.locator("#results [role=option]").count() == 1
    assert "in 12 places" in page.locator("#results").inner_text()
    page.locator("#search").fill("no such thing")
    assert page.locator("#results").inner_text() == "nothing is called that"
    page.keyboard.press("Escape")
    assert page.locator("#results").is_hidden()


def test_sizes_that_are_typed_show_on_wires_and_in_the_panel(show, graph):
    page = show(graph, hash="#blocks.0")
    item(page, "add").click()
    page.get_by_label("Size of B").fill("2")
    assert "2 T 32" in labels(page)
    page.get_by_label("Size of T").fill("5")
    assert set(labels(page)) == {"2 5 32", "5 5"}
    assert "= 2 5 32" in page.locator("#details").inner_text()
    assert "320 numbers, 1.25 KiB" in page.locator("#details").inner_text()
    page.locator("#mode").click()
    assert set(labels(page)) == {"B T d_model", "T T:bool"}


def test_a_size_that_is_none_or_out_of_bounds_is_told(show):
    model = toy(1)
    model.domain = "B >= 2, 1 <= T <= 64"
    page = show(build(model.trace()))
    page.get_by_label("Size of T").fill("65")
    assert page.locator(".warning").inner_text().startswith("T: outside of the sizes")
    page.get_by_label("Size of T").fill("64")
    assert page.locator(".warning").inner_text() == ""
    page.get_by_label("Size of B").fill("two")
    assert page.get_by_label("Size of B").get_attribute("aria-invalid") == "true"
    assert "B 64 32" in labels(page)


def test_sizes_that_are_given_are_filled_in(show, graph):
    page = show(graph, sizes={"B": 3, "T": 7})
    assert page.get_by_label("Size of T").input_value() == "7"
    assert "3 7 32" in labels(page)


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("u", ["in 1", "in 2", "qkv", "chunk", "transpose", "matmul", "masked_fill"]),
        ("d", ["masked_fill", "softmax", "matmul", "out"]),
        ("b", ["in 1", "in 2", "qkv", "chunk", "transpose", "matmul", "masked_fill", "softmax", "matmul", "out"]),
    ],
)
def test_highlights_what_is_upstream_and_downstream(show, graph, key, found):
    page = show(graph, hash="#blocks.0.attn")
    item(page, "masked_fill").click()
    page.keyboard.press(key)
    assert in_flow(page) == found
    assert page.locator("#flow-note").is_visible()
    page.keyboard.press(key)
    assert in_flow(page) == []
    assert page.locator("#flow-note").is_hidden()


def test_the_highlight_goes_through_the_borders_of_modules(show, graph):
    page = show(graph, hash="#blocks.0.attn")
    item(page, "transpose").click()
    page.get_by_role("button", name="Upstream").click()
    page.keyboard.press("Backspace")
    expect(page.locator(".crumb[aria-current]")).to_have_text("blocks.0")
    assert in_flow(page) == ["in 1", "ln", "attn"], "the mask, in 2, is no part of it, and neither is what comes after"
    page.keyboard.press("Backspace")
    expect(page.locator(".crumb[aria-current]")).to_have_text("GPT")
    assert in_flow(page) == ["ids", "embed", BLOCKS]
    page.keyboard.press("Escape")
    assert in_flow(page) == []


def test_of_a_module_with_two_outputs_only_the_one_that_is_read_counts(show):
    model = Model("Two")
    x, y = model.input("x", "B"), model.input("y", "B")
    with model.module("pair", "Pair"):
        left, right = model.op("sin", x, out="B"), model.op("cos", y, out="B")
    model.output(model.op("exp", left, out="B"), model.op("log", right, out="B"))
    page = show(build(model.trace()))
    item(page, "exp").click()
    page.keyboard.press("u")
    assert in_flow(page) == ["x", "pair", "exp"]
    item(page, "y").click()
    page.keyboard.press("d")
    assert in_flow(page) == ["y", "pair", "log", "output"]


def test_keys_walk_along_the_wires_and_into_modules(show, graph):
    page = show(graph)
    page.keyboard.press("ArrowDown")
    assert chosen(page) == "ids"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert chosen(page) == "blocks.0 … blocks.11 x12"
    page.keyboard.press("ArrowUp")
    assert chosen(page) in ("embed", "tril")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator(".crumb[aria-current]")).to_have_text("blocks.0")
    page.keyboard.press("Backspace")
    expect(page.locator(".crumb[aria-current]")).to_have_text("GPT")
    assert chosen(page) == "blocks.0 … blocks.11 x12"


def test_the_tabulator_reaches_every_box_and_enter_opens(show, graph):
    page = show(graph)
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.getAttribute('aria-label')"))
    assert {"ids, gives B T:int64", "output"} <= reached
    blocks = "blocks.0 … blocks.11 x12, DecoderBlock, 12608 parameters"
    assert any(label and label.startswith(blocks) for label in reached)


def test_the_question_mark_tells_the_keys(show, graph):
    page = show(graph)
    page.keyboard.press("?")
    assert page.get_by_role("dialog").is_visible()
    told = page.locator("#keys").inner_text()
    assert "highlight all upstream" in told and "Backspace" in told
    page.keyboard.press("Escape")
    assert page.get_by_role("dialog").is_hidden()
    page.locator("#ask").click()
    assert page.get_by_role("dialog").is_visible()


def test_a_page_may_be_dark_from_the_start(show, graph):
    page = show(graph, theme="dark")
    assert _ground(page) == "rgb(20, 24, 29)"


def test_sizes_that_only_values_decide_are_marked(show):
    model = Model("Chosen")
    model.fresh = {"n": "nonzero"}
    model.dims = dict.fromkeys(("B", "T", "n"))
    found = model.op("nonzero", model.input("x", "B T"), out="n 2:int64")
    model.output(model.op("sum", found, out="2:int64"))
    page = show(build(model.trace()))
    assert page.locator(".label .fresh").all_text_contents() == ["n 2:int64"]
    assert page.locator(".fields label", has_text="n").last.get_attribute("title") == "decided by values, in nonzero"
    page.get_by_label("Size of n").fill("17")
    assert "17 2" in labels(page)


def _ground(page) -> str:
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


@pytest.mark.parametrize("dark", [False, True])
def test_light_and_dark_follow_the_system_and_the_button(show, graph, dark):
    page = show(graph, dark=dark)
    light, night = "rgb(255, 255, 255)", "rgb(20, 24, 29)"
    assert _ground(page) == (night if dark else light)
    page.locator("#theme").click()
    assert _ground(page) == (light if dark else night)
    page.keyboard.press("t")
    assert _ground(page) == (night if dark else light)


def _scale(page) -> float:
    return page.evaluate("new DOMMatrix(getComputedStyle(document.getElementById('view')).transform).a")


def _corner(page) -> tuple[float, float]:
    box = page.locator("#view").bounding_box()
    return box["x"], box["y"]


def test_the_wheel_the_buttons_and_keys_zoom(show, graph):
    page = show(graph)
    fitting = _scale(page)
    page.mouse.move(600, 400)
    page.mouse.wheel(0, -240)
    assert _scale(page) > fitting
    page.keyboard.press("f")
    assert _scale(page) == pytest.approx(fitting)
    page.locator("#zoom-in").click()
    assert _scale(page) == pytest.approx(1.25 * fitting)
    page.keyboard.press("-")
    page.keyboard.press("-")
    assert _scale(page) == pytest.approx(0.8 * fitting)
    page.locator("#fit").click()
    assert _scale(page) == pytest.approx(fitting)


def test_a_drag_moves_the_sheet_and_opens_nothing(show, graph):
    page = show(graph)
    x, y = _corner(page)
    box = item(page, BLOCKS).bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 70, box["y"] + 90, steps=4)
    page.mouse.up()
    left, top = _corner(page)
    assert (left - x, top - y) == (pytest.approx(50, abs=5), pytest.approx(70, abs=5))
    assert crumbs(page) == ["GPT"]
    item(page, BLOCKS).click()
    assert crumbs(page) == ["GPT", "blocks.0"]


def test_a_shifted_click_chooses_a_module_and_opens_nothing(show, graph):
    page = show(graph)
    item(page, BLOCKS).click(modifiers=["Shift"])
    assert crumbs(page) == ["GPT"]
    details = page.locator("#details").inner_text()
    assert "12,608 parameters each, 151,296 in all" in details
    page.locator(".item.chosen .handle").click()
    assert crumbs(page) == ["GPT"]


def test_the_panel_tells_source_parameters_and_inputs(show):
    model = toy(1)
    model.parameters = {"blocks.0.ln.weight": model.shape("d_model"), "blocks.0.ln.bias": model.shape("d_model")}
    page = show(build(model.trace()), hash="#blocks.0")
    item(page, "ln").click()
    details = page.locator("#details").inner_text()
    assert "models/tiny.py:31" in details and "x = layer_norm(x)" in details
    assert re.search(r"blocks\.0\.ln\.weight\s+d_model", details)
    page.locator("#details .link").first.click()
    assert chosen(page) == "in 1"
    page.locator("#details .link").first.click()
    assert (crumbs(page), chosen(page)) == (["GPT"], "embed")


def dropped(*probabilities: float):
    """Blocks with an operator that has arguments."""
    model = Model("Net")
    x = model.input("x", "B T")
    for i, p in enumerate(probabilities):
        with model.module(f"blocks.{i}", "Block"):
            x = model.op("log", model.op("dropout", x, out="B T"), out="B T")
        model.nodes[-2] = replace(model.nodes[-2], arguments=(("p", p), ("training", True), ("value", -math.inf)))
    model.output(x)
    return build(model.trace())


def test_the_panel_tells_the_arguments_of_operators_and_search_finds_them(show):
    page = show(dropped(0.1))
    page.locator("#search").fill("p = 0.1")
    page.keyboard.press("Enter")
    expect(page.locator("#details h2")).to_have_text("dropout")
    assert page.locator(".arguments li").all_text_contents() == ["p = 0.1", "training = True", "value = -inf"]


@pytest.mark.parametrize(
    ("probabilities", "told"),
    [
        ((0.1, 0.1, 0.1), "p = 0.1"),
        ((0.1, 0.2, 0.1), "p = 0.1, 0.2"),
        ((0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7), "p = 0.1, 0.2, 0.3, 0.4, 0.5, and 2 more"),
    ],
)
def test_equal_blocks_with_other_arguments_fold_and_tell_all_values(show, probabilities, told):
    page = show(dropped(*probabilities), hash="#blocks.0")
    assert page.locator("#contents .entry").count() == 2, "they are one"
    item(page, "dropout").click()
    assert page.locator(".arguments li").first.text_content() == told


def test_the_panel_tells_operations_as_formulas_and_at_sizes(show):
    trace = sf.trace(gpt())
    page = show(trace.to_networkx(), hash="#blocks.0", operations=operations_of(trace))
    item(page, "ffn").click(modifiers=["Shift"])
    assert "FLOPs: 16384*B*T" in page.locator("#details").inner_text(), "two products with 32 x 128 weights"
    page.get_by_label("Size of B").fill("2")
    page.get_by_label("Size of T").fill("5")
    assert "164 kFLOPs = 163,840" in page.locator("#details").inner_text()


def test_what_no_rule_counts_is_told(show, graph):
    page = show(graph, operations=Operations({}, ("opaque (in blocks.0)",)))
    assert page.locator("#details .warning").inner_text() == "FLOPs leave out: opaque (in blocks.0)"


EVIL = "<img src=x onerror=alert(1)>"


def test_names_of_the_model_are_text_and_nothing_else(show):
    model = Model(EVIL, d=3)
    x = model.input(f"</script><script>alert(2)</script>{EVIL}", "B d")
    for path in (EVIL, f"<!--<script>{EVIL}"):
        with model.module(path, EVIL, parameters=3):
            x = model.op("<svg onload=alert(3)>", x, out="B d", reads=(f"{path}.'\"&amp;<b>",), line=3)
            x = model.op("javascript:alert(4)", x, out="B d")
    model.output(x)
    page = show(build(model.trace()))
    assert page.title() == EVIL
    assert EVIL in titles(page) and crumbs(page) == [EVIL]
    assert page.locator("img, svg svg, b:not(#results b), iframe").count() == 0
    item(page, EVIL).click()
    assert crumbs(page) == [EVIL, EVIL]
    item(page, "<svg onload=alert(3)>").click()
    assert "'\"&amp;<b>" in page.locator("#details").inner_text()
    page.locator("#search").fill("onerror")
    assert EVIL in page.locator("#results").inner_text()
    assert page.locator("script").count() == 2 and page.locator("img").count() == 0


def faulty():
    """Two operators of one line in each of two modules, and a report that finds something at some of them."""
    model = Model("Net")
    x = model.input("x", "B T")
    for path in ("first", "second"):
        with model.module(path, "Part"):
            h = model.op("softmax", model.op("exp", x, out="B T", line=5), out="B T", line=5)
            x = model.op("log", h, out="B T", line=6) if path == "second" else model.op("sin", h, out="B T", line=7)
    model.output(x)
    where = {"file": "models/tiny.py", "line": 5, "code": "x = softmax(exp(x))"}
    problems = (
        Problem("SF101", "error", "softmax goes over the wrong axis", **where, module="second", fix="softmax(-1)"),
        Problem("SF305", "warning", "nobody needs the logarithm", file="models/tiny.py", line=6, witness={"B": 3}),
        Problem("SF104", "note", "it is too long", details=("it crashes at T = 65",)),
    )
    return build(model.trace()), Report("Net", problems)


def found(page) -> list[str]:
    return page.locator(".item.found .title").all_text_contents()


def test_findings_are_red_at_their_node_and_edge_and_counted_on_modules(show):
    graph, report = faulty()
    page = show(graph, report=report)
    assert page.locator(".badge text").all_text_contents() == ["2"], "both are in the second module"
    assert page.locator("#contents .count").all_text_contents() == ["2", "2"]
    item(page, "second").click()
    assert found(page) == ["softmax", "log"], "exp is on the line, and nobody speaks of it"
    colours = page.locator(".item.found .box").evaluate_all("all => all.map(each => getComputedStyle(each).stroke)")
    assert colours == ["rgb(194, 24, 7)", "rgb(194, 65, 12)"], "errors and warnings are as in the drawings"
    lines = page.locator(".wire.error .line").evaluate_all("all => all.map(each => getComputedStyle(each).stroke)")
    assert lines == ["rgb(194, 24, 7)"]


def test_a_list_leads_from_finding_to_finding(show):
    graph, report = faulty()
    page = show(graph, report=report)
    assert page.locator("#findings h2").inner_text() == "3 findings"
    page.keyboard.press("e")
    expect(page.locator("#details h2")).to_have_text("softmax")
    assert crumbs(page) == ["Net", "second"]
    details = page.locator("#details").inner_text()
    assert "error SF101 softmax goes over the wrong axis" in details and "softmax(-1)" in details
    assert "models/tiny.py:5" in details and "x = softmax(exp(x))" in details
    assert page.locator("#findings [aria-current]").count() == 1
    page.keyboard.press("e")
    expect(page.locator("#details h2")).to_have_text("log")
    assert "seen at B = 3" in page.locator("#details").inner_text()
    page.keyboard.press("e")
    expect(page.locator("#details h2")).to_have_text("softmax")
    page.keyboard.press("E")
    expect(page.locator("#details h2")).to_have_text("log")
    page.go_back()
    page.locator("#findings button", has_text="SF101").click()
    expect(page.locator("#details h2")).to_have_text("softmax")
    page.locator("#found").click()
    expect(page.locator("#details h2")).to_have_text("log")


def test_a_module_links_to_what_was_found_inside(show):
    graph, report = faulty()
    page = show(graph, report=report)
    item(page, "second").click(modifiers=["Shift"])
    page.locator("#details .inside button", has_text="SF305").click()
    expect(page.locator("#details h2")).to_have_text("log")


def test_a_finding_that_is_nowhere_in_the_drawing_is_told_in_the_list(show):
    graph, report = faulty()
    page = show(graph, report=report)
    nowhere = page.locator("#findings li", has_text="SF104")
    assert nowhere.locator("button").count() == 0
    assert "it crashes at T = 65" in nowhere.inner_text()


def test_findings_are_searched(show):
    graph, report = faulty()
    page = show(graph, report=report)
    page.locator("#search").fill("sf101 wrong axis")
    page.keyboard.press("Enter")
    expect(page.locator("#details h2")).to_have_text("softmax")


def test_a_check_that_found_nothing_says_so_and_no_check_says_nothing(show):
    graph, _ = faulty()
    page = show(graph, report=Report("Net"))
    assert page.locator("#findings").inner_text().startswith("Nothing found")
    assert page.locator("#found").is_hidden()
    page.keyboard.press("e")
    assert crumbs(page) == ["Net"] and page.locator(".badge").count() == 0
    assert show(graph).locator("#findings").is_hidden()


def test_findings_in_a_closed_module_and_in_one_of_many_copies(show, graph):
    where = {"file": "models/tiny.py", "line": 31}
    report = Report("GPT", (Problem("SF301", "error", "layer_norm is odd", **where, module="blocks.7.ln"),))
    closed = show(graph, report=report, depth=1)
    assert found(closed) == [BLOCKS]
    page = show(graph, report=report)
    page.keyboard.press("e")
    expect(page.locator("#details h2")).to_have_text("ln")
    assert address(page) == "#blocks.7"


def test_texts_of_findings_are_text_and_nothing_else(show):
    graph, _ = faulty()
    evil = f"</script>{EVIL}\u202e\n]]>"
    at = {"file": f"{EVIL}.py", "line": 1, "code": evil}
    nowhere = Problem(
        evil, "error", evil, **at, module=evil, dims=(evil,), witness={evil: 1}, fix=evil, details=(evil,)
    )
    here = Problem(evil, "warning", evil, file="models/tiny.py", line=6, code=evil, fix=evil, details=(evil,))
    page = show(graph, report=Report(evil, (nowhere, here)))
    page.keyboard.press("e")
    assert EVIL in page.locator("#details").inner_text() and EVIL in page.locator("#findings").inner_text()
    page.locator("#search").fill("onerror")
    assert EVIL in page.locator("#results").inner_text()
    assert page.locator("script").count() == 2 and page.locator("img").count() == 0


@pytest.mark.parametrize("name", ["constructor", "hasOwnProperty", "toString"])
def test_a_size_may_have_the_name_of_what_every_object_has(show, name):
    model = Model("Odd")
    model.free = ("B", name)
    model.dims = dict.fromkeys(model.free)
    model.output(model.op("exp", model.input("x", f"B {name}"), out=f"B {name}"))
    page = show(build(model.trace()))
    page.get_by_label(f"Size of {name}").fill("7")
    assert set(labels(page)) == {"B 7"}


def test_a_source_that_very_many_read_is_named_at_each_reader(show):
    model = Model("Fan")
    x = model.input("x", "B T")
    for _ in range(12):
        y = model.op("sin", x, out="B T")
    model.output(y)
    page = show(build(model.trace()))
    assert page.locator(".reference text").all_text_contents() == ["x"] * 12
    page.locator(".reference").nth(5).click()
    assert chosen(page) == "x"


def test_many_equal_tensors_between_two_boxes_are_one_wire(show):
    model = Model("Many")
    x = model.input("x", "B T")
    parts = model.op("unbind", x, out=("B",) * 24)
    model.output(*(model.also(parts, i) for i in range(24)))
    page = show(build(model.trace()))
    assert labels(page) == ["B T", "24 x B"]


@pytest.fixture(scope="module")
def long_loop():
    """A sheet of 700 boxes, that lead to one side."""
    model = Model("Loop")
    x = model.input("x", "B T")
    h = model.op("neg", x, out="B T")
    for _ in range(175):
        h = model.op(
            "tanh",
            model.op("add", model.op("mul", x, h, out="B T"), model.op("sin", h, out="B T"), out="B T"),
            out="B T",
        )
    model.output(h)
    return build(model.trace())


def drawn_boxes(page) -> int:
    return page.locator(".item:visible").count()


def test_a_large_sheet_draws_what_is_in_sight(show, long_loop):
    page = show(long_loop)
    assert item(page, "x").is_visible(), "it begins where the model does"
    assert 0 < drawn_boxes(page) < 200
    page.keyboard.press("f")
    assert drawn_boxes(page) > 600 and not page.locator(".item .title").first.is_visible(), "nobody could read it"
    page.keyboard.press("/")
    page.keyboard.type("output")
    page.keyboard.press("Enter")
    assert item(page, "output").locator(".title").is_visible(), "what is gone to can be read"
    assert drawn_boxes(page) < 200


def test_keys_lead_through_a_large_sheet_and_marks_follow(show, long_loop):
    page = show(long_loop)
    for _ in range(30):
        page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.classList.contains('chosen')")
    page.keyboard.press("d")
    page.get_by_label("Size of B").fill("3")
    page.locator("#search").fill("output")
    page.keyboard.press("Enter")
    assert page.locator(".item.chosen .title").text_content() == "output"
    assert page.locator(".item.chosen.in-flow").count() == 1, "what is drawn later is marked as well"
    assert "3 T" in labels(page) and "B T" not in labels(page)


def test_results_are_called_as_the_model_calls_them(show):
    model = Model("Two")
    x = model.input("x", "B")
    model.output(model.op("sin", x, out="B"), model.op("cos", x, out="B 3"))
    model.output_names = ("logits", "cache.keys")
    page = show(build(model.trace()))
    rows = page.locator("#details .shapes").last.locator("th").all_text_contents()
    assert rows == ["logits", "cache.keys"]
    page.locator("#search").fill("cache.keys")
    page.keyboard.press("Enter")
    assert chosen(page) == "output"
    assert page.locator("#details th").all_text_contents() == ["logits", "cache.keys"]


@pytest.mark.parametrize("text", ["-3", "two", "1.5", "1e3", "<b>"])
def test_what_is_no_size_is_told(show, graph, text):
    page = show(graph)
    page.get_by_label("Size of B").fill(text)
    page.get_by_label("Size of T").fill("5")
    assert page.locator("#sizes .warning").inner_text() == f"B: {text} is no size, which is a whole number"
    page.get_by_label("Size of B").fill("")
    assert page.locator("#sizes .warning").inner_text() == ""


def test_words_stay_in_their_boxes(show):
    model = Model("Wide")
    x = model.input("W" * 60, "B")
    with model.module("M" * 20, "@" * 90, parameters=10**13):
        x = model.op("W" * 30, model.op("漢字" * 9, x, out="B"), out="B")
    model.output(x)
    for hash in ("", "#" + "M" * 20):
        page = show(build(model.trace()), hash=hash)
        for box in page.locator(".item").all():
            room = box.locator(".box").bounding_box()
            for line in box.locator("text[data-room]").all():
                words = line.bounding_box()
                assert words["x"] >= room["x"] - 1
                assert words["x"] + words["width"] <= room["x"] + room["width"] + 1


@pytest.mark.parametrize("path", ["a%b", "a#b", "a~2", "x y/z", "ü", "__proto__", "<b>"])
def test_an_address_leads_back_to_any_name(show, path):
    model = Model("Names")
    x = model.input("x", "B")
    for _ in range(2):
        with model.module(path, "Layer"):
            y = model.op("exp", model.op("sin", x, out="B"), out="B")
        x = model.op("add", x, y, out="B")
    model.output(x)
    page = show(build(model.trace()))
    item(page, f"{path} (2)").click()
    assert crumbs(page) == ["Names", f"{path} (2)"]
    page.reload()
    assert crumbs(page) == ["Names", f"{path} (2)"]


def test_depth_closes_modules(show, graph):
    page = show(graph, depth=1)
    assert titles(page)[-3:] == [BLOCKS, "head", "output"]
    item(page, BLOCKS).click()
    assert crumbs(page) == ["GPT"]
    assert chosen(page) == "blocks.0 … blocks.11 x12"


def test_a_small_window_shows_sheet_and_panel(show, graph):
    page = show(graph)
    page.set_viewport_size({"width": 600, "height": 700})
    assert page.locator("#stage").bounding_box()["width"] == 600
    assert page.locator("#breadcrumbs .crumb").is_visible()
    assert page.locator("#panel").is_visible()
    page.set_viewport_size({"width": 380, "height": 700})
    page.locator("#search").fill("softmax")
    found = page.locator("#results").bounding_box()
    assert found["x"] >= 0 and found["x"] + found["width"] <= 380, "nothing is found beside the window"
