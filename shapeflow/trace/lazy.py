"""Lazy modules have no shapes before a first forward: a copy is given them, the user's module stays lazy.

    >>> subject, inputs, named = materialised(subject, inputs, named)
"""

from __future__ import annotations

import copy
from typing import Any

from torch import nn

from shapeflow.trace.attempt import Subject


def materialised(subject: Subject, inputs: tuple[Any, ...], named: dict[str, Any]) -> tuple[Subject, Any, Any]:
    """The subject itself, or a copy whose lazy parameters become fakes when its forward first meets them."""
    root = subject.root
    if root is None or not any(nn.parameter.is_lazy(each) for each in [*root.parameters(), *root.buffers()]):
        return subject, inputs, named
    twin = copy.deepcopy(root)
    return Subject(twin, twin, subject.name), inputs, named
