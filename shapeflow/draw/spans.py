"""Lines of styled text as HTML for notebooks; everything in them is escaped.

>>> pre([[("+ ", "green"), ("<img>", "bold")]])
'<pre style="..."><span style="color:#11805f">+ </span><span style="font-weight:bold">&lt;img&gt;</span></pre>'
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

Segment = tuple[str, str]  # text, rich style

# Rich's names for what the reports use, in colours that are readable on light and on dark ground.
CSS = {
    "bold": "font-weight:bold",
    "dim": "opacity:0.65",
    "italic": "font-style:italic",
    "red": "color:#d0402b",
    "yellow": "color:#b8760b",
    "green": "color:#11805f",
    "blue": "color:#3b82c4",
    "cyan": "color:#0b8aa0",
    "magenta": "color:#a1529f",
    "dark_orange": "color:#cf6a00",
}


def pre(lines: Iterable[Iterable[Segment]]) -> str:
    """The lines as they stand, in letters of one width."""
    text = "\n".join("".join(span(*segment) for segment in line) for line in lines)
    return f'<pre style="line-height:1.4;white-space:pre;overflow-x:auto">{text}</pre>'


def span(text: str, style: str = "") -> str:
    css = ";".join(CSS[word] for word in style.split() if word in CSS)
    return f'<span style="{css}">{escape(text)}</span>' if css else escape(text)
