"""jaxtyping's record of the sizes that names have in the running call: every private name of jaxtyping stands here.

A call pushes a record, `isinstance(x, Float[Tensor, "B T"])` reads and fills the one on top, and the call pops it. It
is jaxtyping's own, so that checks inside a function's body go on with the names of its arguments.

Checked on jaxtyping 0.3.11.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxtyping import AbstractArray, AnnotationError, TypeCheckError, config
from jaxtyping._storage import get_shape_memo, pop_shape_memo, push_shape_memo, set_shape_memo

__all__ = [
    "AbstractArray",
    "AnnotationError",
    "Record",
    "TypeCheckError",
    "bind",
    "disabled",
    "pop",
    "push",
    "record",
    "restore",
    "why_not",
]


@dataclass(frozen=True, slots=True)
class Record:
    """Sizes of names, shapes of variadic names, and structures of trees, as jaxtyping keeps them."""

    sizes: Mapping[str, Any]
    groups: Mapping[str, Any]
    trees: Mapping[str, Any]


def push(arguments: dict[str, Any], known: Record | None = None) -> None:
    """A new call begins, with these arguments; `known` is what an earlier call of the same shapes bound."""
    sizes, groups, trees, _ = push_shape_memo(arguments)
    if known is not None:
        sizes.update(known.sizes)
        if known.groups or known.trees:
            groups.update(known.groups)
            trees.update(known.trees)


def pop() -> None:
    """The call on top ends."""
    pop_shape_memo()


def record() -> Record:
    """A copy of what is bound in the call on top."""
    sizes, groups, trees, _ = get_shape_memo()
    return Record(dict(sizes), dict(groups), dict(trees))


def restore(known: Record) -> None:
    """Forget what was bound since `known` was taken."""
    *_, arguments = get_shape_memo()
    set_shape_memo(dict(known.sizes), dict(known.groups), dict(known.trees), arguments)


def bind(sizes: Mapping[str, int]) -> None:
    """Give names their sizes before any tensor is looked at."""
    get_shape_memo()[0].update(sizes)


def why_not(annotation: Any, value: Any) -> str:
    """jaxtyping's own reason why a value does not fit, or "" when it does."""
    return annotation.__instancecheck_str__(value)


def disabled() -> bool:
    """Whether jaxtyping's own switch (`JAXTYPING_DISABLE`) is off."""
    return bool(config.jaxtyping_disable)
