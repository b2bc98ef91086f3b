"""What a check tells: problems, each with its line, a witness and a fix, and the sizes that the model holds for.

>>> report = sf.check(model, "B T:int64")
>>> report.ok, str(report.domain)
(True, 'B >= 1, 1 <= T <= 512')
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from shapeflow.trace.result import Condition, Domain, Location

Level: TypeAlias = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding. `file`, `line` and `code` are where the fault is, which need not be where torch raises.

    `message` is one sentence in the model's own names; `details` are more lines (where it raised, both shapes).
    `dims` are the names concerned; `witness` are sizes that were run and show the problem, None where no size
    does (a silent fault). `fix` is what would be right, `""` when nobody can say.
    """

    rule: str
    level: Level
    message: str
    file: str = ""
    line: int = 0
    code: str = ""
    module: str = ""
    dims: tuple[str, ...] = ()
    witness: Mapping[str, int] | None = None
    fix: str = ""
    details: tuple[str, ...] = ()

    def at(self, where: Location | None) -> Problem:
        """The same problem at a line of the user's code; unchanged where there is none."""
        return self if where is None else replace(self, file=where.file, line=where.line, code=where.code)


@dataclass(frozen=True, slots=True)
class Report:
    """What the check of one target found. `domain` is None when no run got through.

    `conditions` are the comparisons behind the domain, each with the line that asks. `runs` counts the runs at
    different sizes; `finished` is False when a limit of time stopped the search (what was found so far stands).
    """

    name: str
    problems: tuple[Problem, ...] = ()
    domain: Domain | None = None
    conditions: tuple[Condition, ...] = ()
    runs: int = 0
    seconds: float = field(default=0.0, compare=False)
    finished: bool = True

    @property
    def ok(self) -> bool:
        """Whether there is no error; warnings and notes may be there."""
        return not any(problem.level == "error" for problem in self.problems)

    def __str__(self) -> str:
        from shapeflow.check.text import render_text

        return render_text(self)

    def _repr_html_(self) -> str:
        from shapeflow.check.formats.html import to_html

        return to_html(self)

    def to_json(self) -> str:
        """The report as JSON, in the form that `shapeflow.check.formats.json` describes."""
        from shapeflow.check.formats.json import to_json

        return to_json([self])

    def to_sarif(self) -> str:
        """The report as SARIF 2.1.0."""
        from shapeflow.check.formats.sarif import to_sarif

        return to_sarif([self])
