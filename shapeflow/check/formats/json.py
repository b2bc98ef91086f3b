"""Reports as JSON. The fields stay as they are for one `version`; more may be added.

{
  "version": 1,
  "shapeflow": "0.1.0",                    the version that wrote it
  "ok": false,                             whether no target has an error
  "targets": [{
    "name": "net.py:Net",
    "ok": false,
    "domain": {"text": "B >= 1, T <= 512", "bounds": [{"name": "B", "low": 1, "high": null}], "relations": []},
    "conditions": [{"text": "T <= 512", "file": "net.py", "line": 9, "code": "...", "operator": "embedding"}],
    "problems": [{"rule": "SF101", "level": "error", "message": "...", "file": "net.py", "line": 9, "code": "...",
                  "module": "head", "dims": ["T"], "witness": {"T": 513}, "fix": "...", "details": ["..."]}],
    "runs": 7, "seconds": 0.4, "finished": true
  }]
}

`domain` is null when no run got through, `witness` is null where no size shows the problem, `file` is "" and `line` 0
where a problem has no line, `high` is null without an upper bound.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from shapeflow import __version__
from shapeflow.check.problem import Problem, Report
from shapeflow.trace.result import Condition, Domain

VERSION = 1


def to_json(reports: Iterable[Report]) -> str:
    """All reports as one document."""
    reports = tuple(reports)
    document = {
        "version": VERSION,
        "shapeflow": __version__,
        "ok": all(report.ok for report in reports),
        "targets": [_report(report) for report in reports],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _report(report: Report) -> dict[str, Any]:
    return {
        "name": report.name,
        "ok": report.ok,
        "domain": None if report.domain is None else _domain(report.domain),
        "conditions": [_condition(each) for each in report.conditions],
        "problems": [_problem(each) for each in report.problems],
        "runs": report.runs,
        "seconds": round(report.seconds, 3),
        "finished": report.finished,
    }


def _domain(domain: Domain) -> dict[str, Any]:
    bounds = [{"name": name, "low": low, "high": high} for name, low, high in domain.bounds]
    return {"text": str(domain), "bounds": bounds, "relations": list(domain.relations)}


def _condition(condition: Condition) -> dict[str, Any]:
    where = condition.location
    place = {"file": "", "line": 0, "code": ""}
    if where is not None:
        place = {"file": where.file, "line": where.line, "code": where.code}
    return {"text": condition.text, **place, "operator": condition.operator}


def _problem(problem: Problem) -> dict[str, Any]:
    return {
        "rule": problem.rule,
        "level": problem.level,
        "message": problem.message,
        "file": problem.file,
        "line": problem.line,
        "code": problem.code,
        "module": problem.module,
        "dims": list(problem.dims),
        "witness": None if problem.witness is None else dict(problem.witness),
        "fix": problem.fix,
        "details": list(problem.details),
    }
