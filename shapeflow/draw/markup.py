"""Text for DOT, whatever is in it: names come from the model, and none of them may be read as markup.

>>> quoted('say "hi"'), html("linear", "a < b")
('"say \\\\"hi\\\\""', '<<b>linear</b><br/><font point-size="9">a &lt; b</font>>')
"""

from __future__ import annotations

from html import escape


def quoted(text: str) -> str:
    r"""A DOT string that shows `text` as it is: `\N` and `&lt;` would otherwise be read as markup."""
    shown = _printable(text).replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')
    return '"' + shown.replace("\n", "\\n") + '"'


def html(title: str, *details: str, align: str = "") -> str:
    """An HTML-like label: a bold title, smaller lines below it."""
    end = f'<br align="{align}"/>' if align else "<br/>"
    small = end.join(_markup(detail) for detail in details if detail)
    below = f'{end}<font point-size="9">{small}</font>' if small else ""
    return f"<<b>{_markup(title)}</b>{below}{end if align else ''}>"


def _markup(text: str) -> str:
    r"""Text for an HTML-like label, where a single backslash still starts a substitution (`\N`)."""
    return escape(_printable(text)).replace("\\", "\\\\").replace("\n", "<br/>")


def _printable(text: str) -> str:
    """Control characters would end a C string or make the SVG ill-formed."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in text)
