"""A report as an HTML table, as notebooks show it: a row for each problem, the verdict below; everything is escaped.

>>> to_html(report)
'<table>...<td>error</td><td>SF101</td><td>Linear takes 512, gets 64*H*W = 3136</td>...'
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from shapeflow.check.problem import Problem, Report
from shapeflow.check.sizes import sizes_text
from shapeflow.check.text import render_text

HEADS = ("level", "rule", "what", "where", "sizes that show it", "fix")

# Readable on light and on dark ground; the word tells without the colour.
COLORS = {"error": "#d0402b", "warning": "#b8760b", "note": "#3b82c4"}

LEFT = ' style="text-align: left; vertical-align: top"'


def to_html(report: Report) -> str:
    """The problems as a table, and the lines that end the report as text."""
    rows = "".join(f"<tr>{_row(problem)}</tr>\n" for problem in report.problems)
    heads = "".join(f"<th{LEFT}>{head}</th>" for head in HEADS)
    table = f"<table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n" if rows else ""
    return table + _paragraphs(_verdict(report))


def _verdict(report: Report) -> list[str]:
    """The report's own last lines: for which sizes it holds, and who asked for that."""
    lines = render_text(report).splitlines()
    return lines[len(lines) - 1 - len(report.conditions) :]


def _row(problem: Problem) -> str:
    level = f'<b style="color: {COLORS[problem.level]}">{problem.level}</b>'
    cells = [
        level,
        escape(problem.rule),
        "<br>".join(map(escape, (problem.message, *problem.details))),
        _where(problem),
        escape(sizes_text(problem.witness)) if problem.witness else "",
        escape(problem.fix),
    ]
    return "".join(f"<td{LEFT}>{cell}</td>" for cell in cells)


def _where(problem: Problem) -> str:
    place = f"{problem.file}:{problem.line}" if problem.line else problem.file
    module = f"in {problem.module}" if problem.module else ""
    code = f"<code>{escape(problem.code.strip())}</code>" if problem.code else ""
    return "<br>".join(part for part in (escape(place), escape(module), code) if part)


def _paragraphs(lines: Iterable[str]) -> str:
    return "".join(f"<p>{escape(line.strip())}</p>\n" for line in lines)
