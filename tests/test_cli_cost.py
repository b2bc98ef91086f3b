"""`shapeflow cost` as it is typed."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shapeflow.cli import app

TARGET = f"{Path(__file__).parents[1] / 'models' / 'gpt.py'}:toy"
LLAMA = f"{Path(__file__).parents[1] / 'models' / 'llama.py'}:toy"


def run(*words: str, status: int = 0) -> str:
    answer = CliRunner().invoke(app, ["cost", TARGET, *words])
    assert answer.exit_code == status, answer.output
    return answer.stdout if status == 0 else answer.output


def test_formulas() -> None:
    text = run("--depth", "1")
    assert "256*B*T^2 + 55552*B*T" in text
    assert "KV cache for one more token: 512 B" in text
    assert "blocks.0" not in text  # two levels down


def test_numbers_at_sizes() -> None:
    text = run("--at", "B=2,T=5", "--depth", "1", "--backward")
    assert re.search(r"\(all\) +GPT +568,320 +100.0 % +1,136,640 +1,704,960 ", text)
    assert "flops, forward: 568,320 = 256*B*T^2 + 55552*B*T" in text


def test_columns_order_and_training() -> None:
    text = run("--columns", "macs", "--sort", "macs", "--optimizer", "sgd", "--precision", "mixed", "--at", "B=2,T=5")
    rows = [int(line.split()[-1].replace(",", "")) for line in text.split("\n\n")[0].splitlines()[1:]]
    assert rows == sorted(rows, reverse=True)
    assert "parameters, gradients, states of sgd in mixed: 270 kB" in text


def test_scaling() -> None:
    assert "MultiHeadSelfAttention, scores overtakes FeedForward at T > 128" in run("--scaling", "--depth", "0")


def test_formulas_in_the_arguments_of_the_constructor() -> None:
    layer = TARGET.replace("gpt.py:toy", "transformer.py:EncoderLayer")
    answer = CliRunner().invoke(app, ["cost", layer, "--symbolic", "d_model,d_ff,n_heads", "--scaling", "--depth", "0"])
    assert answer.exit_code == 0, answer.output
    assert "flops, forward: 4*B*T^2*d_model + 8*B*T*d_model^2 + 4*B*T*d_ff*d_model" in answer.stdout
    assert "MultiHeadAttention, scores overtakes FeedForward at T > d_ff" in answer.stdout


def test_formats_for_machines() -> None:
    rows = list(csv.DictReader(io.StringIO(run("--format", "csv"))))
    assert rows[0]["flops"] == "256*B*T^2 + 55552*B*T"
    document = json.loads(run("--format", "json", "--at", "B=2,T=5"))
    assert document["totals"]["flops"] == document["rows"][0]["flops"] == 568320
    assert document["totals"]["backward_flops"] == 2 * 568320


@pytest.mark.parametrize(("form", "start"), [("markdown", "| module |"), ("latex", r"% flops"), ("html", "<table>")])
def test_formats_for_people(tmp_path: Path, form: str, start: str) -> None:
    path = tmp_path / "cost"
    assert run("--format", form, "--depth", "1", "--output", str(path)) == ""
    assert path.read_text().startswith(start)


def test_two_models_side_by_side() -> None:
    text = run("--compare", LLAMA, "--at", "B=1,T=7", "--depth", "0")
    assert text.splitlines()[0].split() == ["module", "GPT", "Llama", "difference"]


def test_a_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "cost.svg"
    run("--plot", "T", "--output", str(path), "--at", "B=1")
    assert "<!-- FeedForward -->" in path.read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--at", "B=2,T=65"], "traced for 2 <= T <= 64: T = 65 is outside"),
        (["--at", "B=2,Q=5"], "no size is called Q"),
        (["--at", "B=2"], "no size is given for T"),
        (["--columns", "flopz"], "no column is called flopz; did you mean flops"),
        (["--optimizer", "adamx"], "no optimizer is called 'adamx'"),
        (["--plot", "T"], "--plot draws to a file"),
        (["--plot", "Q", "--output", "x.svg"], "no operation depends on Q"),
        (["--format", "yaml"], "no format is called yaml"),
    ],
)
def test_mistakes_are_told(words: list[str], message: str) -> None:
    assert message in run(*words, status=2)
