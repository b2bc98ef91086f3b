"""`Cause`: why a call raised and what would be right; `Repair`: a change of a layer that the caller can prove.

>>> cause.message, cause.fix
("Linear 'head' takes 10, gets 490 = 10*7*7: flatten is right, in_features is not", 'nn.Linear(10 * 7 * 7, 5)')
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from shapeflow.trace.result import Location


@dataclass(frozen=True, slots=True)
class Repair:
    """Other arguments of a layer's constructor: `changes` are (name, value) pairs, `fix` is the call as it would read.

    `message` and `location` say what was wrong if this repair is proved right; `also` are paths of more layers with
    the same fault, which are changed with it.
    """

    root: nn.Module = field(repr=False, compare=False)
    path: str
    changes: tuple[tuple[str, Any], ...]
    fix: str
    message: str = ""
    location: Location | None = None
    also: tuple[str, ...] = ()

    @property
    def attribute(self) -> str:
        return self.changes[0][0]

    @property
    def value(self) -> Any:
        return self.changes[0][1]


@dataclass(frozen=True, slots=True)
class Cause:
    """One sentence, the fix (`""` when nobody can say), the names concerned, the line at fault, more lines.

    `candidates` are repairs in the order of their likelihood; `proved` is the cause with the one that a run confirmed.
    """

    message: str
    fix: str = ""
    dims: tuple[str, ...] = ()
    location: Location | None = None
    details: tuple[str, ...] = ()
    candidates: tuple[Repair, ...] = ()

    def proved(self, repair: Repair) -> Cause:
        """The cause, now that this repair has been run."""
        message, where = repair.message or self.message, repair.location or self.location
        return replace(self, message=message, fix=repair.fix, location=where, candidates=(repair,))
