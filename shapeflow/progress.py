"""A line on the terminal for what lasts over a second; nothing where stderr is no terminal.

with progress("importing torch") as step:
    import torch
    step("building the model")
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.live import Live

PATIENCE = 1.0  # seconds before the line appears


@contextmanager
def progress(text: str) -> Iterator[Callable[[str], None]]:
    """Shows `text` while the block runs; the function that it yields changes the text."""
    line = _Line(text)
    if sys.stderr.isatty():
        line.start()
    try:
        yield line.show
    finally:
        line.stop()


class _Line:
    """A spinner, the text and the seconds. A timer starts it: it has to appear during one long import, too."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._began = time.monotonic()
        self._live: Live | None = None
        self._lock = threading.Lock()
        self._timer = threading.Timer(PATIENCE, self._appear)
        self._timer.daemon = True

    def start(self) -> None:
        self._timer.start()

    def show(self, text: str) -> None:
        self._text = text

    def stop(self) -> None:
        self._timer.cancel()
        with self._lock:
            if self._live is not None:
                self._live.stop()

    def _appear(self) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner

        spinner = Spinner("dots")

        def render() -> Spinner:
            spinner.update(text=f"{self._text} ({time.monotonic() - self._began:.0f} s)")
            return spinner

        with self._lock:
            if self._timer.finished.is_set():  # stopped while rich was imported
                return
            # not redirected: what the model prints while it runs stays on the stream that it chose
            self._live = Live(
                get_renderable=render,
                console=Console(stderr=True),
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
