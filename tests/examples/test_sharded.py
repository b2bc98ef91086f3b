"""`examples/sharded.py`: what it prints and draws, and what it refuses.

That rank 0 holds and sends what its block's trace tells is shown with eight real processes in
`tests/trace/test_sharding.py`.
"""

import re

import pytest
from sharded import main


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main([*arguments]) == 0
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_what_a_rank_holds_and_sends_of_a_llama(capsys) -> None:
    lines = printed(capsys, "--model", "toy", "--tp", "2", "--at", "B=2,T=16")
    assert "toy on 8 ranks: 4 (dp) x 2 (tp)" in lines
    embed = head = 1024 * 256
    norms, layers = 5 * 256, 2 * (2 * 256 * 256 + 2 * 128 * 256 + 3 * 512 * 256)
    whole, held = embed + norms + head + layers, (embed + norms + (head + layers) // 2) // 4  # tp 2, dp 4
    assert f"parameters: {whole:,}; on one rank: {held:,} in {2 * held:,} bytes" in lines
    assert "mlp.up_proj.weight 512 256 S(0) on dp, S(0) on tp 64 256 32,768" in lines
    assert "input_layernorm.weight 256 S(0) on dp 64 128" in lines
    assert "mlp.gate_proj linear B T 512 S(2) on tp B T 256" in lines
    assert "4 all_reduce 2 B T 256 B T 256 512*B*T 16,384" in lines  # two a layer, in bfloat16


def test_a_llama_that_is_cut_along_the_text(capsys) -> None:
    lines = printed(capsys, "--model", "toy", "--tp", "2", "--sequence", "--at", "B=2,T=16")
    assert "input_layernorm mul B T 256 S(1) on tp B T//2 256" in lines
    assert "self_attn redistribute B T 256 R on tp B T 256" in lines
    assert "mlp.down_proj redistribute B T 256 S(1) on tp B T//2 256" in lines
    scattered, gathered = "reduce_scatter_tensor 2 2*B T//2 256 B T//2 256", "all_gather_into_tensor 2 B T//2 256 2*B"
    assert any(line.startswith(f"5 {scattered}") for line in lines)  # two a layer, and the embedding
    assert any(line.startswith(f"5 {gathered}") for line in lines)  # and the last norm


def test_a_block_without_fsdp_and_its_picture(capsys, tmp_path) -> None:
    lines = printed(capsys, "--model", "block", "--no-fsdp", "--draw", str(tmp_path / "block.dot"))
    assert "attn.out.weight 256 256 S(1) on tp 256 64 65,536" in lines
    assert "norm1.weight 256 whole 256 1,024" in lines
    assert "attn.out linear B T 256 P(sum) on tp B T 256" in lines
    assert "all of them" in lines[-3] or "all of them" in lines[-2]
    drawn = (tmp_path / "block.dot").read_text()
    assert {*re.findall(r"\[(\S+) on tp\]", drawn)} == {"R", "S(2)", "P(sum)"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--tp", "3"), "--tp 3 does not divide --ranks 8"),
        (("--tp", "0"), "--tp 0 does not divide --ranks 8"),
        (("--ranks", "0"), "--tp 4 does not divide --ranks 0"),
        (("--model", "toy", "--ranks", "32", "--tp", "32"), "--tp 32 does not divide num_attention_heads = 16 of toy"),
        (("--model", "block", "--ranks", "32", "--tp", "32"), "--tp 32 does not divide heads = 16 of block"),
        (("--at", "B=two"), "--at B=two: sizes are written as B=1,T=8192"),
        (("--at", "B=0,T=5"), "--at B=0,T=5: sizes are positive"),
        (("--at", "B=2"), "--at B=2: the sizes are B and T"),
        (("--model", "block", "--sequence", "--at", "B=1,T=90"), "--at B=1,T=90: --tp 4 does not divide T"),
        (("--draw", "block.xyz"), "--draw block.xyz: a picture is a .svg, .png, .pdf, .dot, .mmd or .html"),
        (("--draw", "no/such/block.svg"), "--draw no/such/block.svg: there is no folder no/such"),
        (("--model", "gpt3"), "argument --model: invalid choice: 'gpt3'"),
    ],
)
def test_a_plan_that_does_not_fit_is_told_in_one_line(arguments, message, capsys) -> None:
    try:
        status = main([*arguments])
    except SystemExit as end:
        status = end.code
    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    assert re.fullmatch(rf"sharded: {re.escape(message)}[^\n]*\n", err), err
