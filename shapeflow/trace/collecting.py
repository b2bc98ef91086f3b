"""Many objects that live, made without the garbage collector, which would walk over all of torch's to find nothing.

>>> with without_collection():
...     trace.nodes
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """One full collection takes 0.3 s with torch loaded, and comes at any of the objects that a trace is made of."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
