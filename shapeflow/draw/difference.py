"""A difference as one drawing of both graphs: what is the same is closed, what changed is open and marked.

>>> save(diff(before, after), "diff.svg")

Added is blue with a thick border, removed orange and dashed, changed purple with a double one, so that a print without
colours tells the same. Neighbours that are alike, unchanged or with the same change, are drawn once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

import networkx as nx

from shapeflow.draw.changes import closing, facts
from shapeflow.draw.layout import render
from shapeflow.draw.markup import quoted
from shapeflow.draw.plan import Box, Frame, plan
from shapeflow.draw.render import write
from shapeflow.errors import DrawError
from shapeflow.graph import edges
from shapeflow.graph.difference import Difference

SUFFIXES = (".svg", ".png", ".pdf", ".dot")

STYLE = """\
  graph [rankdir=TB, newrank=true, nodesep=0.3, ranksep=0.35, labelloc=t, labeljust=l, pad=0.3, bgcolor=white]
  graph [fontname="Helvetica,Arial,sans-serif", fontsize=11, fontcolor="#1c2127"]
  node [shape=box, style="rounded,filled", fillcolor=white, color="#a9b0b8", height=0.3, margin="0.12,0.05"]
  node [fontname="Helvetica,Arial,sans-serif", fontsize=11, fontcolor="#1c2127"]
  edge [color="#7a838d", arrowsize=0.6, fontname="Helvetica,Arial,sans-serif", fontsize=9, fontcolor="#59626d"]"""

# Hues of Okabe and Ito, which stay apart for every kind of colour blindness.
ADDED, REMOVED, CHANGED = "#2a6ea6", "#b8660b", "#7a3aa8"
BOXES = {
    "+": f'fillcolor="#d9e8f5", color="{ADDED}", penwidth=2.5',
    "-": f'fillcolor="#fdf1e2", color="{REMOVED}", penwidth=1.6, style="rounded,filled,dashed"',
    "~": f'fillcolor="#f1e6f8", color="{CHANGED}", peripheries=2',
    " ": "",
}
LINES = {
    "+": f'color="{ADDED}", fontcolor="{ADDED}", penwidth=2',
    "-": f'color="{REMOVED}", fontcolor="{REMOVED}", style=dashed',
    "~": f'color="{CHANGED}", fontcolor="{CHANGED}"',
    " ": "",
}
KEY = "+ added: blue, thick     - removed: orange, dashed     ~ changed: purple, double"


def save(difference: Difference, path: str | PathLike[str]) -> Path:
    """Write the drawing in the format of the suffix: svg, png, pdf or dot."""
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix not in SUFFIXES:
        known = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
        raise DrawError(f"cannot draw a difference to {target}: its suffix has to be {known}")
    return write(target, lambda: _content(difference, suffix))


def _content(difference: Difference, suffix: str) -> bytes:
    source = to_dot(difference)
    return source.encode() if suffix == ".dot" else render(source, suffix[1:])


def to_dot(difference: Difference) -> str:
    """DOT source of both graphs in one. Same graphs, same text."""
    frame = plan(difference)
    names = {id(box): f"n{i}" for i, box in enumerate(frame.boxes())}
    names |= {id(inner): f"title{i}" for i, inner in enumerate(frame.frames())}
    before, after = difference.before.graph["name"], difference.after.graph["name"]
    told = [*facts(difference), closing(difference)] if difference else [[("no difference", "")]]
    about = [" ".join("".join(text for text, _ in line).split()) for line in told]
    return "\n".join(
        [
            f"digraph {quoted(after)} {{",
            STYLE,
            f"  label={_label((f'{before} -> {after}', *about, *frame.words, KEY), left=True)}",
            *_statements(frame, names, indent="  "),
            *_rows(frame, names),
            *_arrows(difference, frame, names),
            "}\n",
        ]
    )


def _label(words: tuple[str, ...], *, left: bool = False) -> str:
    end = "\\l" if left else "\\n"
    return f'"{end.join(quoted(word)[1:-1] for word in words)}{end if left else ""}"'


def _statements(frame: Frame, names: dict[int, str], *, indent: str) -> Iterator[str]:
    for item in frame.items:
        if isinstance(item, Box):
            shape = ", shape=ellipse" if item.kind in ("input", "output") else ""
            style = f", {BOXES[item.mark]}" if BOXES[item.mark] else ""
            yield f"{indent}{names[id(item)]} [label={_label(item.words)}{style}{shape}]"
        else:
            yield from _cluster(item, names, indent=indent)


def _cluster(frame: Frame, names: dict[int, str], *, indent: str) -> Iterator[str]:
    """A module's box. Its title is a node in the first row: beside it, where no edge runs into the words."""
    title, inner = names[id(frame)], indent + "  "
    yield f"{indent}subgraph cluster_{title} {{"
    color = CHANGED if frame.mark == "~" else "#c3cad2"
    yield f'{inner}style="rounded,filled"; fillcolor="#f7f8fa"; color="{color}"; label=""; tooltip=" "'
    yield f'{inner}{title} [label={_label(frame.words, left=True)}, shape=plaintext, style="", margin="0.02,0.02"]'
    yield from _statements(frame, names, indent=inner)
    yield f"{indent}}}"


def _rows(frame: Frame, names: dict[int, str]) -> Iterator[str]:
    """Each title in one row with the first box of its module."""
    for item in frame.items:
        if isinstance(item, Frame):
            yield f"  {{rank=same; {names[id(item)]}; {names[id(next(item.boxes()))]}}}"
            yield from _rows(item, names)


def _arrows(difference: Difference, frame: Frame, names: dict[int, str]) -> Iterator[str]:
    """The tensors of both graphs between the boxes; where both have one, its shape before and after."""
    boxes = list(frame.boxes())
    position = {names[id(box)]: i for i, box in enumerate(boxes)}
    old = _tensors(difference.before, {name: names[id(box)] for box in boxes for name in box.members(before=True)})
    new = _tensors(difference.after, {name: names[id(box)] for box in boxes for name in box.members(before=False)})
    for ends in sorted({*old, *new}, key=lambda ends: (position[ends[1]], position[ends[0]])):
        if position[ends[0]] < position[ends[1]]:  # others go from one of alike neighbours to the next
            was, now = list(old.get(ends, {})), list(new.get(ends, {}))
            for mark, label in _between(was, now):
                style = f", {LINES[mark]}" if LINES[mark] else ""
                yield f"  {ends[0]} -> {ends[1]} [label={quoted(f' {label} ')}{style}]"


def _between(old: list[str], new: list[str]) -> Iterator[tuple[str, str]]:
    """The arrows between two boxes: a mark and the shape for each."""
    if not old or not new:
        yield from (("+", shape) for shape in new)
        yield from (("-", shape) for shape in old)
        return
    stay = [shape for shape in new if shape in old]
    gone, come = [shape for shape in old if shape not in new], [shape for shape in new if shape not in old]
    yield from ((" ", shape) for shape in stay)
    yield from (("~", f"{a} -> {b}") for a, b in zip(gone, come, strict=False))
    yield from (("-", shape) for shape in gone[len(come) :])
    yield from (("+", shape) for shape in come[len(gone) :])


def _tensors(graph: nx.MultiDiGraph, home: dict[str, str]) -> dict[tuple[str, str], dict[str, None]]:
    """The different shapes that pass between each two boxes."""
    found: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for edge in edges(graph):
        mark = "" if "float" in edge.shape.dtype else f":{edge.shape.dtype}"
        found[home[edge.source], home[edge.target]][f"{edge.shape or 'scalar'}{mark}"] = None
    return found
