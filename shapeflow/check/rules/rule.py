"""What a rule is: an id, what it finds, and why, with a wrong and a right example that `shapeflow rules ID` prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from shapeflow.check.problem import Level, Problem


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of finding. `level` is its usual one; `find` is None for what runs, annotations and targets show."""

    id: str
    title: str
    level: Level
    doc: str
    find: Callable[[Any], Iterator[Problem]] | None = None
