"""What can be said of any operator: its name, the shapes that it got, and torch's own sentence."""

from __future__ import annotations

import re

from shapeflow.check.cause.call import Call, names_in
from shapeflow.check.cause.result import Cause


def fallback(call: Call) -> Cause:
    """Operator and shapes; the reason is torch's."""
    shapes = ", ".join(str(each) for each in call.tensors)
    reason = first_sentence(call.error)
    dims = names_in(*(dim for each in call.tensors for dim in each.dims if dim.symbols))
    at = f" in {call.path}" if call.path else ""
    return Cause(f"{call.operator}({shapes}){at}: {reason}", "", dims, call.location)


def first_sentence(error: str) -> str:
    """The first line of a message of torch, without what it says of C++."""
    line = error.splitlines()[0] if error else "no reason given"
    return re.sub(r"\s*Exception raised from .*", "", line).strip().rstrip(".")
