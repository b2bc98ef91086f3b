"""DOT source laid out as a picture by Graphviz, the system's or the one that pygraphviz brings.

>>> render(to_dot(graph), "svg")[:5]
b'<?xml'

Graphviz always runs as a process of its own: the layout is C code that Ctrl-C cannot reach, and it may crash.
"""

from __future__ import annotations

import shutil
import subprocess
import sys

from shapeflow.errors import DrawError

PICTURES = ("svg", "png", "pdf")

BUNDLED = """\
import sys, pygraphviz
source = sys.stdin.buffer.read().decode("utf-8")
sys.stdout.buffer.write(pygraphviz.AGraph(string=source).draw(format=sys.argv[1], prog="dot"))
"""


def render(source: str, picture: str) -> bytes:
    """DOT source as `svg`, `png` or `pdf`; DrawError when it is another format or when Graphviz fails."""
    if picture not in PICTURES:
        raise DrawError(f"cannot draw {picture!r}: known are {', '.join(PICTURES)}")
    dot = shutil.which("dot")
    return _system(dot, source, picture) if dot else _bundled(source, picture)


def _system(dot: str, source: str, picture: str) -> bytes:
    done = _run([dot, f"-T{picture}"], source)
    if done.returncode < 0:  # killed by a signal: versions up to 2.43 crash on some large graphs
        return _bundled(source, picture)
    return _picture(done, "Graphviz")


def _bundled(source: str, picture: str) -> bytes:
    return _picture(_run([sys.executable, "-c", BUNDLED, picture], source), "pygraphviz's Graphviz")


def _picture(done: subprocess.CompletedProcess[bytes], who: str) -> bytes:
    if done.returncode or not done.stdout:
        reason = _last(done.stderr) or f"it stopped with status {done.returncode}"
        raise DrawError(f"{who} could not lay out the drawing: {reason}")
    return done.stdout


def _run(command: list[str], source: str) -> subprocess.CompletedProcess[bytes]:
    """`subprocess.run`, which kills the process when the wait is interrupted."""
    return subprocess.run(command, input=source.encode(), capture_output=True, check=False)


def _last(stderr: bytes) -> str:
    lines = stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""
