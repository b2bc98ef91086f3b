"""Where Graphviz puts the items of each sheet: one process lays out all sheets, the system's `dot` or pygraphviz's.

Lengths are in pixels, from the top left. Boxes have the size that their words need in the page's fonts.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from unicodedata import east_asian_width

from shapeflow.draw.page.sheet import Sheet
from shapeflow.errors import DrawError

FAN_OUT = 8  # an item that more than this read is named at each reader: lines to everywhere make layouts slow
LARGE = 300  # items, from which on bent lines and more rounds of improvement cost more than they give
LIMITS = ", nslimit=0.2, nslimit1=0.2, mclimit=0.3, splines=line"  # 600 items in 1.5 s; 5 s with straight lines alone
INCH = 72

# Of a sans-serif at 13 px in bold, at 11 px, and of a monospace at 11 px.
TITLE, ABOUT, LABEL = 7.5, 6.1, 6.7

BUNDLED = """\
import json, sys, pygraphviz
for source in json.load(sys.stdin):
    sys.stdout.write(pygraphviz.AGraph(string=source).draw(format="json0", prog="dot").decode("utf-8"))
"""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle by its centre."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Line:
    """Bezier points `x y x y ...`, the last of them the tip of the arrow; where its label starts, at half its height.

    Of a wire whose source is only named at its reader, `reference` is the box with the name.
    """

    points: tuple[float, ...]
    label: tuple[float, float] | None
    reference: Box | None = None


@dataclass(frozen=True, slots=True)
class Words:
    """What is written on a sheet: the lines of each item's box, and how many letters each line on a wire may need."""

    items: Sequence[Sequence[str]]
    wires: Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Layout:
    width: float
    height: float
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]


def lay_out(sheets: Sequence[Sheet], words: Sequence[Words]) -> list[Layout]:
    """The layout of each sheet. Raises DrawError when Graphviz fails."""
    sources = [_source(sheet, each) for sheet, each in zip(sheets, words, strict=True)]
    return [_read(*each) for each in zip(sheets, words, _run(sources), strict=True)]


def _source(sheet: Sheet, words: Words) -> str:
    """DOT without a word of the model in it: labels are as wide as the texts, but stand for them only."""
    referred = _referred(sheet)
    lines = ["digraph {", f"graph [nodesep=0.3, ranksep=0.3{LIMITS if len(sheet.items) > LARGE else ''}]"]
    lines += ['node [shape=box, fixedsize=true, label=""]', f'edge [fontname="Courier", fontsize={LABEL / 0.6:.2f}]']
    lines += [f"i{i} {_sized(_box(lines_of))}" for i, lines_of in enumerate(words.items)]
    for i, wire in enumerate(sheet.wires):
        tail = f"i{wire.source}"
        if wire.source in referred:
            tail = f"r{i}"
            lines.append(f"{tail} {_sized((_width(words.items[wire.source][0], ABOUT) + 14, 18))}")
        label = "\\n".join("x" * (letters + 2) for letters in words.wires[i])
        lines.append(f'{tail} -> i{wire.target} [id={i}, label="{label}"]')
    return "\n".join([*lines, "}"])


def _referred(sheet: Sheet) -> set[int]:
    readers = Counter(wire.source for wire in sheet.wires)
    return {item for item, n in readers.items() if n > FAN_OUT}


def _box(lines: Sequence[str]) -> tuple[float, float]:
    """Width and height of an item with a title and smaller lines."""
    title, *about = lines
    width = max([_width(title, TITLE), *(_width(line, ABOUT) for line in about)]) + 28
    return max(width, 56), 12 + 17 + 14 * len(about)


def _width(text: str, letter: float) -> float:
    return _cells(text) * letter


def _cells(text: str) -> int:
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def _sized(size: tuple[float, float]) -> str:
    return f"[width={size[0] / INCH:.4f}, height={size[1] / INCH:.4f}]"


def _run(sources: list[str]) -> Iterator[dict]:
    """Graphviz's answers, one JSON document after the other."""
    text = _system(sources) if shutil.which("dot") else _bundled(sources)
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        found, at = decoder.raw_decode(text, at)
        at += len(text[at:]) - len(text[at:].lstrip())
        yield found


def _system(sources: list[str]) -> str:
    done = subprocess.run(["dot", "-Tjson0"], input="\n".join(sources).encode(), capture_output=True, check=False)
    if done.returncode < 0:  # killed by a signal: versions up to 2.43 crash on some large graphs
        return _bundled(sources)
    return _answer("Graphviz", done)


def _bundled(sources: list[str]) -> str:
    command = [sys.executable, "-c", BUNDLED]
    done = subprocess.run(command, input=json.dumps(sources).encode(), capture_output=True, check=False)
    return _answer("pygraphviz's Graphviz", done)


def _answer(who: str, done: subprocess.CompletedProcess[bytes]) -> str:
    if done.returncode or not done.stdout:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        reason = said[-1] if said else f"it stopped with status {done.returncode}"
        raise DrawError(f"{who} could not lay out the page: {reason}")
    return done.stdout.decode()


def _read(sheet: Sheet, words: Words, found: dict) -> Layout:
    _, _, width, height = map(float, found["bb"].split(","))
    boxes = {each["name"]: _placed(each, height) for each in found.get("objects", ())}
    lines = {int(each["id"]): _line(each, words, height, boxes) for each in found.get("edges", ())}
    return Layout(
        width,
        height,
        tuple(boxes[f"i{i}"] for i in range(len(sheet.items))),
        tuple(lines[i] for i in range(len(sheet.wires))),
    )


def _placed(each: dict, height: float) -> Box:
    x, y = map(float, each["pos"].split(","))
    return Box(x, height - y, float(each["width"]) * INCH, float(each["height"]) * INCH)


def _line(each: dict, words: Words, height: float, boxes: dict[str, Box]) -> Line:
    tip, *points = (_point(word, height) for word in each["pos"].removeprefix("e,").split())
    label = None
    if "lp" in each:
        x, y = _point(each["lp"], height)
        label = x - max(words.wires[int(each["id"])]) * LABEL / 2, y
    return Line(tuple(n for point in [*points, tip] for n in point), label, boxes.get(f"r{each['id']}"))


def _point(word: str, height: float) -> tuple[float, float]:
    x, y = map(float, word.split(","))
    return x, height - y
