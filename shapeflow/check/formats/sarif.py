"""Reports as SARIF 2.1.0, which code scanning of GitHub and editors read.

>>> json.loads(to_sarif(reports))["runs"][0]["results"][0]["ruleId"]
'SF101'

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html; a test validates against its schema.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from shapeflow import __version__
from shapeflow.check.problem import Problem, Report
from shapeflow.check.rules import RULES
from shapeflow.check.text import remarks
from shapeflow.check.unique import unique

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
ROOT = "%SRCROOT%"
"""The name by which readers know the folder of the checkout: relative paths are below it."""


def to_sarif(reports: Iterable[Report]) -> str:
    """One run with all problems, each once."""
    found = list(unique(reports))
    rules = sorted({problem.rule for _, problem in found})
    driver = {"name": "shapeflow", "version": __version__, "rules": [_rule(each) for each in rules]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(problem, report, rules.index(problem.rule)) for report, problem in found],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False) + "\n"


def _rule(name: str) -> dict[str, Any]:
    rule = RULES.get(name)
    if rule is None:
        return {"id": name}
    doc = {"text": rule.doc.strip()}
    level = {"level": rule.level}
    return {"id": name, "shortDescription": {"text": rule.title}, "help": doc, "defaultConfiguration": level}


def _result(problem: Problem, report: Report, index: int) -> dict[str, Any]:
    told: dict[str, Any] = {"target": report.name, "dims": list(problem.dims)}
    if problem.witness is not None:
        told["witness"] = dict(problem.witness)
    if problem.fix:
        told["fix"] = problem.fix
    return {
        "ruleId": problem.rule,
        "ruleIndex": index,
        "level": problem.level,
        "message": {"text": "\n".join([problem.message, *remarks(problem)])},
        "locations": [_location(problem, report.name)],
        "partialFingerprints": {"shapeflow/v1": _fingerprint(problem)},
        "properties": told,
    }


def _location(problem: Problem, target: str) -> dict[str, Any]:
    path = ".".join(part for part in (target, problem.module) if part)
    location: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": path}]}
    if problem.file:
        physical: dict[str, Any] = {"artifactLocation": _artifact(problem.file)}
        if problem.line > 0:
            snippet = {"snippet": {"text": problem.code}} if problem.code else {}
            physical["region"] = {"startLine": problem.line, **snippet}
        location["physicalLocation"] = physical
    return location


def _artifact(file: str) -> dict[str, str]:
    if Path(file).is_absolute():
        return {"uri": Path(file).as_uri()}
    return {"uri": quote(str(PurePosixPath(*Path(file).parts))), "uriBaseId": ROOT}


def _fingerprint(problem: Problem) -> str:
    """The same for the same fault when lines above it change: the rule, the file and the text of the line."""
    text = "\0".join([problem.rule, problem.file, problem.module, problem.code or problem.message])
    return hashlib.sha256(text.encode()).hexdigest()[:32]
