"""`shapeflow diff`: targets and saved traces, exit status, the drawing, mistakes."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

import shapeflow as sf
from models.gpt import toy as gpt
from shapeflow.cli import app

GPT = "models/gpt.py:toy"


def run(*arguments: str):
    return CliRunner().invoke(app, ["diff", *arguments])


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "gpt.json"
    sf.trace(gpt()).save(path)
    return path


def test_the_same_is_status_0(saved: Path) -> None:
    for pair in ((GPT, GPT), (GPT, str(saved)), (str(saved), str(saved))):
        answer = run(*pair)
        assert answer.exit_code == 0, answer.output
        assert "no difference" in answer.stdout


def test_different_is_status_1(saved: Path) -> None:
    answer = run(str(saved), GPT, "--with-b", "n_layers=3")
    assert answer.exit_code == 1
    assert "+ blocks.2  DecoderBlock, 12,576 parameters, 54 operators" in answer.stdout
    back = run(GPT, str(saved), "--with-a", "n_layers=3")
    assert "- blocks.2  DecoderBlock" in back.stdout


def test_arguments_for_both_and_for_one() -> None:
    answer = run(GPT, GPT, "--with", "d_ff=64", "--with-b", "vocab=50")
    assert answer.exit_code == 1
    assert "~ weight  100 32 -> 50 32" in answer.stdout
    assert "ffn" not in answer.stdout


def test_inputs_are_for_both() -> None:
    answer = run("torchvision:resnet18", "torchvision:resnet34", "B 3 H W")
    assert answer.exit_code == 1
    assert "+ layer3.2 to layer3.5, x4  BasicBlock, 1,180,672 parameters" in answer.stdout


def test_the_drawing(saved: Path, tmp_path: Path) -> None:
    answer = run(str(saved), GPT, "--with-b", "n_layers=3", "--output", str(tmp_path / "diff.svg"))
    assert answer.exit_code == 1, answer.output
    assert "+ blocks.2" in (tmp_path / "diff.svg").read_text()
    assert "diff.svg" in answer.stderr


MISTAKES = [
    (("gone.json", GPT), r"gone.json cannot be read"),
    (("models/gone.py:x", GPT), "models/gone.py"),
    (("SAVED", "SAVED", "B T:int64"), "B T:int64: inputs, --with and --hint are for targets, and A and B are saved"),
    (("SAVED", "SAVED", "--with", "n_layers=2"), "n_layers=2: inputs, --with and --hint are for targets"),
    (("SAVED", GPT, "--with-a", "n_layers=2"), "--with-a n_layers=2: A is a saved trace, built already"),
    (("SAVED", GPT, "--output", "x.gif"), "its suffix has to be .svg, .png, .pdf or .dot"),
    (("OTHER", GPT), "is no saved graph"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_what_cannot_run_is_status_2(arguments, message: str, saved: Path, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"a": 1}')
    names = {"SAVED": str(saved), "OTHER": str(tmp_path / "other.json")}
    answer = run(*(names.get(argument, argument) for argument in arguments))
    assert answer.exit_code == 2, answer.output
    assert message in answer.stderr.replace("\n", "")
    assert isinstance(answer.exception, SystemExit)
