"""`shapeflow view`: writes the page and opens it."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from shapeflow.cli import app
from shapeflow.errors import ShapeflowError

ROOT = Path(__file__).parents[3]


@pytest.fixture
def opened(monkeypatch) -> list[str]:
    addresses: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: addresses.append(address) or True)
    monkeypatch.chdir(ROOT)
    return addresses


def view(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["view", *arguments])


def test_opens_a_temporary_file(opened):
    answer = view("models/gpt.py:toy")
    assert answer.exit_code == 0, answer.output
    path = Path(answer.stdout.strip())
    assert opened == [path.as_uri()]
    assert path.name == "GPT.html" and path.read_text().startswith("<!doctype html>")
    assert ROOT not in path.parents


def test_writes_where_it_is_told_and_opens_nothing(opened, tmp_path):
    path = tmp_path / "a.html"
    answer = view("models/gpt.py:toy", "B T:int64", "--output", str(path), "--no-open", "--at", "B=2,T=5")
    assert (answer.exit_code, answer.stdout.strip(), opened) == (0, str(path), [])
    html = path.read_text()
    assert '"sizes":{"B":2,"T":5}' in html and "16384*B*T" in html, "sizes are filled in, operations counted"


def test_a_machine_without_a_browser_tells_the_file(opened, monkeypatch, tmp_path):
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    answer = view("models/gpt.py:toy", "-o", str(tmp_path / "a.html"))
    assert answer.exit_code == 0
    assert re.search(r"note: no browser could be opened here; open .*a\.html in one", answer.output.replace("\n", " "))


FAULTY = """
from torch import nn


class Heads(nn.Module):
    def forward(self, x):
        b, t, _ = x.shape
        return x.view(b, t, 3, 4).transpose(1, 2).reshape(b, t, 12)
"""


def test_check_puts_findings_on_the_page_and_its_status_tells_errors(opened, tmp_path):
    (tmp_path / "faulty.py").write_text(FAULTY)
    page = tmp_path / "a.html"
    answer = view(f"{tmp_path}/faulty.py:Heads", "B T 12", "--check", "-o", str(page))
    assert answer.exit_code == 1 and "SF301" in answer.stderr
    assert opened == [page.as_uri()], "it is worth a look all the same"
    assert '"findings":[{"level":"error","rule":"SF301"' in page.read_text()


def test_operations_that_cannot_be_counted_are_told(opened, monkeypatch, tmp_path):
    def refuse(trace):
        raise ShapeflowError("no rule")

    monkeypatch.setattr("shapeflow.draw.page.operations_of", refuse)
    answer = view("models/gpt.py:toy", "--no-open", "-o", str(tmp_path / "a.html"))
    assert answer.exit_code == 0 and "note: operations are not counted: no rule" in answer.output
    assert '"counted":false' in (tmp_path / "a.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["models/gpt.py:toy", "-o", "gpt.svg"], r"--output gpt\.svg: the page is html; name it gpt\.html"),
        (["models/gpt.py:toy", "-o", "no/such/gpt.html"], r"cannot write .*no/such is not a directory"),
        (["models/gpt.py:toy", "--at", "Q=2"], r"--at Q=2: no size is called Q"),
        (["models/gpt.py:nothing"], r"nothing"),
    ],
)
def test_mistakes_are_told_and_open_nothing(opened, arguments, message):
    answer = view(*arguments)
    assert answer.exit_code == 2
    assert re.search(message, answer.output.replace("\n", " "))
    assert opened == []
