"""Text for DOT, whatever is in it: names come from the model, and none of them may be read as markup.

>>> quoted('say "hi"')
'"say \\\\"hi\\\\""'
>>> html(Line("linear", bold=True), Line("a < b", size=9))
'<<b>linear</b><br/><font point-size="9">a &lt; b</font>>'
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a label; `mark` follows the text in `mark_color`, bold."""

    text: str
    bold: bool = False
    size: float = 0
    color: str = ""
    mark: str = ""
    mark_color: str = ""


def quoted(text: str) -> str:
    r"""A DOT string that shows `text` as it is: `\N` and `&lt;` would otherwise be read as markup."""
    shown = _printable(text).replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')
    return '"' + shown.replace("\n", "\\n") + '"'


def html(*lines: Line, align: str = "") -> str:
    """An HTML-like label of these lines; empty ones are left out."""
    return f"<{rich(lines, align=align)}>"


def rich(lines: Iterable[Line], *, align: str = "") -> str:
    end = f'<br align="{align}"/>' if align else "<br/>"
    shown = [_line(line) for line in lines if line.text or line.mark]
    return end.join(shown) + (end if align else "")


def _line(line: Line) -> str:
    text = f"<b>{markup(line.text)}</b>" if line.bold and line.text else markup(line.text)
    if line.mark:
        text += f'<font color="{line.mark_color}"><b>{"  " if line.text else ""}{markup(line.mark)}</b></font>'
    size = f' point-size="{line.size:g}"' if line.size else ""
    color = f' color="{line.color}"' if line.color else ""
    return f"<font{size}{color}>{text}</font>" if size or color else text


def markup(text: str) -> str:
    r"""Text for an HTML-like label, where a single backslash still starts a substitution (`\N`)."""
    return escape(_printable(text)).replace("\\", "\\\\").replace("\n", "<br/>")


def _printable(text: str) -> str:
    """Control characters would end a C string or make the SVG ill-formed."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in text)
