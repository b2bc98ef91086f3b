"""The page as one text: style, script and data are in it, and nothing else is ever loaded.

Names come from the model. They travel as JSON, whose `<` is escaped so that no `</script>` can end it, and the script
writes them as text only; a policy in the page's head lets no other script run, whatever they say. Letters that nobody
sees, or that turn round what stands beside them, are shown as such.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import networkx as nx

from shapeflow.draw.page.book import book
from shapeflow.draw.page.colours import colours
from shapeflow.draw.palette import theme_of
from shapeflow.graph.operations import Operations

if TYPE_CHECKING:
    from shapeflow.check.problem import Report

# One closure in this order: what comes later reads what comes before.
SCRIPTS = ("formula", "book", "flow", "camera", "sheet", "findings", "panel", "contents", "search", "page")
HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)  # control characters but for tabs and new lines, those for the direction of writing, halves of characters
ESCAPED = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&"}


def to_html(
    graph: nx.MultiDiGraph,
    *,
    depth: int | None = None,
    sizes: Mapping[str, int] | None = None,
    operations: Operations | None = None,
    report: Report | None = None,
    theme: str = "",
) -> str:
    """The whole page. Same graph, same text.

    Modules deeper than `depth` do not open; `sizes` (name -> number) are filled in for the reader, who may change them.
    `operations` (see `operations_of`) are told in the panel. What `report` (of `sf.check`) found is red where it is and
    listed to jump from one to the next. `theme` is `"light"`, `"dark"`, or what the reader's system says; there is a
    button for it in any case.
    """
    found = _shown(book(graph, depth=depth, sizes=sizes, operations=operations, report=report))
    data = json.dumps(found, separators=(",", ":")).translate(ESCAPED)
    style = colours() + _file("page.css")
    script = '"use strict";\n{\n' + "\n".join(_file(f"{name}.js") for name in SCRIPTS) + "}\n"
    if theme:
        theme_of(theme)  # raises for another word
    parts = {
        "theme": f' data-theme="{theme}"' if theme else "",
        "title": escape(found["name"]),
        "policy": _policy(style, script),
        "style": style,
        "data": data,
        "script": script,
    }
    page = _file("page.html")
    for name, text in parts.items():
        before, mark, after = page.partition(f"<!--{name}-->")
        assert mark, name
        page = before + text + after
    return page


def _shown(value: Any) -> Any:
    """The same data with a sign in the place of each hidden letter in its texts."""
    if isinstance(value, str):
        return HIDDEN.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_shown(name): _shown(item) for name, item in value.items()}
    return [_shown(item) for item in value] if isinstance(value, list | tuple) else value


def _file(name: str) -> str:
    return (files("shapeflow.draw.page") / name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """Nothing is loaded but the empty icon; only this style and this script count."""
    allowed = f"img-src data:; style-src '{_digest(style)}'; script-src '{_digest(script)}'"
    return f"default-src 'none'; base-uri 'none'; form-action 'none'; {allowed}"


def _digest(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()
