"""`shapeflow draw` and the methods of a trace: the options of a drawing, notebooks, what is found in red, a stop."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import shapeflow as sf
from shapeflow.cli import app
from shapeflow.draw.palette import THEMES

ROOT = Path(__file__).parents[2]

FAULTY = '''
import torch
from torch import nn


class Heads(nn.Module):
    """Merges its heads without a transpose back."""

    def __init__(self):
        super().__init__()
        self.q, self.out = nn.Linear(12, 12), nn.Linear(12, 12)

    def forward(self, x):
        b, t, _ = x.shape
        heads = self.q(x).view(b, t, 3, 4).transpose(1, 2)
        return self.out(heads.reshape(b, t, 12))
'''


@pytest.fixture
def faulty(tmp_path, monkeypatch):
    path = tmp_path / "faulty.py"
    path.write_text(FAULTY)
    monkeypatch.chdir(tmp_path)
    return f"{path}:Heads"


def draw(target, *options):
    return CliRunner().invoke(app, ["draw", target, "B T 12", "--output", "out.dot", *options])


def test_options_of_the_command(faulty):
    def drawn(*options):
        answer = draw(faulty, *options)
        assert (answer.exit_code, answer.stdout) == (0, "out.dot\n"), answer.output
        return Path("out.dot").read_text()

    page = drawn()
    assert THEMES["light"].ground in page and "view · transpose" in page and "parameter " not in page
    assert THEMES["dark"].ground in drawn("--dark")
    assert "q.weight of" in drawn("--parameters")
    assert '"transpose"' in drawn("--unfold") and "view · transpose" not in drawn("--unfold")
    assert "B T 12 \\n 2 5 12 " in drawn("--at", "B=2,T=5")
    assert "288*B*T FLOPs" in drawn("--flops")
    assert "2.88 kFLOPs" in drawn("--flops", "--at", "B=2,T=5")


def test_check_marks_what_is_found_and_its_exit_status_tells_errors(faulty):
    answer = draw(faulty, "--check")
    report = sf.check(load(faulty), "B T 12")
    assert answer.exit_code == (0 if report.ok else 1)
    (problem,) = report.problems
    line = next(line for line in Path("out.dot").read_text().splitlines() if problem.rule in line)
    assert "view · transpose · reshape" in line and problem.rule in answer.stderr
    red = (THEMES["light"].warning if problem.level == "warning" else THEMES["light"].error).line
    assert f'color="{red}"' in line


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "gpt.json"
    answer = CliRunner().invoke(app, ["draw", f"{ROOT}/models/gpt.py:toy", "--flops", "-o", str(path)])
    assert answer.exit_code == 0, answer.output
    return path


def test_a_saved_trace_is_a_target(saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ["--at", "B=2,T=5", "--flops", "--depth", "1"]
    for target, name in ((f"{ROOT}/models/gpt.py:toy", "live.dot"), (str(saved), "saved.dot")):
        assert CliRunner().invoke(app, ["draw", target, "-o", name, *options]).exit_code == 0
    assert Path("saved.dot").read_text() == Path("live.dot").read_text()
    outside = CliRunner().invoke(app, ["draw", str(saved), "--at", "T=65", "--depth", "0"])
    assert (outside.exit_code, outside.stdout) == (0, "GPT.svg\n")
    assert "the trace holds for B >= 2, 2 <= T <= 64: T = 65 is outside" in " ".join(outside.stderr.split())
    printed = [CliRunner().invoke(app, ["trace", each]).stdout for each in (str(saved), f"{ROOT}/models/gpt.py:toy")]
    assert printed[0] == printed[1] != ""


def test_drawing_a_saved_trace_needs_no_torch(saved, tmp_path):
    commands = [["draw", saved, "-o", "x.svg", "--at", "B=2"], ["view", saved, "--no-open", "-o", "x.html"]]
    code = f"""
import sys
sys.modules["torch"] = None  # importing it fails
from shapeflow.cli import app
for command in {[[str(word) for word in command] for command in commands]}:
    app(command, standalone_mode=False)
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert (tmp_path / "x.svg").read_text().rstrip().endswith("</svg>") and (tmp_path / "x.html").exists()


MISTAKES = [
    (["SAVED", "B T:int64"], r"B T:int64: inputs, --with and --hint are for a target that is traced; .*gpt.json was"),
    (["SAVED", "--with", "n_layers=2"], "n_layers=2: inputs, --with and --hint are for a target that is traced"),
    (["SAVED", "--check"], "--check: the checker runs the model, and .*gpt.json is a trace of it"),
    (["SAVED", "--at", "Q=3"], "--at Q=3: no size is called Q; free ones are: B, T"),
    (["SAVED", "--at", "d_model=3"], "--at d_model=3: d_model is 32 in this model"),
    (["no/such.json"], r"no/such.json cannot be read: No such file"),
    (["OTHER"], r'other.json is no saved graph: it lacks "format"'),
    (["CUT"], r"cut.json is no saved graph: it ends in the middle of line"),
    (["NEWER"], r"newer.json has version 2 of the format, written by shapeflow 9.9.0; this is shapeflow .* upgrade it"),
    (["PLAIN", "--flops"], "the saved trace of GPT holds no FLOPs: save it with them"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
@pytest.mark.parametrize("command", ["draw", "view"])
def test_what_cannot_be_drawn_of_a_file_is_told(saved, tmp_path, monkeypatch, command, arguments, message):
    if command == "view" and "--flops" in arguments:
        pytest.skip("the page tells FLOPs where there are some")
    text = saved.read_text()
    files = {
        "saved": text,
        "other": '{"a": 1}',
        "cut": text[: len(text) // 2],
        "newer": text.replace('"version": 1', '"version": 2').replace('"shapeflow": "0.1.0"', '"shapeflow": "9.9.0"'),
        "plain": text.replace('"operations": {"flops"', '"others": {"flops"'),
    }
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt.json").write_text(files.pop("saved"))
    for name, content in files.items():
        (tmp_path / f"{name}.json").write_text(content)
    names = {"SAVED": "gpt.json"} | {name.upper(): f"{name}.json" for name in files}
    output = ["--output", "x.html"] + (["--no-open"] if command == "view" else [])
    answer = CliRunner().invoke(app, [command, *(names.get(each, each) for each in arguments), *output])
    assert answer.exit_code == 2, answer.output
    assert re.search(message, " ".join(answer.stderr.split()))
    assert isinstance(answer.exception, SystemExit) and not Path("x.html").exists()


def load(target):
    from shapeflow.target import load

    return load(target, arguments={}, has_inputs=True).value


@pytest.fixture(scope="module")
def trace():
    layers = [nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3)]
    return sf.trace(nn.Sequential(*layers, nn.Linear(8, 2)), "B 8")


def test_a_trace_shows_itself_in_a_notebook_as_one_page(trace):
    bundle = trace._repr_mimebundle_()
    assert bundle["image/svg+xml"].startswith("<svg") and bundle["text/plain"].startswith("<Trace of Sequential")
    assert trace._repr_svg_() == bundle["image/svg+xml"]
    assert "x3" in bundle["image/svg+xml"]


def test_a_notebook_may_ask_for_a_depth_and_a_theme(trace):
    drawing = trace.draw(depth=1, theme="dark")
    assert str(drawing) == trace.to_dot(depth=1, theme="dark")
    assert drawing._repr_svg_().startswith("<svg") and THEMES["dark"].ground in drawing._repr_svg_()
    assert drawing._repr_mimebundle_() == {"image/svg+xml": drawing._repr_svg_(), "text/plain": str(drawing)}


def test_a_trace_at_sizes_is_drawn_with_numbers(trace):
    assert 'label=" 5 8 "' in trace.at(B=5).to_dot()


class InPlace(nn.Module):
    """Writes to a tensor that it made, to parts of it, and through a view."""

    def forward(self, x):
        y = torch.zeros_like(x)
        y[:, 0] = x[:, 0]
        y.relu_()
        z = y[:, 1:]
        z += 1
        return y * 2


def test_writes_in_place_keep_the_drawing_in_one_piece():
    import networkx as nx

    trace = sf.trace(InPlace(), "B 5")
    for options in ({}, {"unfold": True}):
        dot = trace.to_dot(**options)
        arrows = [
            line.split(" [")[0].strip().replace('"', "").split(" -> ") for line in dot.splitlines() if " -> " in line
        ]
        drawn = nx.Graph(arrows)
        assert nx.is_connected(drawn)
        assert nx.has_path(nx.DiGraph(arrows), "x", "output")


BUSY = """
import signal, sys
from shapeflow.draw.layout import render
signal.signal(signal.SIGINT, signal.default_int_handler)  # what is started in the background ignores it
print("ready", flush=True)
nodes = range(3000)
render("digraph {" + "".join(f"{i} -> {(i * 7919 + k * 104729) % 3000};" for i in nodes for k in range(9)) + "}", "svg")
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="looks for processes as Linux shows them")
def test_ctrl_c_stops_a_long_layout_at_once_and_leaves_no_process_behind():
    working = subprocess.Popen(
        [sys.executable, "-c", BUSY], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, start_new_session=True
    )
    assert working.stdout.readline() == b"ready\n"
    child = wait_for(lambda: children(working.pid))[0]
    time.sleep(0.3)
    working.send_signal(signal.SIGINT)  # to Python alone: the layout must be ended by it
    working.wait(timeout=20)
    assert b"KeyboardInterrupt" in working.stderr.read()
    working.stdout.close()
    working.stderr.close()
    assert wait_for(lambda: not Path(f"/proc/{child}").exists())


def children(pid):
    task = Path(f"/proc/{pid}/task/{pid}/children")
    return task.read_text().split() if task.exists() else []


def wait_for(condition):
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError("waited for 20 s")
