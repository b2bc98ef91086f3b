"""A checkpoint survives a kill in the middle of a write, is refused when damaged, and runs nothing."""

import pickle
import random
import re
import resource
import signal
import subprocess
import sys
import zipfile

import pytest
import torch

from training.checkpoint import load, save
from training.settings import RunError

STATE = {"step": 7, "weights": {"a": torch.arange(11.0), "b": torch.ones(3, 5)}, "losses": [2.5, 1.25]}


def equal(state, other):
    return repr(state) == repr(other)


@pytest.fixture
def path(tmp_path):
    save(tmp_path / "checkpoint.pt", STATE)
    return tmp_path / "checkpoint.pt"


def test_what_is_saved_is_loaded(path):
    state = load(path)
    del state["format"]
    assert equal(state, STATE)
    assert [each.name for each in path.parent.iterdir()] == ["checkpoint.pt"]


WRITER = """
import os, random, signal, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import torch
from training.checkpoint import load, save

path, middle = Path(sys.argv[2]), 0
state = lambda number: {"number": number, "weights": torch.full((100_003,), float(number))}
save(path, state(0))
for round in range(20):
    child = os.fork()
    if child == 0:
        for number in range(1, 1_000_000):
            save(path, state(number))
    time.sleep(random.uniform(0.005, 0.05))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    middle += path.with_name("checkpoint.pt.partial").exists()
    kept = load(path)
    assert (kept["weights"] == kept["number"]).all(), kept["number"]
print(middle)
"""


def test_a_kill_in_the_middle_of_a_write_leaves_the_checkpoint_before(tmp_path):
    examples = sys.modules["training"].__path__[0] + "/.."
    line = [sys.executable, "-c", WRITER, examples, str(tmp_path / "checkpoint.pt")]
    done = subprocess.run(line, capture_output=True, encoding="utf-8", timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 3, "so few kills met a write that the test shows nothing"


class Trap:
    def __reduce__(self):
        return (pytest.fail, ("code of the checkpoint was run",))


def zipped(path, name, data):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, data)


DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("step,loss\n1,2.5\n"),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "pickle": lambda path: path.write_bytes(pickle.dumps(STATE)),
    "archive": lambda path: zipped(path, "weights.txt", "none"),
    "code": lambda path: torch.save({"format": "shapeflow training example, 1", "model": Trap()}, path),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_checkpoint_is_told(path, name):
    DAMAGES[name](path)
    with pytest.raises(RunError, match=rf"^the checkpoint {re.escape(str(path))} is damaged.*\Z") as caught:
        load(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [torch.ones(3), {"weights": torch.ones(3)}, {"format": "of another kind"}])
def test_a_file_that_torch_wrote_for_someone_else(path, content):
    torch.save(content, path)
    with pytest.raises(RunError, match=r"checkpoint\.pt was not written by this program: --resume takes a "):
        load(path)


@pytest.fixture
def file_limit():
    """No file may grow beyond 4 KiB: what a full disk does, on every machine."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, ignored)


def test_a_full_disk_is_told_and_the_checkpoint_before_stays(path, file_limit):
    with pytest.raises(RunError, match=r"/checkpoint\.pt cannot be written: File too large$"):
        save(path, STATE | {"weights": torch.ones(100_003)})
    assert load(path)["step"] == 7
    assert [each.name for each in path.parent.iterdir()] == ["checkpoint.pt"]


def test_a_folder_is_no_checkpoint(tmp_path):
    with pytest.raises(RunError, match=r" cannot be read: Is a directory$"):
        load(tmp_path)


def test_one_wrong_byte_anywhere_is_noticed_or_matters_not(path):
    rng, whole = random.Random(0), path.read_bytes()
    noticed = 0
    for place in rng.sample(range(len(whole)), 300):
        changed = bytearray(whole)
        changed[place] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        try:
            state = load(path)
        except RunError:
            noticed += 1
        else:
            del state["format"]
            assert equal(state, STATE), f"a flip in byte {place} went unnoticed"
    assert noticed > 100
