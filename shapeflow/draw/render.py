"""Files from a graph: DOT source as it is; pictures through Graphviz, the system's or the one that pygraphviz brings.

>>> save(graph, "gpt.svg", depth=2)
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

import graphviz
import networkx as nx

from shapeflow.draw.dot import to_dot
from shapeflow.errors import DrawError

PICTURES = ("svg", "png", "pdf")
SUFFIXES = (".dot", *(f".{picture}" for picture in PICTURES))

# A process of its own: the layout is C code that Ctrl-C cannot reach, and that prints its warnings itself.
BUNDLED = """\
import sys, pygraphviz
source = sys.stdin.buffer.read().decode("utf-8")
sys.stdout.buffer.write(pygraphviz.AGraph(string=source).draw(format=sys.argv[1], prog="dot"))
"""


def save(
    graph: nx.MultiDiGraph,
    path: str | PathLike[str],
    *,
    depth: int | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Path:
    """Write the drawing to `path`, in the format of its suffix; the file is whole or it is not there.

    Raises DrawError for a suffix that is no format, a place that cannot be written, or when Graphviz fails.
    """
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix not in SUFFIXES:
        raise DrawError(f"cannot draw to {target}: {_known(suffix)}")
    _check_place(target)
    source = to_dot(graph, depth=depth, sizes=sizes)
    _write(target, source.encode() if suffix == ".dot" else render(source, suffix[1:]))
    return target


def render(source: str, picture: str) -> bytes:
    """DOT source as `svg`, `png` or `pdf`."""
    if picture not in PICTURES:
        raise DrawError(f"cannot draw {picture!r}: known are {', '.join(PICTURES)}")
    return _system(source, picture) if shutil.which("dot") else _bundled(source, picture)


def _known(suffix: str) -> str:
    said = f"{suffix} is not a format" if suffix else "the name has no suffix to tell the format"
    return f"{said}; use {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"


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


def _system(source: str, picture: str) -> bytes:
    try:
        return graphviz.pipe("dot", picture, source.encode(), quiet=True)
    except graphviz.CalledProcessError as error:
        if error.returncode < 0:  # killed by a signal: versions up to 2.43 crash on some large graphs
            return _bundled(source, picture)
        raise DrawError(f"Graphviz could not lay out the drawing: {_last(error.stderr)}") from error


def _bundled(source: str, picture: str) -> bytes:
    command = [sys.executable, "-c", BUNDLED, picture]
    done = subprocess.run(command, input=source.encode(), capture_output=True, check=False)
    if done.returncode or not done.stdout:
        reason = _last(done.stderr) or f"it stopped with status {done.returncode}"
        raise DrawError(f"pygraphviz's Graphviz could not lay out the drawing: {reason}")
    return done.stdout


def _last(stderr: bytes | None) -> str:
    lines = (stderr or b"").decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""
