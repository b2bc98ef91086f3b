"""Names that would be markup, code or nothing at all: in every format they are text, and the file is well-formed."""

import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from shapeflow.check.problem import Problem, Report
from shapeflow.draw import save
from shapeflow.graph import build, diff, load, nodes
from shapeflow.trace.result import Location
from tests.handmade import Model

NAMES = {
    "tag": "<img src=x onerror=alert(1)>",
    "script": "</script></title><script>alert(1)</script>",
    "cdata": "]]><!-- --> <![CDATA[",
    "quotes": "\"'`${x}\\",
    "lines": "a\nb\r\tc",
    "direction": "\u202eabc\u2066",
    "control": "\x00\x1b[31m",
    "half a character": "a\ud800b",
    "entity": "&lt;b&gt;&#60;",
    "mermaid": "end %% #; |{}<> click x call alert()",
    "dot": "\\N\\G\\l subgraph",
    "wide": "漢字🙂",
    "nothing": "",
}
DIRECTION = set("\u202e\u2066\x1b\x00")


def everywhere(name: str):
    """A graph and a report that have the name wherever there may be one."""
    model = Model(name)
    model.free = ("B", name or "d")
    model.dims = dict.fromkeys(model.free)
    x = model.input(name, "B 4")
    with model.module(name or "m", name, parameters=3):
        model.parameters[f"{name}.w"] = model.shape("4 4")
        x = model.op(name or "op", x, out="B 4", reads=(f"{name}.w",))
        given = ((name, name), ("q", (1, name)))
        model.nodes[-1] = replace(model.nodes[-1], location=Location(f"{name}.py", 3, name), arguments=given)
        x = model.op("exp", x, out="B 4")
    model.output(x)
    model.output_names = (name,)
    at = {"file": f"{name}.py", "line": 3, "code": name, "module": name}
    found = Problem("SF301", "error", name, **at, fix=name, details=(name,), witness={name: 1})
    return build(model.trace()), Report(name, (found,))


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append(tag)


def tags_of(html: str) -> list[str]:
    parser = Tags()
    parser.feed(html)
    return parser.tags


def read_svg(text: str) -> None:
    tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(text).iter()}
    assert tags <= {"svg", "g", "title", "polygon", "polyline", "path", "text", "ellipse", "a"}


def read_mermaid(text: str) -> None:
    words = [line.split()[0] for line in text.partition("flowchart TB")[2].splitlines() if line]
    assert words.count("subgraph") == words.count("end") == 1 and "click" not in words


READERS = {"svg": read_svg, "graphml": ElementTree.fromstring, "mmd": read_mermaid, "dot": str}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("suffix", READERS)
def test_a_name_is_text_whatever_it_says(suffix: str, name: str, tmp_path) -> None:
    graph, report = everywhere(name)
    text = save(graph, tmp_path / f"x.{suffix}", report=report, unfold=True, parameters=True).read_text()
    READERS[suffix](text)
    assert not DIRECTION.intersection(text)


def page(name: str, folder) -> str:
    graph, report = everywhere(name)
    return save(graph, folder / "x.html", report=report).read_text()


@pytest.fixture(scope="module")
def plain_tags(tmp_path_factory) -> list[str]:
    return tags_of(page("plain", tmp_path_factory.mktemp("plain")))


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_page_has_no_tag_more_than_with_plain_names(plain_tags: list[str], name: str, tmp_path) -> None:
    text = page(name, tmp_path)
    assert tags_of(text) == plain_tags
    assert not DIRECTION.intersection(text)


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_json_keeps_every_letter(name: str, tmp_path) -> None:
    graph, _ = everywhere(name)
    assert list(nodes(load(save(graph, tmp_path / "x.json")))) == list(nodes(graph))


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_difference_is_drawn_and_told(name: str, tmp_path) -> None:
    found = diff(everywhere("plain")[0], everywhere(name)[0])
    assert str(found)
    read_svg(found.save(tmp_path / "x.svg").read_text())
