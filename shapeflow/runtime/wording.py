"""The words of an error: which value, what was declared, where they part, and what was bound before.

xs[1] of embed is declared Float "B d", but axis 1 is 4, and d is 3 (axis 1 of xs[0])
  xs[1] is a Tensor 2 4, float32, cpu
  bound before: B = 2 (axis 0 of xs[0]), d = 3 (axis 1 of xs[0])
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any, get_args

import torch

from shapeflow.runtime import memo
from shapeflow.runtime.bindings import Bindings, shape_text
from shapeflow.runtime.fit import Fault
from shapeflow.runtime.forms import Array, Either, Fields, Form, Items, Kind, Named, Other, Table, Tuple, Values


def said_of(fault: Fault, bindings: Bindings, owner: str) -> str:
    """The message for a value that does not fit, of the function `owner`."""
    lines = [f"{_place(fault.what)} of {owner} is declared {hint_text(fault.form)}, but {_reason(fault, bindings)}"]
    if isinstance(fault.value, torch.Tensor):
        lines.append(f"  {fault.what} is {value_text(fault.value)}")
    if bindings.names or bindings.groups:
        lines.append(f"  bound before: {bindings}")
    return "\n".join(lines)


def _place(what: str) -> str:
    """`parameter 'x'` in jaxtyping's words, so that what was written to match those goes on; an item by itself."""
    return f"parameter '{what}'" if what.isidentifier() else what


def _reason(fault: Fault, bindings: Bindings) -> str:
    if fault.note:
        return fault.note
    form, value = fault.form, fault.value
    if isinstance(form, Array) and hasattr(value, "shape") and hasattr(value, "dtype"):
        jaxtypings = memo.why_not(form.annotation, value)
        if " dtype " in jaxtypings:
            return f"its dtype is {_dtype(value)}"
        if "underlying array type" not in jaxtypings:
            return bindings.misfit(form.annotation, value.shape, fault.what) or jaxtypings
    return f"it is {value_text(value)}"


def value_text(value: Any) -> str:
    """A value on a line, a tensor without its numbers."""
    if isinstance(value, torch.Tensor):
        return f"a {type(value).__name__} {shape_text(value.shape)}, {_dtype(value)}, {value.device}"
    if value is None or isinstance(value, type):
        return str(value)
    kind = type(value).__name__
    article = "an" if kind[0] in "aeiouAEIOU" else "a"
    if hasattr(value, "shape") or isinstance(value, torch.nn.Module):
        return f"{article} {kind}"
    if isinstance(value, (list, tuple, set, frozenset, Mapping)):
        return f"{article} {kind} of {len(value)}"
    return f"{article} {kind}: {reprlib.repr(value)}"


def hint_text(form: Form) -> str:
    """A form as it is written in an annotation."""
    match form:
        case Array(annotation=annotation):
            array = getattr(annotation.array_type, "__name__", str(annotation.array_type))
            return f'{annotation.dtype.__name__}[{array}, "{annotation.dim_str}"]'
        case Kind(kind=kind):
            return "None" if kind is type(None) else _name(kind)
        case Values(values=values):
            return f"one of {', '.join(map(repr, values))}"
        case Either(options=options):
            return " | ".join(map(hint_text, options))
        case Tuple(items=items):
            return f"tuple[{', '.join(map(hint_text, items))}]"
        case Items(kind=kind, item=item):
            return f"{kind.__name__}[{hint_text(item)}{', ...' if kind is tuple else ''}]"
        case Table(kind=kind, key=key, item=item):
            return f"{kind.__name__}[{hint_text(key)}, {hint_text(item)}]"
        case Fields(kind=kind) | Named(kind=kind):
            return _name(kind)
        case Other(hint=hint):
            return _name(hint) if isinstance(hint, type) and not get_args(hint) else str(hint).replace("typing.", "")
    return "Any"


def _array_text(annotation: Any) -> str:
    return f'{annotation.dtype.__name__} "{annotation.dim_str}"'


def _name(kind: Any) -> str:
    """A class without the function that it is defined in."""
    return getattr(kind, "__qualname__", str(kind)).rpartition("<locals>.")[2]


def _dtype(value: Any) -> str:
    return str(value.dtype).removeprefix("torch.")
