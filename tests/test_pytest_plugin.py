"""The plugin in pytest runs of its own."""

import shutil
import subprocess
import sys
import textwrap
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import torch._dynamo  # noqa: F401 - before a run in this process, which forgets what it imports

pytest_plugins = ["pytester"]

INSTALLED = any(each.value == "shapeflow.pytest_plugin" for each in entry_points(group="pytest11"))
PLUGIN = () if INSTALLED else ("-p", "shapeflow.pytest_plugin")  # pytest does not take one plugin under two names
ROOT = Path(__file__).parents[1]
MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.width = width
        self.head = nn.Linear(3, width)

    def forward(self, x):
        return self.head(x.flatten(1))
"""


@pytest.fixture(autouse=True)
def as_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where `CI` is set, pytest repeats whole messages in its summary."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("BUILD_NUMBER", raising=False)


@pytest.fixture
def run(pytester: pytest.Pytester):
    """Runs pytest on files, in this process: torch is imported already."""
    pytester.makepyfile(net=MODEL)
    pytester.syspathinsert()

    def run(*arguments: str, **files: str):
        for name, text in files.items():
            (pytester.path / f"{name}.py").write_text(textwrap.dedent(text))
        return pytester.runpytest_inprocess(*PLUGIN, "-q", "-p", "no:cacheprovider", *arguments)

    return run


@pytest.fixture
def run_installed(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Runs pytest in a process of its own, with the plugin installed: an entry point, found beside the tests."""
    info = pytester.path / "installed" / "shapeflow-0.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shapeflow\nVersion: 0.0\n")
    (info / "entry_points.txt").write_text("[pytest11]\nshapeflow = shapeflow.pytest_plugin\n")
    monkeypatch.setenv("PYTHONPATH", f"{info.parent}:{ROOT}")
    pytester.makepyfile(net=MODEL)
    return lambda *arguments: pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider", *arguments)


FAILING = """
    import unittest

    import pytest
    import torch

    from net import Net

    def test_call():
        Net()(torch.zeros(2, 5))

    @pytest.fixture
    def output():
        return Net()(torch.zeros(2, 7))

    def test_fixture(output):
        pass

    class TestCase(unittest.TestCase):
        def test_method(self):
            Net()(torch.zeros(2, 11))

    def test_own_assertion():
        assert Net()(torch.zeros(2, 3)).shape == (2, 5)

    def test_expected():
        with pytest.raises(RuntimeError):
            Net()(torch.zeros(2, 5))
"""


def test_errors_are_explained(run):
    result = run(test_net=FAILING)
    result.assert_outcomes(passed=1, failed=3, errors=1)
    for size in (5, 7, 11):  # in the test, in its fixture, in the method
        result.stdout.fnmatch_lines(
            [
                "E * shapeflow: in head (Linear of Net)",
                f"E *   axis: axis 1 of x.flatten(1) is {size}, axis 1 of head.weight is 3",
                f"E *   fix: nn.Linear({size}, width)",
            ]
        )
    assert result.stdout.str().count("shapeflow: in head") == 3


def test_explanations_can_be_switched_off(run):
    result = run("--no-shapeflow-explain", test_net=FAILING)
    result.assert_outcomes(passed=1, failed=3, errors=1)
    result.stdout.no_fnmatch_line("*shapeflow: in*")


def test_the_installed_plugin_works_under_xdist_and_can_be_left_out(run_installed, pytester):
    (pytester.path / "test_net.py").write_text(textwrap.dedent(FAILING))
    result = run_installed("-n", "1")
    result.assert_outcomes(passed=1, failed=3, errors=1)
    assert result.stdout.str().count("shapeflow: in head (Linear of Net)") == 3
    result = run_installed("-p", "no:shapeflow", "--shapeflow-update", "--collect-only")
    result.stderr.fnmatch_lines(["*unrecognized arguments: --shapeflow-update*"])


def test_the_plugin_does_not_import_torch():
    code = "import sys, shapeflow.pytest_plugin; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert found.stdout.strip() == "False"


def test_the_fixture_has_the_assertions(run):
    result = run(
        test_net="""
        import pytest
        from net import Net

        def test_shapes(shapeflow):
            shapeflow.assert_shapes(Net(), "B 3 -> B width")
            shapeflow.assert_batch_independent(Net(), "B 3")
            shapeflow.assert_gradients_reach_all_parameters(Net(), "B 3")

        def test_wrong(shapeflow):
            shapeflow.assert_shapes(Net(), "B 3 -> B 3")
        """
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["E *axis 1 of output is 4, not 3"])
    result.stdout.no_fnmatch_line("*/shapes.py:*")  # the frames of the assertion are none of the reader's
    result.stdout.no_fnmatch_line("*shapeflow: in*")


def rewritten(file: Path, text: str) -> None:
    """Another text in a file, whose compiled form must not be taken for that of the old one."""
    file.write_text(text)
    shutil.rmtree(file.parent / "__pycache__", ignore_errors=True)


SNAPSHOT = """
    import pytest
    from net import Net

    @pytest.mark.parametrize("width", [4])
    def test_net(shape_trace, width):
        shape_trace.assert_unchanged(Net(width), "B 3")
        shape_trace(Net(width), "B 1 3").assert_unchanged(name="image")
        shape_trace.assert_unchanged(Net(width), "B 3", depth=1)
"""


def test_snapshots(run, pytester):
    missing = run(test_net=SNAPSHOT)
    missing.assert_outcomes(failed=1)
    missing.stdout.fnmatch_lines(
        ["E *there is no snapshot __shapes__/test_net/test_net-4.txt: write it with pytest --shapeflow-update"]
    )
    run("--shapeflow-update").assert_outcomes(passed=1)
    folder = pytester.path / "__shapes__" / "test_net"
    assert sorted(each.name for each in folder.iterdir()) == [
        "test_net-4-2.txt",
        "test_net-4-image.txt",
        "test_net-4.txt",
    ]
    assert "B 3" in (folder / "test_net-4.txt").read_text()
    run().assert_outcomes(passed=1)

    rewritten(pytester.path / "net.py", MODEL.replace("nn.Linear(3, width)", "nn.Linear(3, width + 1)"))
    changed = run()
    changed.assert_outcomes(failed=1)
    changed.stdout.fnmatch_lines(
        [
            "E *the shapes are not those of __shapes__/test_net/test_net-4.txt (-), but (+):",
            "E * -*linear*B 3*B 4*",
            "E * +*linear*B 3*B 5*",
            "E *if they are right, write them with pytest --shapeflow-update",
        ]
    )
    run("--shapeflow-update").assert_outcomes(passed=1)
    run().assert_outcomes(passed=1)


ENFORCED = """
    import pytest
    import torch
    from {package}.net import scale

    def test_right():
        assert scale(torch.ones(2, 3), torch.ones(3)).shape == (2, 3)

    def test_wrong():
        with pytest.raises(TypeError, match="axis 0 is 5"):
            scale(torch.ones(2, 5), torch.ones(5)[:1].expand(5)[:, None])
        with pytest.raises(TypeError):
            scale(torch.ones(2, 3), torch.ones(5))
"""
PACKAGE = """
    from jaxtyping import Float
    from torch import Tensor

    def scale(x: Float[Tensor, "B T"], by: Float[Tensor, " T"]) -> Float[Tensor, "B T"]:
        return x if len(by) == 5 else x * by
"""


@pytest.mark.parametrize("where", ["option", "settings", "nowhere"])
def test_a_package_is_enforced(run, pytester, where):
    package = f"my_{where}"
    (pytester.path / package).mkdir()
    (pytester.path / package / "__init__.py").write_text("")
    (pytester.path / package / "net.py").write_text(textwrap.dedent(PACKAGE))
    if where == "settings":
        (pytester.path / "pyproject.toml").write_text(f'[tool.shapeflow]\nenforce = ["{package}"]\n')
    options = ["--shapeflow-enforce", package] if where == "option" else []
    test = ENFORCED.replace('match="axis 0 is 5"', "").replace("{package}", package)
    result = run(*options, f"--rootdir={pytester.path}", test_enforced=test)
    result.assert_outcomes(passed=1 if where == "nowhere" else 2, failed=where == "nowhere")


@pytest.mark.parametrize(
    ("settings", "message"),
    [("enforce = 3", "*tool.shapeflow.enforce has to be a list of packages, not 3*")],
)
def test_settings_that_are_wrong_are_told(run, pytester, settings, message):
    (pytester.path / "pyproject.toml").write_text(f"[tool.shapeflow]\n{settings}\n")
    run(f"--rootdir={pytester.path}", test_net="def test(): ...").stderr.fnmatch_lines([message])
