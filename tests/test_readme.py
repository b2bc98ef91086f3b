"""Every example of the README runs: Python blocks as they are, shell blocks through the command line.

A block of text is what the command or the program above it prints, or the beginning of it; one of TOML is read as
settings.
"""

import functools
import importlib
import re
import runpy
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from shapeflow.check.config import read_config
from shapeflow.check.rules import RULES
from shapeflow.cli import app
from shapeflow.cli.diff import DIFFERENT

ROOT = Path(__file__).parents[1]
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / "README.md").read_text(), flags=re.MULTILINE | re.DOTALL)
LINES = [line for language, text in BLOCKS if language == "bash" for line in text.splitlines()]
COMMANDS = [line.partition("&& ")[2] if line.startswith("pip ") else line for line in LINES]


@pytest.fixture(scope="module")
def like_the_checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("models", "examples"):
        (folder / name).symlink_to(ROOT / name)
    return folder


@pytest.fixture
def checkout(like_the_checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory like the checkout, in which an example may write."""
    monkeypatch.chdir(like_the_checkout)
    return like_the_checkout


@functools.cache  # what a command prints is also compared with the text below it
def answer(command: str) -> Result:
    return CliRunner().invoke(app, shlex.split(command)[1:])


def test_languages() -> None:
    assert {language for language, _ in BLOCKS} == {"bash", "python", "text", "toml"}


@pytest.mark.parametrize("text", [text for language, text in BLOCKS if language == "python"])
def test_python(checkout: Path, text: str) -> None:
    exec(compile(text, "README.md", "exec"), {"__name__": "readme"})


FINDS = ("shapeflow diff", "shapeflow check examples/gallery/broken.py")  # a difference, or a fault that is meant to be


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith("shapeflow")])
def test_shapeflow_commands(checkout: Path, command: str) -> None:
    answered = answer(command)
    assert answered.exit_code == (DIFFERENT if command.startswith(FINDS) else 0), answered.output
    assert answered.stdout


EXAMPLE = r"(python|torchrun --nproc-per-node 2) examples/"


def test_examples_run_one_after_the_other(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process: of what torchrun starts, the options are read; tests/examples/ starts it."""
    monkeypatch.syspath_prepend(ROOT / "examples")
    for command in [line for line in COMMANDS if re.match(EXAMPLE, line)]:
        launcher, _, arguments = command.partition(" examples/")
        program, *options = shlex.split(arguments)
        if launcher == "python":
            monkeypatch.setattr("sys.argv", [program, *options])
            runpy.run_path(str(ROOT / "examples" / program), run_name="__main__")
            assert capsys.readouterr().out
        else:
            example = runpy.run_path(str(ROOT / "examples" / program))
            parser = importlib.import_module("training.command").parser
            assert parser(program, example["PRESETS"], "").parse_args(options).parallel


BEFORE = [(BLOCKS[at - 1], text) for at, (language, text) in enumerate(BLOCKS) if language == "text"]
PRINTED = [(block.splitlines()[-1], text) for (language, block), text in BEFORE if language == "bash"]


@pytest.mark.parametrize(("command", "text"), PRINTED)
def test_printed_text(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, text: str
) -> None:
    if command.startswith("shapeflow"):
        printed = answer(command).stdout
    else:
        monkeypatch.chdir(ROOT)
        runpy.run_path(*shlex.split(command)[1:], run_name="__main__")
        printed = capsys.readouterr().out
    assert printed.replace(f"{ROOT}/", "").startswith(text)


@pytest.mark.parametrize("text", [text for language, text in BLOCKS if language == "toml"])
def test_settings(checkout: Path, text: str) -> None:
    (checkout / "pyproject.toml").write_text(text)
    assert read_config(checkout, lambda: RULES).targets


def test_the_other_commands_are_what_ci_runs() -> None:
    examples = [line for line in LINES if re.match(EXAMPLE, line)]
    others = [line for line in LINES if not line.startswith("shapeflow") and "&& shapeflow" not in line]
    others = [line for line in others if line not in examples]
    assert [line.split(" ")[:3] for line in others] == [["pip", "install", "torch==2.14.1"], ["pip", "install", "-e"]]
    assert others[1].partition("&& ")[2].startswith("pytest")
