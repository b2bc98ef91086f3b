"""The drawings of six small models as DOT, to be read and compared. To write them anew:

python -m tests.draw.test_golden
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import shapeflow as sf
from shapeflow.draw.layout import render
from tests.draw.small import SMALL

FOLDER = Path(__file__).parent / "golden"
ROOT = Path(__file__).parents[2]


def drawn(name):
    model, inputs = SMALL[name]()
    return sf.trace(model.eval(), *inputs).to_dot()


@pytest.mark.parametrize("name", SMALL)
def test_golden(name, monkeypatch):
    monkeypatch.chdir(ROOT)  # tooltips tell places in the code from here
    assert drawn(name) == (FOLDER / f"{name}.dot").read_text()


@pytest.mark.parametrize("name", SMALL)
def test_golden_drawings_can_be_laid_out(name):
    assert render((FOLDER / f"{name}.dot").read_text(), "svg").startswith(b"<?xml")


def test_every_golden_file_has_its_model():
    assert {path.stem for path in FOLDER.iterdir()} == set(SMALL)


def test_another_process_with_another_hash_seed_gives_the_same_bytes(tmp_path, monkeypatch):
    script = (
        "import sys, shapeflow as sf\n"
        "from tests.draw.small import SMALL\n"
        "model, inputs = SMALL['experts']()\n"
        "trace = sf.trace(model.eval(), *inputs)\n"
        "[trace.save(sys.argv[1] + suffix, unfold=unfold) for suffix, unfold in (('a.svg', False), ('b.dot', True))]\n"
    )
    here, there = f"{tmp_path}/here", f"{tmp_path}/there"
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", script, there], check=True, env=environment, cwd=ROOT)
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("sys.argv", ["", here])
    exec(script, {})
    for name in ("a.svg", "b.dot"):
        assert Path(here + name).read_bytes() == Path(there + name).read_bytes()


if __name__ == "__main__":
    os.chdir(ROOT)
    FOLDER.mkdir(exist_ok=True)
    for name in SMALL:
        (FOLDER / f"{name}.dot").write_text(drawn(name))
