"""The head of a drawing: the model's name and numbers, what the names on the edges mean, what the colours mean.

>>> key(sheet)
'<<table ...'
"""

from __future__ import annotations

from collections.abc import Iterator

from shapeflow.draw.finding import NOWHERE
from shapeflow.draw.legend import legend, size_of, wrapped
from shapeflow.draw.look import SMALL, families
from shapeflow.draw.markup import Line, rich
from shapeflow.draw.palette import FAMILIES
from shapeflow.draw.sheet import Sheet
from shapeflow.graph import Block, edges

WIDTH = 64  # letters in a line
IN_A_ROW = 4  # colours
DRAWN = ("inputs", "outputs")  # the legend's entries that the drawing itself shows

TABLE = '<table border="0" cellborder="0" cellspacing="0" cellpadding="{padding}">'


def key(sheet: Sheet) -> str:
    """The head as an HTML-like label."""
    title = Line(sheet.graph.graph["name"], bold=True, size=15)
    rows = [rich([title], align="left"), rich(_facts(sheet), align="left"), *_colours(sheet)]
    cells = "".join(f'<tr><td align="left" balign="left">{row}</td></tr>' for row in rows if row)
    return f"<{TABLE.format(padding=2)}{cells}</table>>"


def _facts(sheet: Sheet) -> Iterator[Line]:
    entries = [entry for entry in legend(sheet.graph, sheet.labels) if entry[0] not in DRAWN]
    total = sheet.flops.get("", "")
    for text in (size_of(sheet.graph) + (f", {total}" if total else ""), *_entries(entries), *_types(sheet)):
        yield Line(text, size=SMALL, color=sheet.theme.faint)
    for finding in sheet.findings.get(NOWHERE, ()):
        for text in wrapped([finding.text], WIDTH):
            yield Line(text, size=SMALL, color=sheet.theme.error.line)


def _entries(entries: list[tuple[str, list[str]]]) -> Iterator[str]:
    for name, words in entries:
        yield from wrapped([f"{name}: {words[0]}", *words[1:]], WIDTH)


def _types(sheet: Sheet) -> list[str]:
    """The dtype that is not written on the edges, where it is not the one that everybody expects."""
    return [f"{sheet.labels.dtype} where an edge says no other"] if sheet.labels.dtype != "float32" else []


def _colours(sheet: Sheet) -> Iterator[str]:
    samples = [*_families(sheet), *_lines(sheet)]
    rows = ["".join(samples[first : first + IN_A_ROW]) for first in range(0, len(samples), IN_A_ROW)]
    if rows:
        yield TABLE.format(padding=1) + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"


def _families(sheet: Sheet) -> Iterator[str]:
    for family in families(sheet):
        paint = sheet.theme.fills[family]
        yield _sample(sheet, f'bgcolor="{paint.fill}" border="1" color="{paint.line}"', FAMILIES[family][0])
    if any(isinstance(sheet.graph.nodes[name]["node"], Block) for name in sheet.graph):
        paint = sheet.theme.block
        yield _sample(sheet, f'bgcolor="{paint.fill}" border="2" color="{paint.line}"', "closed module")


def _lines(sheet: Sheet) -> Iterator[str]:
    if sheet.straight:
        yield _sample(sheet, f'bgcolor="{sheet.theme.spine}"', "residual stream", height=3)
    if any(sheet.is_fresh(edge.shape) for edge in edges(sheet.graph)):
        yield _sample(sheet, f'bgcolor="{sheet.theme.fresh}"', "sizes that values decide", height=3)


def _sample(sheet: Sheet, style: str, text: str, *, height: int = 9) -> str:
    box = f'<td fixedsize="true" width="14" height="{height}" {style}></td>'
    return f'{box}<td align="left">{rich([Line(f"{text}  ", size=8, color=sheet.theme.faint)])}</td>'
