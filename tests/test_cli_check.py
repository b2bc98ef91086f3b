"""`shapeflow check` and `shapeflow rules` as a user calls them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from shapeflow.cli import app

ROOT = Path(__file__).parents[1]
NETS = """
    import torch
    from jaxtyping import Float, Int
    from torch import Tensor, nn

    class Fine(nn.Module):
        def __init__(self, d_in=8):
            super().__init__()
            print("what a constructor prints")
            self.table = nn.Embedding(512, 4)
            self.map = nn.Linear(d_in, 4)

        def forward(self, x: Float[Tensor, "B T d_in"]) -> Float[Tensor, "B T 4"]:
            return self.map(x) + self.table(torch.arange(x.shape[1]))

    class Wrong(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(8, 6)
            self.last = nn.Linear(7, 3)

        def forward(self, x: Float[Tensor, "B 8"]) -> Float[Tensor, "B 3"]:
            return self.last(self.first(x))

    class Silenced(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(8, 6)
            self.last = nn.Linear(7, 3)  # shapeflow: ignore[SF101]

        def forward(self, x: Float[Tensor, "B 8"]) -> Float[Tensor, "B 3"]:
            return self.last(self.first(x))

    class ByCall(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(8, 6)
            self.last = nn.Linear(7, 3)

        def forward(self, x: Float[Tensor, "B 8"]) -> Float[Tensor, "B 3"]:
            return self.last(self.first(x))  # shapeflow: ignore[SF101]

    class Stale(nn.Module):
        def forward(self, x: Float[Tensor, "B 8"]) -> Float[Tensor, "B 8"]:
            return x + 1  # shapeflow: ignore[SF301]

    class Bare(nn.Module):
        def forward(self, x):
            return x
"""


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a file of models, of a name that no other test uses."""
    name = f"nets_{tmp_path.name}.py"
    (tmp_path / name).write_text(dedent(NETS))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return Path(name)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_a_target_that_holds(nets: Path) -> None:
    answer = run("check", f"{nets}:Fine")
    assert answer.exit_code == 0, answer.output
    assert f"{nets}:Fine: holds for all B >= 1, 1 <= T <= 512; 1 note" in answer.stdout
    assert "what a constructor prints" not in answer.stdout


def test_a_target_with_an_error(nets: Path) -> None:
    answer = run("check", f"{nets}:Wrong")
    assert answer.exit_code == 1
    lines = answer.stdout.splitlines()
    lines[4] = re.sub(r"\d+$", "3", lines[4])  # any batch is as good
    assert lines[:6] == [
        "error SF101: Linear 'last' takes 7, gets 6: in_features is wrong",
        f"  {nets}:20, in last",
        "   20 |         self.last = nn.Linear(7, 3)",
        "      |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^",
        "  witness: B = 3",
        "  fix: nn.Linear(6, 3)",
    ]
    assert lines[-1].startswith(f"{nets}:Wrong: no run got through; 1 error (")


@pytest.mark.parametrize("name", ["Silenced", "ByCall"])
def test_ignore_comments(nets: Path, name: str) -> None:
    answer = run("check", f"{nets}:{name}")
    assert answer.exit_code == 0, answer.output
    assert answer.stdout.splitlines()[-1] == "1 ignored"


def test_a_stale_ignore_comment_and_strict(nets: Path) -> None:
    answer = run("check", f"{nets}:Stale")
    assert answer.exit_code == 0
    assert answer.stdout.startswith("warning SF404: SF301 is not reported on this line: the ignore comment silences")
    assert run("check", f"{nets}:Stale", "--strict").exit_code == 1


def test_a_target_that_cannot_be_run(nets: Path) -> None:
    answer = run("check", f"{nets}:Bare")
    assert answer.exit_code == 2
    assert "Bare needs x: give one as" in answer.stderr
    assert run("check", f"{nets}:Bare", "B T").exit_code == 0


def test_a_target_that_does_not_exist(nets: Path) -> None:
    answer = run("check", f"{nets}:Fin")
    assert answer.exit_code == 2
    assert "did you mean Fine?" in answer.stderr


def test_arguments_and_sizes(nets: Path) -> None:
    answer = run("check", f"{nets}:Fine", "B T<=512 5", "--with", "d_in=5", "--at", "T=600")
    assert answer.exit_code == 0, answer.output
    assert "holds for all B >= 1, 1 <= T <= 512" in answer.stdout
    assert f"note: {nets}:Fine holds for B >= 1, 1 <= T <= 512: T = 600 is outside" in answer.stderr


def test_sizes_of_unknown_names(nets: Path) -> None:
    answer = run("check", f"{nets}:Wrong", "--at", "B=3")
    assert answer.exit_code == 1
    answer = run("check", f"{nets}:Stale", "--at", "N=3")
    assert answer.exit_code == 2
    assert "--at N=3: no size is called N; there are: B" in answer.stderr


def test_json_to_stdout_is_all_there_is(nets: Path) -> None:
    document = json.loads(run("check", f"{nets}:Fine", "--format", "json").stdout)
    assert [target["name"] for target in document["targets"]] == [f"{nets}:Fine"]
    assert document["ok"]


def test_a_document_to_a_file_leaves_the_text(nets: Path) -> None:
    answer = run("check", f"{nets}:Wrong", "--format", "sarif", "--output", "found.sarif")
    assert answer.exit_code == 1
    assert answer.stdout.startswith("error SF101")
    run_ = json.loads(Path("found.sarif").read_text())["runs"][0]
    assert [result["ruleId"] for result in run_["results"]] == ["SF101"]
    assert run_["tool"]["driver"]["rules"][0]["help"]["text"].startswith("Two shapes do not fit")


def test_text_to_a_file(nets: Path) -> None:
    answer = run("check", f"{nets}:Wrong", "-o", "found.txt")
    assert Path("found.txt").read_text() == answer.stdout


def test_a_file_that_cannot_be_written(nets: Path) -> None:
    answer = run("check", f"{nets}:Wrong", "-o", "no/folder.txt")
    assert answer.exit_code == 2
    assert "no/folder.txt cannot be written: No such file or directory" in answer.stderr


def test_github_and_junit(nets: Path) -> None:
    answer = run("check", f"{nets}:Wrong", "--format", "github")
    assert answer.stdout.startswith(f"::error file={nets},line=20,title=SF101 in {nets}%3AWrong::Linear 'last' takes 7")
    root = ElementTree.fromstring(run("check", f"{nets}:Wrong", "--format", "junit").stdout)
    assert root.attrib["failures"] == "1"


def test_a_folder(nets: Path) -> None:
    (nets.parent / "broken.py").write_text("import torch\nx = (\n")
    answer = run("check", ".", "--jobs", "2", "--limit", "100")
    assert answer.exit_code == 1, answer.output
    text = answer.stdout
    assert "warning SF401: broken does not import: SyntaxError: '(' was never closed" in text
    assert "note SF402: Bare needs x" in text
    names = [line.partition(": ")[0].rpartition(":")[2] for line in text.splitlines() if line.startswith(f"{nets}:")]
    assert names == ["Fine", "Wrong", "Silenced", "ByCall", "Stale", "Bare"]
    last = "7 targets: 4 hold, 1 has errors, 2 not checked; 1 error, 2 warnings, 2 notes; 2 ignored"
    assert text.splitlines()[-1] == last


def test_files_that_hold_nothing(nets: Path) -> None:
    Path("one.py").write_text("x = 1\n")
    Path("two.py").write_text("y = 1\n")
    answer = run("check", "one.py", "two.py")
    assert answer.exit_code == 0, answer.output
    assert answer.stdout == "nothing to check\n"


def test_a_file_that_does_not_exist(nets: Path) -> None:
    answer = run("check", "nots.py")
    assert answer.exit_code == 2
    assert "no such file: nots.py" in answer.stderr


def test_settings_of_the_project(nets: Path) -> None:
    Path("pyproject.toml").write_text(
        f"""
        [tool.shapeflow]
        targets = ["{nets}:Stale", {{ target = "{nets}:Bare", inputs = ["B T"] }}, "{nets}:Wrong", "{nets}:None"]
        ignore = ["SF404"]
        strict = true
        """
    )
    answer = run("check")
    assert answer.exit_code == 2  # one could not be run
    assert f"{nets}:Bare: holds for all B >= 1, T >= 1; nothing found" in answer.stdout
    assert f"error SF401: {nets} has no None" in answer.stdout
    assert f"{nets} has no None" in answer.stderr
    counts = "4 targets: 2 hold, 1 has errors, 1 not checked; 2 errors"
    assert answer.stdout.splitlines()[-1] == counts


def test_without_a_target_and_settings(nets: Path) -> None:
    answer = run("check")
    assert answer.exit_code == 2
    assert "nothing to check: give a target, a file or a folder" in answer.stderr


def test_a_mistake_in_the_settings(nets: Path) -> None:
    Path("pyproject.toml").write_text("[tool.shapeflow]\nignore = ['SF31']\n")
    answer = run("check", f"{nets}:Fine")
    assert answer.exit_code == 2
    assert "tool.shapeflow.ignore holds SF31, which is no rule; did you mean SF31" in answer.stderr


def test_rules() -> None:
    answer = run("rules")
    assert answer.exit_code == 0
    lines = answer.stdout.splitlines()
    assert lines[0] == "SF101  error    it crashes at every size that was tried"
    assert [line.split()[0] for line in lines] == sorted(line.split()[0] for line in lines)
    assert {"SF301", "SF315", "SF404"} <= {line.split()[0] for line in lines}


def test_one_rule() -> None:
    answer = run("rules", "sf101")
    assert answer.exit_code == 0
    assert answer.stdout.startswith("SF101  error  it crashes at every size that was tried\n")
    assert "wrong:" in answer.stdout and "right:" in answer.stdout
    assert answer.stdout.endswith("# shapeflow: ignore[SF101]\n")


def test_a_rule_that_does_not_exist() -> None:
    answer = run("rules", "SF40")
    assert answer.exit_code == 2
    assert re.fullmatch(r"no rule is called SF40; did you mean SF40\d\?\n", answer.stderr)


def test_the_real_command(tmp_path: Path) -> None:
    """Processes start from the installed script, too: no traceback, no second run of the command."""
    (tmp_path / "net.py").write_text(dedent(NETS))
    command = [sys.executable, "-c", "from shapeflow.cli import main; main()", "check", "net.py", "--format", "json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    answer = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
    assert answer.returncode == 1, answer.stderr
    assert [target["ok"] for target in json.loads(answer.stdout)["targets"]] == [True, False, True, True, True, True]
    assert "Traceback" not in answer.stderr
