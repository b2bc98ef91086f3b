"""jaxtyping's own checks during a trace: names are given before each, and braces read symbolic values.

`"{t} {t}"` is text to jaxtyping: the value of `t`, formatted, is read back. A symbolic `t` formats to a name that
nobody can read back, so the axes in braces are worked out here, and jaxtyping compares sizes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from shapeflow.trace.names import Names

BRACES = re.compile(r"\{([^{}]*)\}")


@contextmanager
def checks_seen(names: Names) -> Iterator[None]:
    """Let `names` see each tensor that jaxtyping checks, before it does."""
    jaxtyping: Any = sys.modules.get("jaxtyping")
    if jaxtyping is None:
        yield
        return
    meta: Any = type(jaxtyping.AbstractArray)
    home: Any = sys.modules[meta.__module__]
    original, compare = meta.__instancecheck__, home._check_dims

    def check(annotation: Any, value: Any) -> bool:
        names.checked(value, annotation)
        return original(annotation, value)

    meta.__instancecheck__ = check
    home._check_dims = _reading_braces(home, compare)
    try:
        yield
    finally:
        meta.__instancecheck__ = original
        home._check_dims = compare


def _reading_braces(home: Any, compare: Callable[..., str]) -> Callable[..., str]:
    def check_dims(dims: Sequence[Any], shape: Any, sizes: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
        if any(_has_braces(dim) for dim in dims):
            dims = [_read(home, dim, sizes, arguments) if _has_braces(dim) else dim for dim in dims]
        return compare(dims, shape, sizes, arguments)

    return check_dims


def _has_braces(dim: Any) -> bool:
    text = getattr(dim, "elem", None)
    return isinstance(text, str) and "{" in text


def _read(home: Any, dim: Any, sizes: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any:
    """The axis with the size that its text comes to; as it is where that fails, for jaxtyping to say why."""
    values: dict[str, Any] = dict(sizes)

    def placed(match: re.Match[str]) -> str:
        value = eval(match[1], dict(arguments))  # what jaxtyping does with the same text
        if not isinstance(value, torch.SymInt):
            return str(value)
        name = f"_braces_{len(values)}"
        values[name] = value
        return name

    try:
        return home._FixedDim(eval(BRACES.sub(placed, dim.elem), values), dim.broadcastable)
    except NameError:
        return dim
