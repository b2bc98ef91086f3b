"""A report in a notebook."""

from html.parser import HTMLParser

import torch
from torch import nn

import shapeflow as sf
from models.gpt import toy as gpt
from shapeflow.check.problem import Problem, Report
from shapeflow.trace.result import Domain


class Cells(HTMLParser):
    """The texts of a table's cells, and every tag that occurs."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.tags: set[str] = set()
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        if tag in ("td", "th", "p"):
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.cells and data.strip():
            self.cells[-1] += data


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(512, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x.flatten(1))


def test_a_row_for_each_problem_and_the_verdict() -> None:
    report = sf.check(Head(), "B 64 7 7")
    page = Cells(report._repr_html_())
    assert page.cells[:6] == ["level", "rule", "what", "where", "sizes that show it", "fix"]
    assert page.cells[6:8] == ["error", "SF101"]
    assert "512" in page.cells[8]
    assert "test_html.py:" in page.cells[9]
    assert "nn.Linear(64 * 7 * 7, 10)" in page.cells[11]
    assert page.cells[-1].startswith("Head: ")


def test_nothing_found_is_the_verdict_alone() -> None:
    page = Cells(sf.check(gpt(), "B T<=64:int64")._repr_html_())
    assert page.tags == {"p"}
    assert page.cells[0].startswith("GPT: holds for all B >= 1, 1 <= T <= 64; nothing found")


def test_everything_is_escaped() -> None:
    evil = "<img src=x onerror=alert(1)>"
    problem = Problem("SF101", "error", evil, evil, 3, evil, evil, ("T",), {evil: 2}, evil, (evil,))
    page = Report(evil, (problem,), Domain(((evil, 1, None),), (evil,)))._repr_html_()
    assert "<img" not in page
    assert Cells(page).tags == {"table", "thead", "tbody", "tr", "th", "td", "b", "br", "code", "p"}
    assert Cells(page).cells[8] == evil * 2
