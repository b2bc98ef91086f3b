"""`examples/sharded.py` on its toy: what it prints, and what it refuses."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "examples/sharded.py", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_what_a_rank_holds_and_sends() -> None:
    done = run("--model", "toy", "--tp", "2", "--at", "B=2,T=16")
    assert done.returncode == 0, done.stderr
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "toy on 8 ranks: 4 (dp) x 2 (tp)" in lines
    assert "parameters: 1,705,232; on one rank: 246,096 in 492,192 bytes" in lines
    assert "mlp.gate_proj linear B T 512 S(2) on tp B T 256" in lines
    assert "4 all_reduce 2 B T 256 B T 256 512*B*T 16,384" in lines  # two a layer, in bfloat16


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--tp", "3"), "--tp 3 does not divide --ranks 8"),
        (("--model", "toy", "--ranks", "32", "--tp", "32"), "--tp 32 does not divide num_attention_heads = 16 of toy"),
        (("--at", "B=two"), "--at B=two: sizes are written as B=1,T=8192"),
        (("--at", "B=2"), "--at B=2: the sizes are B and T"),
    ],
)
def test_a_plan_that_does_not_fit(
    arguments: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["sharded.py", *arguments])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(ROOT / "examples/sharded.py"), run_name="__main__")
    assert end.value.code == 2
    assert message in capsys.readouterr().err
