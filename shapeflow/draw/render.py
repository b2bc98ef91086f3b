"""Files from a graph, in the format that the suffix names.

>>> save(graph, "gpt.svg", depth=2)

A format is one line in `WRITERS`: a function from the graph and the options of `save` to the file's bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import networkx as nx

from shapeflow.draw.dot import to_dot
from shapeflow.draw.graphml import to_graphml
from shapeflow.draw.layout import render
from shapeflow.draw.mermaid import to_mermaid
from shapeflow.draw.page import to_html
from shapeflow.errors import DrawError
from shapeflow.graph import collapse, nodes, to_json
from shapeflow.graph.operations import Operations


class Writer(Protocol):
    """The whole graph as the bytes of a file; `options` are the other keywords of `save`, to use or to leave."""

    def __call__(
        self, graph: nx.MultiDiGraph, *, depth: int | None, sizes: Mapping[str, int] | None, **options: Any
    ) -> bytes: ...


def _dot(graph: nx.MultiDiGraph, **options: Any) -> bytes:
    return to_dot(graph, **options).encode()


def _picture(name: str) -> Writer:
    return lambda graph, **options: render(to_dot(graph, **options), name)


def _json(graph: nx.MultiDiGraph, *, depth: int | None = None, operations: Operations | None = None, **_: Any) -> bytes:
    shown = graph if depth is None else collapse(graph, depth)
    return to_json(shown, operations=operations).encode(errors="backslashreplace")  # as JSON writes half a character


def _mermaid(graph: nx.MultiDiGraph, **options: Any) -> bytes:
    return to_mermaid(graph, **options).encode()


def _graphml(graph: nx.MultiDiGraph, *, depth: int | None = None, **_: Any) -> bytes:
    return to_graphml(graph, depth=depth).encode()


def _html(
    graph: nx.MultiDiGraph,
    *,
    depth: int | None = None,
    sizes: Mapping[str, int] | None = None,
    operations: Operations | None = None,
    report: Any = None,
    theme: str = "light",
    **_: Any,
) -> bytes:
    own = "" if theme == "light" else theme  # light is what drawings are: no reader asked for it
    return to_html(graph, depth=depth, sizes=sizes, operations=operations, report=report, theme=own).encode()


WRITERS: Mapping[str, Writer] = {
    ".svg": _picture("svg"),
    ".png": _picture("png"),
    ".pdf": _picture("pdf"),
    ".dot": _dot,
    ".json": _json,
    ".mmd": _mermaid,
    ".graphml": _graphml,
    ".html": _html,
}


def save(
    graph: nx.MultiDiGraph,
    path: str | PathLike[str],
    *,
    depth: int | None = None,
    sizes: Mapping[str, int] | None = None,
    **options: Any,
) -> Path:
    """Write the drawing to `path`, in the format of its suffix; the file is whole or it is not there.

    Raises DrawError for a suffix that is no format, a graph with nothing in it, a place that cannot be written, or
    when Graphviz fails.
    """
    target = Path(path)
    writer = WRITERS.get(target.suffix.lower())
    if writer is None:
        raise DrawError(f"cannot draw to {target}: {_known(target.suffix.lower())}")
    _check_place(target)
    _check_graph(graph)
    _write(target, writer(graph, depth=depth, sizes=sizes, **options))
    return target


def write(path: str | PathLike[str], content: Callable[[], bytes]) -> Path:
    """Write a file of our own making, which is whole or is not there; it is made once the place is known to do."""
    target = Path(path)
    _check_place(target)
    _write(target, content())
    return target


def _known(suffix: str) -> str:
    said = f"{suffix} is not a format" if suffix else "the name has no suffix to tell the format"
    *others, last = WRITERS
    return f"{said}; use {', '.join(others)} or {last}"


def _check_graph(graph: nx.MultiDiGraph) -> None:
    if not graph.number_of_edges() and not any(node.kind in ("operator", "module") for node in nodes(graph)):
        name = graph.graph.get("name") or "the graph"
        raise DrawError(f"nothing to draw: {name} is empty; it ran no operator and passes no tensor on")


def _check_place(target: Path) -> None:
    """Tell before a long layout what would fail after it."""
    with _telling(target):
        if not target.parent.is_dir():
            raise DrawError(f"cannot write {target}: {target.parent} is not a directory; create it first")
        if target.is_dir():
            raise DrawError(f"cannot write {target}: it is a directory; name a file in it")


def _write(target: Path, content: bytes) -> None:
    """All or nothing: the content goes to a file beside the target, which then takes its place."""
    part = target.with_name(f".{target.name}.part")
    with _telling(target):
        try:
            part.write_bytes(content)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)


@contextmanager
def _telling(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DrawError(f"cannot write {target}: {error.strerror}; choose a place that you may write to") from error
