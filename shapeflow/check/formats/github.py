"""Reports as workflow commands of GitHub, which shows them on the changed lines.

>>> print(to_github(reports), end="")
::error file=net.py,line=9,title=SF101 in net.py%3ANet::Linear 'head' takes 512, gets 3136%0Afix: nn.Linear(3136, 10)

One line a problem. https://docs.github.com/en/actions/reference/workflow-commands: the text escapes `%` and line
ends, values of properties `:` and `,` as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from shapeflow.check.problem import Problem, Report
from shapeflow.check.text import remarks
from shapeflow.check.unique import unique

COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


def to_github(reports: Iterable[Report]) -> str:
    """A workflow command for each problem, each once."""
    return "".join(_command(problem, report.name) for report, problem in unique(reports))


def _command(problem: Problem, target: str) -> str:
    properties = {"title": f"{problem.rule} in {target}"}
    if problem.file:
        properties = {"file": Path(problem.file).as_posix(), "line": str(problem.line), **properties}
    written = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    text = "\n".join([problem.message, *remarks(problem)])
    return f"::{COMMANDS[problem.level]} {written}::{_data(text)}\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
