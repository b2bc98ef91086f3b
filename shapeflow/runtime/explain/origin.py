"""The exception that it all began with: below `raise ... from`, in a group, or in another thread's text.

>>> try:
...     model(x)
... except RuntimeError as error:
...     raise ValueError("bad batch") from error    # origin_of gives the RuntimeError
"""

from __future__ import annotations

import linecache
import re
import traceback
from collections.abc import Iterator
from pathlib import Path

import torch

from shapeflow.runtime.explain.stack import stack_of
from shapeflow.trace.result import Location
from shapeflow.trace.source import TOOLS, short_path

_FOLDERS = (str(Path(torch.__file__).parent), str(Path(__file__).parents[2]))
"""Where torch's code and ours lie."""
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>.+)$', flags=re.MULTILINE)


def leaves_of(error: BaseException) -> Iterator[Exception]:
    """The errors to explain: itself, or those in a group, each once."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from leaves_of(each)
    elif isinstance(error, Exception):
        yield error


def origin_of(error: Exception) -> Exception:
    """The error below, as far as one was turned into another: by `from`, or by a `raise` while it was handled."""
    seen = {id(error)}
    while (below := _below(error)) is not None and id(below) not in seen:
        error = below
        seen.add(id(error))
    return error


def _below(error: Exception) -> Exception | None:
    cause, context = error.__cause__, error.__context__
    if cause is None and not error.__suppress_context__ and stack_of(error).raises:
        cause = context
    return cause if isinstance(cause, Exception) and cause.__traceback__ is not None else None


def quoted_location(text: str) -> tuple[Location, str] | None:
    """The innermost user's line that an error's own text tells, and its function.

    A DataLoader's worker, a replica of DataParallel and torch.compile give their tracebacks as text only.
    """
    if "Original Traceback" not in text and "from user code" not in text:
        return None
    found = [each for each in _FRAME.finditer(text) if not _is_tools_file(each["file"])]
    if not found:
        return None
    file, line = found[-1]["file"], int(found[-1]["line"])
    return Location(short_path(file), line, linecache.getline(file, line).strip()), found[-1]["function"]


def _is_tools_file(file: str) -> bool:
    parts = Path(file).parts
    package = parts[parts.index("site-packages") + 1] if "site-packages" in parts[:-1] else ""
    return file.startswith(("<", *_FOLDERS)) or package.removesuffix(".py") in TOOLS


def reason(error: BaseException) -> str:
    """`RuntimeError: shape '[2]' is invalid`, in one line."""
    lines = "".join(traceback.TracebackException(type(error), error, None).format_exception_only()).splitlines()
    return lines[0] if lines else type(error).__name__
