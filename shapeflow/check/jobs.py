"""What goes between the process that reports and those that check.

>>> Job("models/gpt.py", is_file=True, limit=60.0)
>>> Checked(report, spans=(Span("models/gpt.py", 10, 42),))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shapeflow.check.problem import Report


@dataclass(frozen=True, slots=True)
class Job:
    """One target with its inputs, or all targets of one file; `done` are those that another process has checked.

    `is_named`: the user asked for it by its name, so that it is a mistake when it cannot be run.
    """

    target: str
    is_file: bool = False
    inputs: tuple[str, ...] = ()
    arguments: Mapping[str, object] = field(default_factory=dict)
    hints: Mapping[str, int] = field(default_factory=dict)
    limit: float | None = None
    ignore: frozenset[str] = frozenset()
    is_named: bool = True
    done: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Span:
    """Lines of a file, both ends included."""

    file: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Checked:
    """A report, the lines of code that the check has seen, and what to know of how the target was made."""

    report: Report
    spans: tuple[Span, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Done:
    """All of a job: what was checked, in the order of the file, and why it could not be run, `""` where it could."""

    job: Job
    checked: tuple[Checked, ...] = ()
    failed: str = ""
    seconds: float = 0.0
