"""Reports as JUnit's XML, one test case a target: errors are its failure, what could not be checked is skipped.

>>> print(to_junit(reports))
<?xml version='1.0' encoding='utf-8'?>
<testsuites name="shapeflow" tests="1" failures="1" errors="0" skipped="0" time="0.4">
...
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.etree import ElementTree

from shapeflow.check.problem import Problem, Report
from shapeflow.check.text import render_text

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(reports: Iterable[Report], *, strict: bool = False) -> str:
    """A suite with all reports; `strict` makes warnings failures."""
    reports = tuple(reports)
    cases = [_case(report, strict) for report in reports]
    counts = {
        "tests": len(cases),
        "failures": sum(case.find("failure") is not None for case in cases),
        "errors": 0,
        "skipped": sum(case.find("skipped") is not None for case in cases),
    }
    attributes = {"name": "shapeflow", **{name: str(count) for name, count in counts.items()}}
    attributes["time"] = f"{sum(report.seconds for report in reports):.3f}"
    root = ElementTree.Element("testsuites", attributes)
    ElementTree.SubElement(root, "testsuite", attributes).extend(cases)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(report: Report, strict: bool) -> ElementTree.Element:
    where, _, name = report.name.rpartition(":")
    attributes = {"classname": where or "shapeflow", "name": name, "time": f"{report.seconds:.3f}"}
    case = ElementTree.Element("testcase", {key: _clean(value) for key, value in attributes.items()})
    failing = [each for each in report.problems if each.level == "error" or (strict and each.level == "warning")]
    if failing:
        _child(case, "failure", failing, render_text(report))
    elif report.domain is None and report.problems:
        _child(case, "skipped", list(report.problems), "")
    text = "" if failing else render_text(report)
    if text:
        ElementTree.SubElement(case, "system-out").text = _clean(text)
    return case


def _child(case: ElementTree.Element, tag: str, problems: list[Problem], text: str) -> None:
    message = "; ".join(f"{problem.rule}: {problem.message}" for problem in problems)
    child = ElementTree.SubElement(case, tag, {"message": _clean(message)})
    if tag == "failure":
        child.set("type", problems[0].rule)
        child.text = _clean(text)


def _clean(text: str) -> str:
    """Without the characters that XML has no way to write."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
