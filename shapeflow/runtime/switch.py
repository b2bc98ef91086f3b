"""Where checks are switched off: by the environment before code is imported, by a context manager while it runs.

SHAPEFLOW_ENFORCE=0 python train.py              # nothing is enforced: no wrapper is made
SHAPEFLOW_ENFORCE=my_package=0 python train.py   # this package is not

with sf.unenforced("my_package"):                # in this thread or task, until the block ends
    model(x)
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from shapeflow.errors import ConfigError

VARIABLE = "SHAPEFLOW_ENFORCE"
_ON, _OFF = ("1", "true", "on", "yes"), ("0", "false", "off", "no")


class _Somewhere:
    """Whether any thread is inside an `unenforced` block: what every call asks first, as it is the cheapest."""

    __slots__ = ("blocks", "lock")

    def __init__(self) -> None:
        self.blocks = 0
        self.lock = threading.Lock()


somewhere = _Somewhere()
EVERYTHING = ("",)
off: ContextVar[tuple[str, ...]] = ContextVar("shapeflow_unenforced", default=())
"""The packages that are off in this thread or task; EVERYTHING itself, compared by identity, where all are."""


@contextmanager
def unenforced(*packages: str) -> Iterator[None]:
    """Switch the checks off inside the block, for the packages named, or for all. It is a decorator too.

    It holds in the thread (or the asyncio task) that enters it; blocks nest, and an error leaves none behind. Threads
    that the block starts check again: what `nn.DataParallel` runs on its replicas does.
    """
    before = off.get()
    token = off.set((*before, *packages) if packages and before is not EVERYTHING else EVERYTHING)
    with somewhere.lock:
        somewhere.blocks += 1
    try:
        yield
    finally:
        with somewhere.lock:
            somewhere.blocks -= 1
        off.reset(token)


def is_off(module: str) -> bool:
    """Whether this thread is inside a block that covers a module."""
    return any(covers(name, module) for name in off.get())


def covers(package: str, module: str) -> bool:
    """Whether a module is the package, or lies in it; "" covers all."""
    return not package or module == package or module.startswith(f"{package}.")


def is_off_for_good(module: str) -> bool:
    """Whether the environment switches the checks of a module off.

    The last item that covers the module decides: `0`, `my_package=0`, or `0,my_package=1` for that package alone.
    Raises ConfigError for a value that says neither on nor off.
    """
    is_off = False
    for item in filter(None, map(str.strip, os.environ.get(VARIABLE, "").split(","))):
        package, equals, value = item.rpartition("=")
        if equals and not package:
            raise _unreadable(item)
        if value.lower() not in (*_ON, *_OFF):
            raise _unreadable(item)
        if covers(package.strip(), module):
            is_off = value.lower() in _OFF
    return is_off


def _unreadable(item: str) -> ConfigError:
    return ConfigError(f"{VARIABLE} holds {item!r}: write 0 or 1, or package=0, with commas between")
