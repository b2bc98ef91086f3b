import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from typer.testing import CliRunner, Result

from shapeflow.cli import app

ROOT = Path(__file__).parents[1]
NETS = '''
    import torch
    from dataclasses import dataclass
    from jaxtyping import Float, Int
    from torch import Tensor, nn

    class Net(nn.Module):
        def __init__(self, d_in=3, d_out=2):
            super().__init__()
            self.head = nn.Linear(d_in, d_out)

        def forward(self, x):
            return self.head(x)

    class Blocks(nn.Module):
        """Its second layer does not fit the first."""
        def __init__(self):
            super().__init__()
            self.blocks = nn.Sequential(nn.Linear(4, 8), nn.Linear(6, 2))

        def forward(self, x):
            return self.blocks(x)

    @dataclass
    class Batch:
        ids: Tensor
        mask: Tensor

    class Pool(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(20, 4)

        def forward(self, batch: Batch, scale, how="mean"):
            x = self.table(batch.ids) * batch.mask.unsqueeze(-1) * scale
            return x.mean(1) if how == "mean" else x.amax(1)

    class Nothing(nn.Module):
        def forward(self):
            return torch.zeros(3)

    class Words(nn.Module):
        def forward(self, x):
            return "words"

    @torch.library.custom_op("shapeflow_test::opaque", mutates_args=())
    def opaque(x: Tensor) -> Tensor:
        return x.clone()

    class Opaque(nn.Module):
        def forward(self, x):
            return opaque(x)

    def scores(q: Float[Tensor, "B T d"], k: Float[Tensor, "B S d"], scale: float = 1.0):
        return q @ k.mT * scale

    net = Net()
    parallel = nn.DataParallel(Net())
    compiled = torch.compile(Net())
'''


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a file of models, of a name that no other test uses."""
    name = f"nets_{tmp_path.name}.py"
    (tmp_path / name).write_text(dedent(NETS).replace("shapeflow_test", f"shapeflow_{tmp_path.name}"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return Path(name)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


def shapeflow(*arguments: str, cwd: Path = ROOT, **options) -> subprocess.CompletedProcess[str]:
    """The real command in a process of its own."""
    command = [sys.executable, "-c", "from shapeflow.cli import main; main()", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=240, **options)


def test_help_answers_at_once_without_torch() -> None:
    call = "shapeflow.cli.app(['--help'], standalone_mode=False)"
    code = f"import sys; import shapeflow.cli; {call}; assert 'torch' not in sys.modules"
    seconds = []
    for _ in range(3):
        before = os.times()
        answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
        after = os.times()  # the processor's time, as other tests run on the other core
        seconds.append(after.children_user + after.children_system - before.children_user - before.children_system)
        assert answer.returncode == 0, answer.stderr
        assert all(f"\n  {command} " in answer.stdout for command in ("trace", "draw", "params"))
    assert min(seconds) < 0.3


def test_version() -> None:
    assert run("--version").output.startswith("shapeflow 0.")


@pytest.mark.parametrize("command", ["trace", "draw", "params"])
def test_help_of_a_command(command: str) -> None:
    answer = run(command, "--help")
    assert answer.exit_code == 0
    assert "TARGET" in answer.output


def test_trace_of_the_toy_from_another_working_directory_needs_no_input(tmp_path: Path) -> None:
    """In a process of its own: nothing that the checkout would lend is found there, and nothing is warned of."""
    answer = shapeflow("trace", str(ROOT / "models" / "gpt.py") + ":toy", "--at", "B=2,T=5", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert "B T d_model" in answer.stdout and "B T vocab" in answer.stdout
    assert "2 5 32" in answer.stdout
    assert answer.stderr == ""


def test_trace_of_a_class_with_arguments(nets: Path) -> None:
    answer = run("trace", f"{nets}:Net", "B T 5", "--with", "d_in=5", "--with", "d_out=7")
    assert answer.exit_code == 0, answer.output
    assert "B T 7" in answer.stdout


def test_trace_of_a_function(nets: Path) -> None:
    answer = run("trace", f"{nets}:scores", "scale:=0.5")
    assert answer.exit_code == 0, answer.output
    assert "B T S" in answer.stdout


def test_inputs_by_field_and_plain_values(nets: Path) -> None:
    answer = run("trace", f"{nets}:Pool", "batch.ids=B T:int64", "batch.mask=B T", "scale:=2", 'how:="max"')
    assert answer.exit_code == 0, answer.output
    assert "amax" in answer.stdout


def test_hints_choose_the_sizes_of_the_run(nets: Path) -> None:
    answer = run("trace", "torchvision:resnet18", "B 3 H W", "--hint", "H=224,W=224", "--depth", "1")
    assert answer.exit_code == 0, answer.output
    assert "B 1000" in answer.stdout


def test_a_model_that_needs_numbers_says_so_on_stderr() -> None:
    answer = run("trace", "torchvision:regnet_y_400mf", "B 3 224 224", "--depth", "1")
    assert answer.exit_code == 0, answer.output
    assert "note: built with real weights" in answer.stderr
    assert "note:" not in answer.stdout


def test_sizes_outside_the_domain_are_shown_with_a_note(nets: Path) -> None:
    answer = run("trace", f"{nets}:net", "B<=8 3", "--at", "B=9")
    assert answer.exit_code == 0, answer.output
    assert "note: the trace holds for 2 <= B <= 8: B = 9 is outside" in answer.stderr


@pytest.mark.parametrize("name", ["parallel", "compiled"])
def test_wrapped_models(nets: Path, name: str) -> None:
    for command in (["trace", f"{nets}:{name}", "x=B 3"], ["params", f"{nets}:{name}"]):
        answer = run(*command)
        assert answer.exit_code == 0, answer.output
        assert "module.head" not in answer.stdout


def test_draw_writes_a_picture_and_prints_where(nets: Path) -> None:
    assert run("draw", f"{nets}:net", "B 3", "-o", "out.svg", "--at", "B=17").stdout == "out.svg\n"
    picture = Path("out.svg").read_text()
    assert "<svg" in picture
    assert "17" in picture
    assert run("draw", f"{nets}:net", "B 3", "--depth", "1").stdout == "Net.svg\n"


def test_params(nets: Path) -> None:
    answer = run("params", f"{nets}:Net", "--with", "d_in=9", "--depth", "0")
    assert answer.exit_code == 0, answer.output
    assert "20 parameters: 20 trainable, 0 frozen" in answer.stdout
    assert "head" not in answer.stdout


def test_params_of_the_toy_from_the_command_line() -> None:
    answer = run("params", "models/gpt.py:toy")
    assert answer.exit_code == 0, answer.output
    assert re.search(r"^[\d,]+ parameters: [\d,]+ trainable, 0 frozen", answer.stdout, re.MULTILINE)


BAD = {
    "no colon": (["trace", "nets"], "no colon in the target 'nets'"),
    "no file": (["trace", "gone.py:net"], "no such file: gone.py"),
    "no name": (["trace", "FILE:nat"], "has no nat; did you mean net?"),
    "factory needs arguments": (["trace", "models.gpt:GPT"], "models.gpt:GPT needs arguments: config\n"),
    "no model": (["params", "FILE:scores"], "is a function to trace, no model"),
    "bad --with": (["trace", "FILE:Net", "--with", "d_in=x"], "x is no Python literal\n    d_in=x\n         ^"),
    "bad --at": (["trace", "FILE:net", "B 3", "--at", "B=x"], "'B=x' is not a name and its size\n    B=x\n    ^"),
    "bad --hint": (["trace", "FILE:net", "B 3", "--hint", "B"], "'B' is not a name and its size"),
    "unknown --at": (["trace", "FILE:net", "B 3", "--at", "T=3"], "--at T=3: no size is called T; free ones are: B"),
    "unknown --hint": (["trace", "FILE:net", "B 3", "--hint", "T=3"], "T"),
    "pinned --at": (["trace", "FILE:net", "B c=3", "--at", "c=4"], "--at c=4: c is 3 in this model"),
    "bad spec": (["trace", "FILE:net", "B,3"], "    B,3\n     ^"),
    "bad dtype": (["trace", "FILE:net", "B 3:int65"], "int65"),
    "bad literal": (["trace", "FILE:net", "x:=two"], "two is no Python literal"),
    "input missing": (["trace", "FILE:net"], "x"),
    "too many inputs": (["trace", "FILE:net", "B 3", "B 3"], "x"),
    "misnamed input": (["trace", "FILE:net", "y=B 3"], "y"),
    "no such field": (["trace", "FILE:Pool", "batch.idz=B T"], "batch has no field idz; its fields are ids, mask"),
    "forward raises": (["trace", "FILE:Blocks", "B 4"], "blocks.1"),
    "no input": (["trace", "FILE:Nothing"], "input"),
    "no tensor comes out": (["trace", "FILE:Words", "B 3"], "tensor"),
    "no fake kernel": (["trace", "FILE:Opaque", "B 3"], "register_fake"),
    "unknown suffix": (["draw", "FILE:net", "B 3", "-o", "out.xyz"], "xyz"),
    "no folder to write to": (["draw", "FILE:net", "B 3", "-o", "gone/out.svg"], "gone"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_is_one_clear_message_and_status_2(nets: Path, case: str) -> None:
    arguments, message = BAD[case]
    answer = run(*(argument.replace("FILE", str(nets)) for argument in arguments))
    assert answer.exit_code == 2, answer.output
    assert message in answer.stderr
    assert "Traceback" not in answer.stderr
    assert answer.stdout == ""


def test_a_forward_that_raises_shows_the_path_so_far(nets: Path) -> None:
    answer = run("trace", f"{nets}:Blocks", "B 4")
    for part in ("linear", "B 8", "blocks.1", "return self.blocks(x)"):
        assert part in answer.stderr


@pytest.mark.parametrize(
    "arguments", [["trace"], ["sing"], ["trace", "models/gpt.py:toy", "--deep"], ["trace", "x", "--depth=-1"]]
)
def test_wrong_usage_is_status_2(arguments: list[str]) -> None:
    answer = run(*arguments)
    assert answer.exit_code == 2
    assert "Usage: " in answer.stderr


def test_a_mistake_in_a_real_process_is_red_only_on_a_terminal(tmp_path: Path) -> None:
    answer = shapeflow("trace", "gone.py:net", cwd=tmp_path)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith("no such file: gone.py")


def test_a_fault_of_our_own_shows_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import shapeflow.cli
    import shapeflow.target

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr(shapeflow.target, "load", broken)
    monkeypatch.setattr(sys, "argv", ["shapeflow", "params", "models/gpt.py:toy"])
    with pytest.raises(SystemExit) as exit:
        shapeflow.cli.main()
    assert exit.value.code == 2
    errors = capsys.readouterr().err
    assert "Traceback" in errors
    assert "RuntimeError: ours" in errors
    assert "fault in shapeflow" in errors
