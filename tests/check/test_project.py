"""Files and folders: what is found in them, how it is made, and that one broken target does not stop the others."""

import functools
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest
from torch import nn

from shapeflow.check import pool
from shapeflow.check.config import Config, Wanted
from shapeflow.check.files import python_files
from shapeflow.check.jobs import Checked, Done, Job, Span
from shapeflow.check.outcome import Outcome, settle
from shapeflow.check.problem import Problem, Report
from shapeflow.check.project import check_jobs, jobs_for, resolved
from shapeflow.check.sizing import sized
from shapeflow.check.targets import targets_in
from shapeflow.check.work import Bench
from shapeflow.errors import ConfigError, InputError, TargetError
from shapeflow.trace.result import Domain

HEAD = """
import os
import signal
import sys
import time
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

"""
NETS = """
class Plain(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.head = nn.Linear(width, 3)

    def forward(self, x: Float[Tensor, "B width"]) -> Float[Tensor, "B 3"]:
        return self.head(x)


class Wrong(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 6)
        self.last = nn.Linear(7, 3)

    def forward(self, x: Float[Tensor, "B 8"]) -> Float[Tensor, "B 3"]:
        return self.last(self.first(x))


class Bare(nn.Module):
    def forward(self, x):
        return x


class Refuses(nn.Module):
    def __init__(self):
        super().__init__()
        raise ValueError("never built")

    def forward(self, x: Float[Tensor, "B 8"]):
        return x


class NoForward(nn.Module):
    pass


class _Private(nn.Module):
    def forward(self, x: Float[Tensor, "B 8"]):
        return x


@dataclass
class Config:
    d_model: int = 8


class Part(nn.Module):
    def __init__(self, config: Config, name: str):
        super().__init__()
        self.d_model = config.d_model
        self.map = nn.Linear(config.d_model, config.d_model)

    def forward(self, x: Float[Tensor, "B d_model"]) -> Float[Tensor, "B d_model"]:
        return self.map(x)


class Whole(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.parts = nn.Sequential(Part(config, "a"), Part(config, "b"))
        self.d_model = config.d_model

    def forward(self, x: Float[Tensor, "B d_model"]) -> Float[Tensor, "B d_model"]:
        return self.parts(x)


def toy() -> Whole:
    return Whole(Config())


def scores(q: Float[Tensor, "B T d"], k: Float[Tensor, "B S d"]) -> Float[Tensor, "B T S"]:
    return q @ k.mT


def plain(x: Tensor) -> Tensor:
    return x


def main():
    raise AssertionError("never called")


if True:
    net = Plain(5)

LENGTH = 3
Other = Plain
"""
BUILT = '''
class Attention(nn.Module):
    def __init__(self, d_model: int, n_heads: int, dropout: float):
        super().__init__()
        assert d_model % n_heads == 0 and 0 <= dropout < 1
        self.heads = n_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)

    def forward(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_model"]:
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        return (torch.softmax(q @ k.mT, -1) @ v).transpose(1, 2).reshape(b, t, d)


class Residual(nn.Module):
    """Runs when both widths are equal."""

    def __init__(self, d_in, d_out):
        super().__init__()
        self.map = nn.Linear(d_in, d_out)

    def forward(self, x: Float[Tensor, "B d_in"]) -> Float[Tensor, "B d_out"]:
        return x + self.map(x)


class Never(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.up = nn.Linear(d_model, 4 * d_model)
        self.down = nn.Linear(2 * d_model, d_model)

    def forward(self, x: Float[Tensor, "B d_model"]) -> Float[Tensor, "B d_model"]:
        return self.down(self.up(x))


class Around(nn.Module):
    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, x: Float[Tensor, "B 8"]):
        return self.layer(x)
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory whose files no other test has the names of."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def file(folder: Path, text: str, name: str = "nets") -> str:
    path = folder / f"{name}_{folder.name}.py"
    path.write_text(HEAD + dedent(text))
    return path.name


# What is found


def test_targets_of_a_file(folder: Path) -> None:
    name = file(folder, NETS)
    found = targets_in(name)
    assert [(each.name, each.kind, each.needs) for each in found] == [
        ("Plain", "class", ()),
        ("Wrong", "class", ()),
        ("Bare", "class", ()),
        ("Refuses", "class", ()),
        ("Part", "class", ("config", "name")),
        ("Whole", "class", ("config",)),
        ("toy", "factory", ()),
        ("scores", "function", ()),
        ("net", "instance", ()),
    ]
    lines = (folder / name).read_text().splitlines()
    assert [lines[each.line - 1].split("(")[0].strip() for each in found[:2]] == ["class Plain", "class Wrong"]
    assert found[0].text == f"{name}:Plain"


def test_what_is_imported_is_no_target(folder: Path) -> None:
    file(folder, NETS, "first")
    name = file(folder, f"from first_{folder.name} import *\nfrom first_{folder.name} import Plain as Mine\n", "second")
    assert targets_in(name) == []


def test_files_of_a_folder(folder: Path) -> None:
    model = "import torch\nclass Net(torch.nn.Module): ...\n"
    texts = {
        "b.py": model,
        "a/z.py": model,
        "a/forward.py": "from other import Base\nclass Net(Base):\n    def forward(self, x): ...\n",
        "a/plain.py": "class Net: ...\n",
        "a/script.py": "import torch\nprint(torch)\n",
        "a/broken.py": "class Net(:\n",
        "a/late.py": "def f():\n    from torch import nn\n",
        "test_b.py": model,
        "a/b_test.py": model,
        "conftest.py": model,
        ".hidden/b.py": model,
        "build/b.py": model,
        "environment/lib/b.py": model,
        "environment/pyvenv.cfg": "",
        "old/b.py": model,
        "notes.txt": model,
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    found = [path.as_posix() for path in python_files(Path(), exclude=["old"])]
    assert found == ["b.py", "a/broken.py", "a/forward.py", "a/late.py", "a/z.py"]


# How it is made


def test_guesses_fit_each_other() -> None:
    class Block(nn.Module):
        def __init__(self, d_model: int, n_heads, d_ff: int, p, causal: bool, scale: float, kernel_size=3): ...

    first, second, third = (dict(each.arguments) for each in sized(Block))
    rest = {"causal": False, "scale": 1.0, "p": 0.0}
    assert first == {"d_model": 64, "n_heads": 4, "d_ff": 96, **rest}
    assert second == {"d_model": 64, "n_heads": 4, "d_ff": 64, **rest}
    assert third == {"d_model": 128, "n_heads": 8, "d_ff": 192, **rest}
    assert str(next(sized(Block))).startswith("d_model=64, n_heads=4, d_ff=96, p=0.0")


def test_guesses_look_into_types() -> None:
    from dataclasses import dataclass
    from typing import Literal

    @dataclass
    class Settings:
        width: int
        n_layers: int = 2

    class Block(nn.Module):
        def __init__(
            self, config: Settings, widths: list[int], pair: tuple[int, int], mode: Literal["a", "b"],
            bias: bool | None, window: int | None, size: int | tuple[int, int],
        ): ...  # fmt: skip

    first = next(sized(Block)).arguments
    assert first == {
        "config": Settings(64),
        "widths": [96, 48],
        "pair": (32, 80),
        "mode": "a",
        "bias": None,
        "window": None,
        "size": 64,
    }


def test_an_argument_that_is_no_number() -> None:
    class Block(nn.Module):
        def __init__(self, layer: nn.Module): ...

    with pytest.raises(TargetError, match=r"^Block needs layer: Module, which no number can stand for$"):
        next(sized(Block))


# What is checked


def reports(folder: Path, text: str, **fields) -> dict[str, Report]:
    """Every target of a file, checked in this process."""
    bench = Bench(Job(file(folder, text), is_file=True, limit=60.0, **fields))
    targets = sorted(bench.targets(), key=lambda each: bool(each.needs))
    return {each.name: bench.found(each).report for each in targets}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, dict[str, Report]]]:
    """`shared(NETS)`: the folder and the reports of a file that several tests read, checked once."""

    @functools.cache
    def make(text: str) -> tuple[Path, dict[str, Report]]:
        folder = tmp_path_factory.mktemp("shared")
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            patch.setattr(sys, "path", list(sys.path))
            return folder, reports(folder, text)

    return make


def told(report: Report) -> list[tuple[str, str, str]]:
    return [(each.rule, each.level, each.message) for each in report.problems]


def test_one_broken_target_does_not_stop_the_others(shared) -> None:
    folder, found = shared(NETS)
    name = f"nets_{folder.name}.py"
    assert found["Plain"].ok and str(found["Plain"].domain) == "B >= 1"  # width is 8, as it is built
    assert [each.rule for each in found["Wrong"].problems] == ["SF101"]
    assert found["Wrong"].name == f"{name}:Wrong"
    ((rule, level, message),) = told(found["Bare"])
    assert (rule, level) == ("SF402", "note")
    assert message.startswith("Bare needs x: give one as ")
    ((rule, level, message),) = told(found["Refuses"])
    assert (rule, level) == ("SF401", "note")
    assert message.startswith(f"{name}:Refuses could not be built with (): ValueError: never built")
    assert str(found["net"].domain) == "B >= 1"
    assert str(found["scores"].domain) == "B >= 1, T >= 1, d >= 1, S >= 1"


def test_sizes_that_a_module_does_not_keep_are_remembered(folder: Path) -> None:
    text = """
        @dataclass
        class Sizes:
            d_out: int = 3

        class Base(nn.Module):
            def __init__(self, d_in):
                super().__init__()
                self.map = nn.Linear(d_in, 3)

        class Net(Base):
            def __init__(self, d_in: int, config: Sizes, d_other: int = 4):
                super().__init__(d_in)
                self.d_other = None

            def forward(self, x: Float[Tensor, "B d_in"]) -> Float[Tensor, "B d_out"]:
                return self.map(x)

        net = Net(5, Sizes())
    """
    report = reports(folder, text)["net"]
    assert (str(report.domain), report.problems) == ("B >= 1", ())
    net = sys.modules[f"nets_{folder.name}"].net
    assert (net.d_in, net.d_out, net.d_other) == (5, 3, None)
    assert nn.Module.__init__.__name__ == "__init__"


def test_what_has_no_line_stands_at_the_definition(shared) -> None:
    folder, found = shared(NETS)
    problem = found["Bare"].problems[0]
    lines = (folder / problem.file).read_text().splitlines()
    assert lines[problem.line - 1] == "class Bare(nn.Module):"


def test_a_class_that_needs_arguments_is_taken_from_a_model(shared) -> None:
    _, found = shared(NETS)
    assert told(found["Part"]) == []
    assert str(found["Part"].domain) == str(found["Whole"].domain) == "B >= 1"


def test_a_class_that_needs_arguments_is_built_of_symbols(shared) -> None:
    attention = shared(BUILT)[1]["Attention"]
    assert str(attention.domain) == "d_model >= 1, n_heads >= 1, B >= 1, T >= 1, d_model % n_heads == 0"
    assert told(attention)[-1] == (
        "SF401",
        "note",
        "Attention is built with any d_model, n_heads, dropout=0.0, as its constructor needs arguments: "
        "what is told here holds for these",
    )


def test_a_residual_sum_of_two_widths_is_no_false_alarm(shared) -> None:
    report = shared(BUILT)[1]["Residual"]
    assert report.ok and "d_in == d_out" in str(report.domain)
    assert [(each.rule, each.level) for each in report.problems] == [("SF102", "warning")]


WIDTHS = """
    class Heads(nn.Module):
        def __init__(self, d_model: int, n_heads: int):
            super().__init__()
            if d_model % n_heads != 0:
                raise ValueError(f"{n_heads} heads do not divide {d_model}")
            self.n_heads, self.out = n_heads, nn.Linear(d_model, d_model)

        def forward(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_model"]:
            b, t, d = x.shape
            return self.out(x.view(b, t, self.n_heads, d // self.n_heads).flatten(2))

    class Unsaid(nn.Module):
        def __init__(self, d_model: int, n_heads: int):
            super().__init__()
            self.n_heads = n_heads

        def forward(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_model"]:
            b, t, d = x.shape
            return x.view(b, t, self.n_heads, d // self.n_heads).flatten(2)

    class Wrong(nn.Module):
        def __init__(self, d_model: int, d_ff: int):
            super().__init__()
            self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_model, d_model)

        def forward(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_model"]:
            return self.down(self.up(x).relu())

    class Channels(nn.Module):
        def __init__(self, channels: int, width: int):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width)

        def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B width H W"]:
            return self.norm(self.conv(x))

    class Positions(nn.Module):
        def __init__(self, max_len: int, d_model: int):
            super().__init__()
            self.table = nn.Embedding(max_len, d_model)

        def forward(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_model"]:
            return x + self.table(torch.arange(x.shape[1]))
"""


@pytest.mark.parametrize(
    ("name", "requirement", "levels"),
    [
        ("Heads", "d_model % n_heads == 0", []),
        ("Unsaid", "d_model % n_heads == 0", [("SF104", "note")]),
        ("Wrong", "d_ff == d_model", [("SF102", "error")]),
        ("Channels", "C == channels", [("SF102", "warning")]),
        ("Positions", "max_len >= T", [("SF104", "note")]),
    ],
)
def test_what_sizes_of_a_constructor_have_to_be(shared, name: str, requirement: str, levels: list) -> None:
    report = shared(WIDTHS)[1][name]
    assert str(report.domain).endswith(f", {requirement}")
    assert [(each.rule, each.level) for each in report.problems] == levels


def test_a_layer_that_is_given_another_argument_names_the_right_one(shared) -> None:
    (problem,) = shared(WIDTHS)[1]["Wrong"].problems
    assert problem.message == "Linear 'down' takes d_model, gets d_ff: in_features is wrong"
    assert problem.fix == "nn.Linear(d_ff, d_model)"


def test_a_crash_of_every_guess_is_an_error(shared) -> None:
    report = shared(BUILT)[1]["Never"]
    assert [(each.rule, each.level) for each in report.problems] == [("SF101", "error"), ("SF401", "note")]


def test_axes_that_no_annotation_names_are_not_held_against_it(folder: Path) -> None:
    text = """
        class Norm(nn.Module):
            def __init__(self, width: int):
                super().__init__()
                self.weight = nn.Parameter(torch.ones(width))

            def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
                return self.weight * x

        class Linear(nn.Module):
            def __init__(self):
                super().__init__()
                self.map = nn.Linear(7, 3)

            def forward(self, x: Float[Tensor, "B T"]) -> Float[Tensor, "B 3"]:
                return self.map(x)
    """
    found = reports(folder, text)
    assert {each.level for each in found["Norm"].problems} == {"note"}
    assert [each.level for each in found["Linear"].problems] == ["error"]  # T is a name that somebody chose


def test_what_could_not_be_built_says_why(shared) -> None:
    assert told(shared(BUILT)[1]["Around"]) == [
        ("SF401", "note", "Around needs layer: Module, which no number can stand for")
    ]


def test_an_annotation_that_cannot_be_read(folder: Path) -> None:
    text = """
        def f(x: Float[Tensor, "B T:int64"]):
            return x
    """
    ((rule, level, message),) = told(reports(folder, text)["f"])
    assert (rule, level) == ("SF203", "warning")
    assert message == "an annotation cannot be read: the dtype of an annotation stands in front"


def test_a_limit_keeps_what_was_found(folder: Path) -> None:
    text = """
        class Hangs(nn.Module):
            def __init__(self):
                super().__init__()
                self.table = nn.Embedding(10, 4)

            def forward(self, ids: Int[Tensor, "B T"]):
                if ids.shape[1] > 100:
                    while True:
                        time.sleep(0.01)
                return self.table(ids)

        class Sleeps(nn.Module):
            def __init__(self):
                super().__init__()
                time.sleep(1000)

            def forward(self, ids: Int[Tensor, "B T"]):
                return ids
    """
    bench = Bench(Job(file(folder, text), is_file=True, limit=1.5))
    hangs, sleeps = (bench.found(each) for each in bench.targets())
    assert bench.stopwatch.rang
    assert hangs.report.domain is not None
    assert not hangs.report.finished
    assert "SF403" in [each.rule for each in hangs.report.problems]
    assert told(sleeps.report) == [("SF403", "warning", "stopped after 1.5 s, before anything was found")]


def test_an_import_has_a_limit(folder: Path) -> None:
    name = file(folder, "time.sleep(1000)\nclass Net(nn.Module): ...")
    with pytest.raises(TargetError, match=r"nets_.*\.py does not import within 0\.5 s"):
        Bench(Job(name, is_file=True, limit=0.5)).targets()


# In processes


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, Path]:
    """Everything that can go wrong, in one run."""
    folder = tmp_path_factory.mktemp("wrong")
    fine = """
        class {name}(nn.Module):
            def __init__(self):
                super().__init__()
                self.map = nn.Linear(8, {width})

            def forward(self, x: Float[Tensor, "B 8"]) -> Float[Tensor, "B 8"]:
                return self.map(x)  # shapeflow: ignore[{rule}]
    """
    ends = """
        class Ends(nn.Module):
            def forward(self, x: Float[Tensor, "B 8"]):
                os.kill(os.getpid(), signal.SIGSEGV)

        class After(nn.Module):
            def forward(self, x: Float[Tensor, "B 8"]):
                return x * 2
    """
    hangs = """
        class Hangs(nn.Module):
            def forward(self, x: Float[Tensor, "B 8"]):
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
                time.sleep(1000)

        class After(nn.Module):
            def forward(self, x: Float[Tensor, "B 8"]):
                print("what a model prints")
                return x * 2
    """
    for name, text in {
        "a_fine": fine.format(name="Fine", width=8, rule="SF201"),
        "b_ends": ends,
        "c_hangs": hangs,
        "d_raises": "raise RuntimeError('at import')\nclass Net(nn.Module): ...",
        "e_exits": "sys.exit(3)\nclass Net(nn.Module): ...",
        "f_dies": "os._exit(7)\nclass Net(nn.Module): ...",
        "g_wrong": fine.format(name="Wrong", width=9, rule="SF301"),
    }.items():
        (folder / f"{name}.py").write_text(HEAD + dedent(text))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pool, "GRACE", 2.0)
        patched.chdir(folder)
        config = Config(folder)
        jobs = jobs_for([Wanted(".")], config, limit=8.0)
        return check_jobs(jobs, config, lambda: ("SF201", "SF301"), processes=2), folder


def by_name(outcome: tuple[Outcome, Path]) -> dict[str, Report]:
    return {report.name: report for report in outcome[0].reports}


def test_reports_come_in_the_order_of_the_files(outcome: tuple[Outcome, Path]) -> None:
    assert list(by_name(outcome)) == [
        "a_fine.py:Fine",
        "b_ends.py:Ends",
        "b_ends.py:After",
        "c_hangs.py:Hangs",
        "c_hangs.py:After",
        "d_raises.py",
        "e_exits.py",
        "f_dies.py",
        "g_wrong.py:Wrong",
    ]


def test_a_process_that_ends_is_told(outcome: tuple[Outcome, Path]) -> None:
    found = by_name(outcome)
    assert told(found["b_ends.py:Ends"]) == [
        ("SF402", "warning", "the process that checked it ended with SIGSEGV"),
    ]
    assert str(found["b_ends.py:After"].domain) == "B >= 1"


def test_a_target_that_hangs_is_killed(outcome: tuple[Outcome, Path]) -> None:
    found = by_name(outcome)
    assert told(found["c_hangs.py:Hangs"]) == [
        ("SF403", "warning", "stopped after 8 s: it hangs in code that is not Python's"),
    ]
    assert str(found["c_hangs.py:After"].domain) == "B >= 1"


def test_files_that_do_not_import(outcome: tuple[Outcome, Path]) -> None:
    found = by_name(outcome)
    ((rule, level, message),) = told(found["d_raises.py"])
    assert (rule, level) == ("SF401", "warning")
    assert message.startswith("d_raises does not import: RuntimeError: at import (d_raises.py:")
    assert told(found["e_exits.py"])[0][2].startswith("e_exits does not import: SystemExit: 3")
    ended = "f_dies.py does not import: the process that checked it ended with status 7"
    assert told(found["f_dies.py"]) == [("SF401", "warning", ended)]


def test_comments_of_files_that_were_checked(outcome: tuple[Outcome, Path]) -> None:
    found = by_name(outcome)
    assert [each[0] for each in told(found["a_fine.py:Fine"])] == ["SF404"]
    assert {each[0] for each in told(found["g_wrong.py:Wrong"])} >= {"SF201", "SF404"}


def test_status(outcome: tuple[Outcome, Path]) -> None:
    assert outcome[0].status(strict=False) == 1
    assert outcome[0].failed == ()  # the folder was asked for, not its files


# What came of it


def problem(rule: str, level: str = "error", line: int = 2) -> Problem:
    return Problem(rule, level, "wrong", "net.py", line)  # type: ignore[arg-type]


def done(*problems: Problem, job: Job | None = None, **fields) -> Done:
    report = Report("net.py:Net", problems, Domain((), ()), runs=3)
    spans = (Span("net.py", 1, 5),)
    return Done(job or Job("net.py:Net"), (Checked(replace(report, **fields), spans),))


@pytest.mark.parametrize(
    ("problems", "failed", "strict", "status"),
    [
        ((), "", False, 0),
        ((problem("SF301"),), "", False, 1),
        ((problem("SF315", "warning"),), "", False, 0),
        ((problem("SF315", "warning"),), "", True, 1),
        ((problem("SF104", "note"),), "", True, 0),
        ((problem("SF301"),), "does not import", False, 2),
    ],
)
def test_status_of(problems: tuple[Problem, ...], failed: str, strict: bool, status: int) -> None:
    one = replace(done(*problems), failed=failed)
    assert settle([one], Config(Path()), tuple).status(strict=strict) == status


def test_settings_and_jobs_ignore(folder: Path) -> None:
    config = Config(folder, ignore=frozenset({"SF301"}), per_file={"net.py": frozenset({"SF302"})})
    job = Job("net.py:Net", ignore=frozenset({"SF303"}))
    found = settle([done(*map(problem, ("SF301", "SF302", "SF303", "SF304")), job=job)], config, tuple)
    assert [each.rule for each in found.reports[0].problems] == ["SF304"]
    assert found.ignored == 3


def test_comments_in_the_code_that_was_seen(folder: Path) -> None:
    (folder / "net.py").write_text(
        "1\n2  # shapeflow: ignore[SF301]\n3\n4 # shapeflow: ignore\n5\n6 # shapeflow: ignore\n"
    )
    found = settle([done(problem("SF301"))], Config(folder), lambda: ("SF301",))
    assert [(each.rule, each.line) for each in found.reports[0].problems] == [("SF404", 4)]
    assert found.ignored == 1


def test_comments_are_not_stale_where_a_check_was_stopped(folder: Path) -> None:
    (folder / "net.py").write_text("1\n2  # shapeflow: ignore[SF301]\n")
    assert settle([done(finished=False)], Config(folder), tuple).reports[0].problems == ()
    assert settle([done(runs=0)], Config(folder), tuple).reports[0].problems == ()
    assert settle([done()], Config(folder), tuple).reports[0].problems != ()


def test_stale_comments_can_be_ignored(folder: Path) -> None:
    (folder / "net.py").write_text("1\n2  # shapeflow: ignore[SF301]\n")
    config = Config(folder, ignore=frozenset({"SF404"}))
    assert settle([done()], config, tuple).reports[0].problems == ()


# What is asked for


def test_targets_of_the_settings_are_seen_from_their_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "models").mkdir()
    (folder / "models" / "net.py").write_text("")
    (folder / "deep").mkdir()
    monkeypatch.chdir(folder / "deep")
    targets = (Wanted("models"), Wanted("models/net.py:Net"), Wanted("models.net:Net"), Wanted("timm:resnet18"))
    found = [each.target for each in resolved(Wanted(""), Config(folder, targets))]
    assert found == ["../models", "../models/net.py:Net", "models.net:Net", "timm:resnet18"]


def test_nothing_is_asked_for(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing to check: give a target, .* as in: targets = \[\"models\"\]"):
        resolved(Wanted(""), Config(folder))


def test_several_files(folder: Path) -> None:
    (folder / "models").mkdir()
    wanted = resolved(Wanted("a.py", ("b.py", "models")), Config(folder))
    assert [each.target for each in wanted] == ["a.py", "b.py", "models"]


def test_inputs_go_with_one_target(folder: Path) -> None:
    config = Config(folder)
    message = r"^a\.py has many targets: inputs and arguments go with one, as in net\.py:Net$"
    with pytest.raises(TargetError, match=message):
        jobs_for(resolved(Wanted("a.py", ("B T",)), config), config)


def test_limits_by_precedence(folder: Path) -> None:
    wanted = [Wanted("a.py:A", limit=3.0), Wanted("b.py:B")]
    config = Config(folder, limit=9.0)
    assert [job.limit for job in jobs_for(wanted, config)] == [3.0, 9.0]
    assert [job.limit for job in jobs_for(wanted, config, limit=1.0)] == [1.0, 1.0]
    assert [job.limit for job in jobs_for(wanted, Config(folder))] == [3.0, 60.0]


def test_a_file_is_checked_once(folder: Path) -> None:
    (folder / "net.py").write_text("import torch\nclass Net: ...\n")
    assert [job.target for job in jobs_for([Wanted("."), Wanted(".")], Config(folder))] == ["net.py"]


def test_one_target_raises_the_mistakes_of_its_user(folder: Path) -> None:
    name = file(folder, NETS)
    with pytest.raises(InputError, match="Bare needs x"):
        Bench(Job(f"{name}:Bare", limit=60.0)).one()
    with pytest.raises(TargetError, match="never built"):
        Bench(Job(f"{name}:Refuses", limit=60.0)).one()
