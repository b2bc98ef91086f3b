"""What the checker found, at the nodes of a drawing.

>>> findings(graph, shown, sf.check(model, "B T:int64"))
{'view_3': (Finding(level='warning', text='SF301: heads are merged without a transpose'),)}

A problem has a line of the user's code and a module; so has a node. Of several operators on the line it is at those
that its message names. What is folded or closed shows the problems of all that it stands for.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import networkx as nx

from shapeflow.graph import Block, nodes
from shapeflow.graph.flow import members_of
from shapeflow.trace.result import Node

if TYPE_CHECKING:
    from shapeflow.check.problem import Problem, Report

NOWHERE = ""  # the key of what is at no node of the drawing: told in its title


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem as a drawing tells it: `level` is `error`, `warning` or `note`."""

    level: str
    text: str


def findings(graph: nx.MultiDiGraph, shown: nx.MultiDiGraph, report: Report) -> dict[str, tuple[Finding, ...]]:
    """The findings of a report by the node of `shown` that they are at; what is at none has the key `NOWHERE`."""
    told = [Finding(problem.level, f"{problem.rule}: {problem.message}") for problem in report.problems]
    places = numbers(graph, shown, report)
    return {name: tuple(dict.fromkeys(told[number] for number in found)) for name, found in places.items()}


def numbers(graph: nx.MultiDiGraph, shown: nx.MultiDiGraph, report: Report) -> dict[str, tuple[int, ...]]:
    """Which of the report's problems each node of `shown` has, by their numbers in it."""
    places: dict[str, list[int]] = defaultdict(list)
    for number, problem in enumerate(report.problems):
        for name in list(_places(graph, shown, problem)) or [NOWHERE]:
            places[name].append(number)
    return {name: tuple(found) for name, found in places.items()}


def _places(graph: nx.MultiDiGraph, shown: nx.MultiDiGraph, problem: Problem) -> Iterator[str]:
    """The drawn nodes at the problem's line, in its module where it tells one; else the first node of that module."""
    line = [node for node in nodes(graph) if _line(node) == (problem.file, problem.line)]
    inside = [node for node in line if _within(node, problem.module)]
    module = [node for node in nodes(graph) if problem.module and _within(node, problem.module)][:1]
    wanted = {node.name for node in _named(inside or line, problem.message) or module}
    return (name for name in shown if wanted.intersection(members_of(shown, name)))


def _named(found: list[Node | Block], message: str) -> list[Node | Block]:
    """The operators of a line that the message speaks of, or all of them where it speaks of none."""
    words = set(re.findall(r"\w+", message))
    return [node for node in found if isinstance(node, Node) and node.operator in words] or found


def _line(node: Node | Block) -> tuple[str, int] | None:
    where = node.location if isinstance(node, Node) else None
    return (where.file, where.line) if where else None


def _within(node: Node | Block, path: str) -> bool:
    return any(scope.path == path for scope in node.scopes)
