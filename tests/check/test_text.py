import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from shapeflow.check.problem import Problem, Report
from shapeflow.check.rules import Rule
from shapeflow.check.text import remarks, render_outcome, render_rich, render_rule, render_rules, render_text
from shapeflow.trace.result import Domain
from tests.check.reports import CRASH, CRASHED, HOLDS, LOST, SHARED, SILENT, STOPPED, UNBUILT


def lines(text: object) -> list[str]:
    return str(text).splitlines()


def test_every_line_of_a_problem() -> None:
    assert lines(CRASHED)[:9] == [
        "error SF101: Linear 'head' takes 512, gets 64*H*W = 3136 at H = W = 7",
        "  net.py:12, in head",
        "   12 | self.head = nn.Linear(512, 10)  # BUG",
        "      | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
        "  witness: B = 3, H = 7, W = 7",
        "  fix: nn.Linear(3136, 10)",
        "  raised at net.py:20: return self.head(x.flatten(1))",
        "  linear(x: B 3136, head.weight: 10 512)",
        "",
    ]


def test_the_verdict_ends_a_report() -> None:
    assert lines(CRASHED)[-1] == "net.py:Net: no run got through; 1 error, 1 warning (3 runs, 0.1 s)"
    assert lines(HOLDS) == [
        "net.py:Encoder: holds for all B >= 1, 1 <= T <= 512, H % 32 == 0; nothing found (7 runs, 1.3 s)",
        "  T <= 512  net.py:9",
    ]
    assert lines(UNBUILT)[-1] == "net.py:Block: not checked"


def test_a_search_that_was_stopped_says_so() -> None:
    last = "Net: holds: its sizes are fixed; 1 warning (2 runs, 1.0 s); stopped before every question was tried"
    assert lines(STOPPED)[-1] == last


def test_a_problem_without_a_line() -> None:
    report = Report("Net", (Problem("SF107", "error", "the result is B 5"),), Domain((), ()), runs=1)
    assert lines(report)[:2] == ["error SF107: the result is B 5", ""]


def test_a_problem_in_a_module_without_a_line() -> None:
    report = Report("Net", (Problem("SF315", "warning", "nothing depends on it", module="blocks.0"),), runs=1)
    assert lines(report)[1] == "  blocks.0"


@pytest.mark.parametrize(
    ("source", "code", "excerpt"),
    [
        ("\n    y = x\n", "y = x", ["    2 |     y = x", "      |     ^^^^^"]),
        ("\n\ty = x\n", "y = x", ["    2 |     y = x", "      |     ^^^^^"]),
        ("\n  s = '寸法'\n", "s = '寸法'", ["    2 |   s = '寸法'", "      |   ^^^^^^^^^^"]),
        ("\n    changed\n", "y = x", ["    2 | y = x", "      | ^^^^^"]),
        ("\n", "", []),
    ],
    ids=["indented", "tab", "wide letters", "another text by now", "nothing to show"],
)
def test_excerpt(tmp_path: Path, source: str, code: str, excerpt: list[str]) -> None:
    file = tmp_path / "net.py"
    file.write_text(source, encoding="utf-8")
    problem = Problem("SF301", "error", "wrong", str(file), 2, code)
    assert lines(Report("Net", (problem,)))[2:-2] == excerpt


def test_remarks_are_for_formats_without_colours() -> None:
    assert remarks(CRASH)[:2] == ["witness: B = 3, H = 7, W = 7", "fix: nn.Linear(3136, 10)"]
    assert remarks(SILENT) == []


def test_one_report_has_no_line_of_counts() -> None:
    assert render_outcome([HOLDS]).plain == render_text(HOLDS)
    assert lines(render_outcome([HOLDS], ignored=2).plain)[-1] == "2 ignored"


def test_many_reports_tell_a_fault_once() -> None:
    text = lines(render_outcome([CRASHED, SHARED, HOLDS, UNBUILT], ignored=1).plain)
    start = text.index("warning SF301: as in net.py:Net")
    assert text[start - 1 : start + 4] == [
        "",
        "warning SF301: as in net.py:Net",
        "  net.py:30",
        "",
        "net.py:Model: holds for all B >= 1, 1 <= T <= 512, H % 32 == 0; 1 warning (1 run, 0.0 s)",
    ]
    last = "4 targets: 2 hold, 1 has errors, 1 not checked; 1 error, 1 warning, 1 note; 1 ignored"
    assert text[-2:] == ["", last]


def test_reports_without_problems_stand_close() -> None:
    text = lines(render_outcome([replace(HOLDS, conditions=()), replace(HOLDS, conditions=())]).plain)
    assert [line.partition(":")[0] for line in text] == ["net.py", "net.py", "", "2 targets"]
    assert text[-1] == "2 targets: 2 hold; nothing found"


def test_nothing_to_check() -> None:
    assert render_outcome([]).plain == "nothing to check"


def test_a_line_is_never_read_as_markup() -> None:
    problem = replace(LOST, message="[red]not red[/red] [/]", code="x[bold]")
    assert "[red]not red[/red] [/]" in render_rich(Report("Net", (problem,))).plain


def test_plain_where_there_is_no_terminal() -> None:
    console = Console(file=sys.__stdout__, force_terminal=False)
    with console.capture() as captured:
        console.print(render_rich(CRASHED), soft_wrap=True)
    assert captured.get().rstrip("\n") == str(CRASHED)


def test_colours_in_a_terminal() -> None:
    console = Console(force_terminal=True, color_system="standard", _environ={})
    with console.capture() as captured:
        console.print(render_rich(CRASHED), soft_wrap=True)
    assert "\x1b[1;31merror SF101" in captured.get()


def test_rules() -> None:
    rule = Rule(
        id="SF301", title="a reshape interleaves axes", level="error", doc="Why.\n\n    wrong\n\nEnd.", find=None
    )
    other = replace(rule, id="SF315", level="warning", title="unused")
    assert render_rules([rule, other]).plain.splitlines() == [
        "SF301  error    a reshape interleaves axes",
        "SF315  warning  unused",
    ]
    assert render_rule(rule).plain.splitlines() == [
        "SF301  error  a reshape interleaves axes",
        "",
        "Why.",
        "",
        "    wrong",
        "",
        "End.",
        "",
        "To silence it on a line:  # shapeflow: ignore[SF301]",
    ]
