"""The examples are scripts: what they share is found beside them, here as when they are run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import shapeflow as sf

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
sys.path.insert(0, str(EXAMPLES))
sf.enforce("training")


@pytest.fixture
def start():
    """`start("train_gpt", *options)`: an example in a process of its own, with `ranks=2` under torchrun."""
    started = []

    def make(program, *options, ranks=None):
        launcher = [] if ranks is None else ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        line = [sys.executable, *launcher, str(EXAMPLES / f"{program}.py"), *options]
        process = subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", env=environment
        )
        started.append(process)
        return process

    yield make
    for process in started:
        process.kill()
        process.communicate()
