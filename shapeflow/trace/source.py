"""Where the user's code stands: the nearest frame that is neither torch's nor ours.

>>> here()
Location(file='model.py', line=12, code='return self.head(x)')
"""

from __future__ import annotations

import linecache
import sys
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType, TracebackType

from shapeflow.trace.result import Location

TOOLS = ("torch", "shapeflow", "jaxtyping", "beartype", "functools", "contextlib")
"""Packages whose frames are never the user's: operators, wrappers and checks."""

Place = tuple[CodeType, int]
_tool_code: dict[CodeType, bool] = {}


def is_tool(code: CodeType, module: str) -> bool:
    """Whether this code belongs to torch, to us or to a wrapper that checks types."""
    known = _tool_code.get(code)
    if known is None:
        generated = code.co_filename.startswith("<") and "beartype" in code.co_filename
        known = _tool_code[code] = generated or module.partition(".")[0] in TOOLS
    return known


def place(skip: int = 1) -> Place | None:
    """Code and line of the nearest user's frame: cheap, for every operator."""
    frame: FrameType | None = sys._getframe(skip)
    while frame is not None:
        code = frame.f_code
        known = _tool_code.get(code)
        if known is None:
            known = is_tool(code, frame.f_globals.get("__name__", ""))
        if not known:
            return code, frame.f_lineno
        frame = frame.f_back
    return None


def location(where: Place | None) -> Location | None:
    """A place with its source text, and with the file relative to the working directory where it lies below it."""
    if where is None:
        return None
    code, line = where
    return Location(short_path(code.co_filename), line, linecache.getline(code.co_filename, line).strip())


_texts: dict[Place, str] = {}


def stack_trace(where: Place | None) -> str | None:
    """The place as torch.fx keeps it in `node.meta["stack_trace"]`."""
    if where is None:
        return None
    text = _texts.get(where)
    if text is None:
        code, line = where
        source = linecache.getline(code.co_filename, line).strip()
        text = _texts[where] = f'  File "{code.co_filename}", line {line}, in {code.co_name}\n    {source}\n'
    return text


@lru_cache(maxsize=4096)
def short_path(file: str) -> str:
    """The path as a reader knows it: below the working directory, or from the installed package on."""
    path = Path(file)
    if path.is_relative_to(Path.cwd()):
        return str(path.relative_to(Path.cwd()))
    parts = path.parts
    if "site-packages" in parts:
        return str(Path(*parts[parts.index("site-packages") + 1 :]))
    return file


def place_of_error(trace: TracebackType | None) -> Place | None:
    """The innermost user's frame of a traceback."""
    found = None
    while trace is not None:
        code = trace.tb_frame.f_code
        if not is_tool(code, trace.tb_frame.f_globals.get("__name__", "")):
            found = code, trace.tb_lineno
        trace = trace.tb_next
    return found


def raised_by_user(trace: TracebackType | None) -> bool:
    """Whether the error comes from a `raise` or `assert` in the user's own code, not from inside an operator."""
    last = None
    while trace is not None:
        last, trace = trace, trace.tb_next
    return last is not None and not is_tool(last.tb_frame.f_code, last.tb_frame.f_globals.get("__name__", ""))


def raised_by_us(error: BaseException) -> bool:
    """Whether the error is a bug of the tracer: it arose in our code, and is not what a shape rule of ours says.

    A size divided by zero, the root of a negative one: that is arithmetic of the model's own. What `sf.enforce` refuses
    is refused in the user's name.
    """
    trace, module = error.__traceback__, ""
    while trace is not None:
        module, trace = trace.tb_frame.f_globals.get("__name__", ""), trace.tb_next
    ours = module.startswith("shapeflow.") and not module.startswith("shapeflow.runtime.")
    return ours and not isinstance(error, RuntimeError | ArithmeticError | ValueError)
