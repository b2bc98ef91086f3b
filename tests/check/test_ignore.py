from dataclasses import replace
from textwrap import dedent

import pytest

from shapeflow.check.ignore import Comment, comments_in, silence
from shapeflow.check.problem import Problem, Report
from tests.check.reports import CRASH

SOURCE = dedent(
    """
    import torch

    class Net(nn.Module):  # shapeflow: ignore
        def __init__(self):
            self.head = nn.Linear(  # shapeflow: ignore[SF101]
                512,
                10,
            )
            text = "# shapeflow: ignore[SF301]"

        def forward(self, x):
            # shapeflow: ignore[SF302]
            y = x.view(3, 4)  # shapeflow: ignore[SF301, SF303]  # because it is meant
            return y  #shapeflow:ignore[ SF304 ]
    """
).lstrip()
RULES = ("SF101", "SF102", "SF301", "SF302", "SF303")


def comment(line: int, *rules: str) -> Comment:
    return Comment("net.py", line, "code", rules, line, line, alone=False)


def at(line: int, rule: str = "SF101", **fields) -> Problem:
    return Problem(rule, "error", "wrong", "net.py", line, **fields)


def test_comments_are_found() -> None:
    found = [(each.line, each.rules, each.first, each.last, each.alone) for each in comments_in(SOURCE)]
    assert found == [
        (3, (), 3, 3, False),
        (5, ("SF101",), 5, 8, False),
        (12, ("SF302",), 12, 12, True),
        (13, ("SF301", "SF303"), 13, 13, False),
        (14, ("SF304",), 14, 14, False),
    ]


def test_a_comment_inside_brackets_counts_for_the_statement() -> None:
    found = comments_in("x = f(\n    1,  # shapeflow: ignore[SF301]\n)\ny = 2\n")
    assert [(each.line, each.first, each.last) for each in found] == [(2, 1, 3)]


@pytest.mark.parametrize("source", ["def broken(:\n  # shapeflow: ignore\n", "x = (  # shapeflow: ignore\n", "\0"])
def test_what_does_not_parse_has_no_comments(source: str) -> None:
    assert comments_in(source) == []


@pytest.mark.parametrize("text", ["# shapeflow: ignored", "# flow: ignore", "# shapeflow ignore[SF301]"])
def test_other_comments(text: str) -> None:
    assert comments_in(f"x = 1  {text}\n") == []


@pytest.mark.parametrize(
    ("problem", "silenced"),
    [
        (at(5), True),
        (at(5, "SF102"), False),
        (at(6), False),
        (replace(at(5), file="other.py"), False),
        (at(3, details=("raised at net.py:5: return self.head(x)",)), True),
        (at(3, details=("raised at net.py:50: return self.head(x)",)), False),
        (at(3, details=("raised at other.py:5",)), False),
        (Problem("SF101", "error", "without a line"), False),
    ],
)
def test_silenced(problem: Problem, silenced: bool) -> None:
    assert comment(5, "SF101").silences(problem) is silenced


def test_a_bare_ignore_silences_every_rule() -> None:
    assert comment(5).silences(at(5, "SF304"))


def test_silence_counts_and_keeps_the_rest() -> None:
    report = Report("Net", (at(5), at(6), at(5, "SF301")))
    found = silence([report, Report("Other", (at(5),))], [comment(5, "SF101")], RULES)
    assert [[each.line for each in one.problems] for one in found.reports] == [[6, 5], []]
    assert found.ignored == 2
    assert found.stale == ()


@pytest.mark.parametrize(
    ("one", "message", "fix"),
    [
        (
            comment(7, "SF301"),
            "SF301 is not reported on this line: the ignore comment silences nothing",
            "remove the comment",
        ),
        (
            comment(7),
            "nothing is reported on this line: the ignore comment silences nothing",
            "remove the comment",
        ),
        (
            comment(7, "SF3011"),
            "the ignore comment names SF3011, which is no rule; did you mean SF301?",
            "remove the comment",
        ),
        (
            replace(comment(7, "SF301"), alone=True),
            "SF301 is not reported on this line: the ignore comment silences nothing",
            "put the comment on the line that it is about",
        ),
    ],
)
def test_a_comment_that_matches_nothing(one: Comment, message: str, fix: str) -> None:
    (stale,) = silence([Report("Net", (CRASH,))], [one], RULES).stale
    assert (stale.rule, stale.level, stale.file, stale.line) == ("SF404", "warning", "net.py", 7)
    assert stale.message == message
    assert stale.fix == fix


def test_one_of_several_ids_is_stale() -> None:
    found = silence([Report("Net", (at(7, "SF301"),))], [comment(7, "SF301", "SF302")], RULES)
    assert found.ignored == 1
    assert [each.message.split()[0] for each in found.stale] == ["SF302"]
