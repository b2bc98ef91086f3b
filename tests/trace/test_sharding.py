"""DTensors: what the trace of one process that stands for rank 0 tells is what eight processes hold and send."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trace.sharded_model import HOWS

ROOT = Path(__file__).parents[2]


def answer(*arguments: str) -> dict:
    command = [sys.executable, "-W", "ignore", "-m", "tests.trace.sharded_model", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="session")  # a worker of xdist may come back to this file
def traced() -> dict:
    return answer("fake")


@pytest.fixture(scope="session")
def real() -> dict:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return answer("gloo", str(port))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("what", ["parameters", "outputs", "collectives"])
def test_rank_0_holds_and_sends_what_the_trace_tells(traced: dict, real: dict, how: str, what: str) -> None:
    told, found = traced[how][what], real[how][what]
    if what == "outputs":
        told = {path: shape for path, shape in told.items() if path in found}
        assert len(told) > 10
    assert told == found


def test_whole_sizes_placements_and_bytes(traced: dict) -> None:
    assert traced["both"]["edges"]["blocks.0.ffn.up"] == ["B T 80", "S(2) on tp", "B T 20"]
    assert traced["both"]["stored"]["blocks.0.ffn.up.weight"] == ["80 32", "S(0) on dp, S(0) on tp", "10 32"]
    assert traced["sequence"]["edges"]["blocks.0.norm1"] == ["B T 32", "S(1) on tp", "B T//4 32"]
    gathered = 4 * (2 * 3216 + 96 * 32)  # bytes of what fully_shard gathers: two blocks, embedding, norm and head
    assert traced["fsdp"]["bytes"] == traced["fsdp"]["gathered"] >= gathered
    assert "T % 4 == 0" in traced["sequence"]["domain"] and traced["fsdp"]["domain"] == "B >= 2, T >= 2"


def test_bytes_are_those_of_the_larger_side_where_sizes_are_free(traced: dict) -> None:
    """A gathered activation is four times what each of four ranks sends, a scattered sum four times what it gets."""
    assert traced["sequence"]["sizes"] == [
        "all_gather_into_tensor 384*B*T",  # of the head: 96 words, in four parts
        "all_gather_into_tensor 512*B*(T//4)",
        "reduce_scatter_tensor 512*B*(T//4)",
    ]


def test_placements_are_drawn_and_saved(traced: dict) -> None:
    assert any("B T 80 [S(2) on tp]" in line for line in traced["both"]["labels"])
    assert all(traced[how]["saved"] for how in HOWS)
    assert traced["fsdp"]["name"] == "Model"
