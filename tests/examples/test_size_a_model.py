"""`examples/size_a_model.py`: what it counts is what the whole model takes, and bad input gets one line."""

import json
import re
import runpy
from dataclasses import replace

import pytest
import size_a_model
import torch
from size_a_model import main

from models import deepseek, gpt, llama, mistral, mixtral, qwen3, qwen3_moe
from models.rope import Llama3Scaling
from models.routing import Groups
from sizing.bill import bill, build, windowed
from sizing.files import found
from sizing.mistake import Refused
from sizing.published import NAMED

FEW = {"n_experts": 4, "top_k": 1, "n_layers": 3}  # tracing takes a second for every dozen experts
LLAMA = replace(llama.TOY, n_layers=3)
DEEPSEEK = replace(deepseek.TOY_V3, groups=Groups(n_groups=2, top_groups=1, n_best=1), **FEW)
TOY = ["--d-model", "42", "--heads", "6", "--d-head", "10", "--layers", "1", "--vocab", "97", "--d-ff", "53"]


@pytest.mark.parametrize("config", [LLAMA, DEEPSEEK], ids=["llama", "deepseek"])
def test_few_layers_and_experts_tell_of_all(config) -> None:
    assert bill(config, torch.bfloat16) == bill(config, torch.bfloat16, whole=True)


def test_experts_in_some_layers_only_are_counted_whole() -> None:
    config = replace(qwen3_moe.TOY, dense_layers=(1,), n_experts=3, top_k=1)
    there = sum(parameter.numel() for parameter in build(config, torch.bfloat16).parameters())
    assert bill(config, torch.bfloat16).parameters.value == there


def test_a_dense_model_by_hand() -> None:
    c = LLAMA
    matrices = c.d_model * c.d_head * 2 * (c.n_heads + c.n_kv_heads) + 3 * c.d_model * c.d_ff
    found = bill(c, torch.bfloat16)
    parameters = c.n_layers * (matrices + 2 * c.d_model) + c.d_model + 2 * c.vocab * c.d_model
    assert found.parameters.value == found.active.value == parameters
    products = 2 * (c.n_layers * matrices + c.vocab * c.d_model)
    assert str(found.flops_per_token) == f"{4 * c.n_layers * c.n_heads * c.d_head}*T + {products}"
    assert found.cache_per_token.value == 2 * c.n_layers * c.n_kv_heads * c.d_head * 2
    assert (found.training - found.activations).value == 16 * parameters


def test_a_published_mixture_of_experts() -> None:
    found = bill(NAMED["mixtral-8x7b"], torch.bfloat16)
    assert (found.parameters.value, found.active.value) == (46_702_792_704, 12_879_925_248)
    assert found.cache_per_token.value == 131_072


def test_a_latent_is_what_a_cache_holds() -> None:
    c = DEEPSEEK
    assert bill(c, torch.bfloat16).cache_per_token.value == c.n_layers * (c.d_latent + c.d_rope) * 2


def test_a_window_ends_the_growth_of_a_cache() -> None:
    per_token = 2 * LLAMA.n_layers * LLAMA.n_kv_heads * LLAMA.d_head * 2
    cache = windowed(bill(LLAMA, torch.bfloat16), replace(mistral.TOY, n_layers=3, window=8)).cache
    assert [cache.at(T=length) for length in (5, 7, 8, 999)] == [5 * per_token, *[7 * per_token] * 3]


COMMON = {"vocab_size": 97, "hidden_size": 42, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 10}
COMMON |= {"num_hidden_layers": 2, "intermediate_size": 53, "hidden_act": "silu", "rms_norm_eps": 1e-5}
ROTARY = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
ROTARY |= {"original_max_position_embeddings": 8192}
LATENT = {"qk_nope_head_dim": 10, "qk_rope_head_dim": 4, "v_head_dim": 12, "kv_lora_rank": 14, "q_lora_rank": None}
EXPERTS = {"n_routed_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 29, "n_shared_experts": 1}
FILES = {
    "gpt2": (
        {"vocab_size": 97, "n_positions": 11, "n_embd": 42, "n_head": 6, "n_layer": 2, "n_inner": None},
        replace(gpt.gpt2(d_model=42, n_heads=6, n_layers=2), vocab=97, max_len=11),
    ),
    "llama": (COMMON, llama.TOY),
    "llama 3.1": (
        COMMON | {"model_type": "llama", "rope_theta": 5e5, "rope_scaling": ROTARY, "tie_word_embeddings": True},
        replace(llama.TOY, base=5e5, scaling=Llama3Scaling(8.0, 1.0, 4.0, 8192), tied=True),
    ),
    "mistral": (COMMON | {"sliding_window": 3}, mistral.TOY),
    "qwen3": (COMMON | {"rms_norm_eps": 1e-6, "rope_theta": 1e6}, qwen3.TOY),
    "mixtral": (
        COMMON | {"num_local_experts": 5, "num_experts_per_tok": 2, "rope_theta": 1e6, "sliding_window": None},
        mixtral.TOY,
    ),
    "qwen3_moe": (
        COMMON
        | {"num_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 29, "num_key_value_heads": 2}
        | {"norm_topk_prob": True, "rms_norm_eps": 1e-6, "rope_theta": 1e6},
        qwen3_moe.TOY,
    ),
    "deepseek_v2": (
        COMMON
        | LATENT
        | EXPERTS
        | {"num_key_value_heads": 6, "first_k_dense_replace": 1, "routed_scaling_factor": 1.0},
        deepseek.DeepSeekConfig(
            vocab=97,
            d_model=42,
            n_heads=6,
            d_nope=10,
            d_rope=4,
            d_v=12,
            d_latent=14,
            d_latent_q=None,
            d_ff=53,
            d_expert=29,
            n_experts=5,
            top_k=2,
            n_shared=1,
            n_dense_layers=1,
            n_layers=2,
            norm_eps=1e-5,
        ),
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_config_of_transformers(name: str, tmp_path) -> None:
    fields, expected = FILES[name]
    (tmp_path / "config.json").write_text(json.dumps({"model_type": name, "torch_dtype": "bfloat16"} | fields))
    assert found(str(tmp_path / "config.json")) == found(str(tmp_path)) == expected


def test_sizes_in_a_file(tmp_path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(
        '{"d_model": 42, "n_heads": 6, "n_kv_heads": 3, "d_head": 10, "d_ff": 53, "n_layers": 2, "vocab": 97}'
    )
    assert found(str(file)) == llama.TOY


BAD_FILES = {
    "{": r"cannot be read: .*",
    "[3]": r"holds no object: fields and sizes are needed",
    '{"d_model": 50, "n_heads": 7}': r"d_model = 50 is not divisible by n_heads = 7: .*",
    '{"d_model": "50"}': r"d_model = '50' is no size: a positive whole number",
    '{"d_model": true}': r"d_model = True is no size: a positive whole number",
    '{"width": 50}': r"width is no field; there are model_type, or d_model, .*",
    '{"model_type": "t5"}': r"model_type = 't5' is not covered; covered are gpt2, llama, .*",
    '{"model_type": "llama"}': r"the config of llama has no field .*",
    '{"model_type": "llama", "hidden_size": "wide"}': r"hidden_size = 'wide' is no size: a positive whole number",
    json.dumps({"model_type": "llama"} | COMMON | {"hidden_act": "gelu"}): r"hidden_act = 'gelu' of llama is not cov.*",
    json.dumps({"model_type": "llama"} | COMMON | {"num_key_value_heads": 4}): r".*6.*4.*",
}


@pytest.mark.parametrize("text", BAD_FILES)
def test_a_file_that_is_no_configuration(text: str, tmp_path) -> None:
    file = tmp_path / "config.json"
    file.write_text(text)
    with pytest.raises(Refused, match=rf"^{re.escape(str(file))}:? {BAD_FILES[text]}\Z"):
        found(str(file))


def lines_of(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_options_alone(capsys) -> None:
    assert main([*TOY, "--kv-heads", "3", "--at", "B=2,T=7"]) == 0
    lines = lines_of(capsys.readouterr().out)
    assert "model: Llama of models/, 1 layer" in lines
    assert "KV cache, a token 120" in lines  # 2 * 3 heads * 10 * 2 bytes
    assert "KV cache, a sequence 120*T" in lines
    assert "at B=2, T=7 model" in lines
    assert "KV cache, a sequence 840 B" in lines


def test_a_named_model_with_a_field_changed(capsys) -> None:
    assert main(["gpt2", "--layers", "3"]) == 0
    lines = lines_of(capsys.readouterr().out)
    assert f"parameters {124_439_808 - 9 * 7_087_872:,}" in lines
    assert "at B=1, T=1024 gpt2" in lines


def test_four_ways_side_by_side_and_a_plot(capsys, tmp_path) -> None:
    picture = tmp_path / "cost.png"
    assert (
        main(
            [
                *TOY,
                "--kv-heads",
                "2",
                "--d-latent",
                "20",
                "--experts",
                "2",
                "--top-k",
                "1",
                "--compare",
                "--plot",
                str(picture),
            ]
        )
        == 0
    )
    lines = lines_of(capsys.readouterr().out)
    assert "at B=1, T=8192 dense grouped latent experts" in lines
    (cache,) = [line for line in lines if re.match(r"KV cache, a token \d.* k?B ", line)]
    assert cache == "KV cache, a token 240 B 80 B 48 B 80 B"  # 120, 40, 20 + 4, 40 numbers of 2 bytes
    assert picture.read_bytes().startswith(b"\x89PNG")


BAD = {
    ("--d-model", "50", "--heads", "7"): r"d_model = 50 is not divisible by n_heads = 7: give --d-head",
    (*TOY, "--kv-heads", "4"): r".*6 .*4",
    (*TOY[:5], "9", *TOY[6:]): r".*even.*9",
    ("llama-3-8b", "--kv-heads", "5"): r".*32.*5",
    ("gpt2", "--heads", "7"): r"d_model must be divisible by n_heads, got 768 and 7",
    ("llama-3-8b", "--experts", "8"): r"llama-3-8b is Llama of models/, which has nothing for --experts",
    (*TOY, "--experts", "2", "--top-k", "3"): r".*at most all 2, got top_k = 3",
    ("deepseek-v3", "--experts", "100"): r"n_experts must be divisible by n_groups, got 100 and 8",
    ("--compare", "--window", "5"): r"--window belongs to none of the four that --compare makes of options",
    ("--compare", "gpt2", "--layers", "3"): r"--compare of named models takes them as they are",
    ("gpt2", "--at", "T=2000"): r"--at T=2000: gpt2 takes T <= 1024",
    ("gpt2", "--at", "B=two"): r"--at B=two: sizes are written as B=1,T=8192",
    ("gpt2", "--at", "S=3"): r"--at S=3: sizes are written as B=1,T=8192",
    ("gpt2", "--layers", "0"): r"argument --layers: 0 is no size: a positive whole number",
    ("gpt3",): r"gpt3 is no file, and none of gpt2, .*",
    ("--compare", "gpt2", "gpt3"): r"gpt3 is no file, and none of gpt2, .*",
    (*TOY, "--plot", "cost.xyz"): r"--plot cost.xyz: a picture is a .png, .svg or .pdf",
    (*TOY, "--plot", "no/such/folder.png"): r"--plot no/such/folder.png: there is no folder no/such",
}


@pytest.mark.parametrize("arguments", BAD, ids=" ".join)
def test_bad_input_gets_one_line(arguments: tuple[str, ...], capsys) -> None:
    try:
        status = main(list(arguments))
    except SystemExit as stopped:
        status = stopped.code
    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    assert re.fullmatch(rf"size_a_model: {BAD[arguments]}[^\n]*\n", err), err


def test_the_program_ends_with_the_status(monkeypatch, capsys) -> None:
    monkeypatch.setattr("sys.argv", ["size_a_model.py", "llama-3-8b", "--kv-heads", "5"])
    with pytest.raises(SystemExit, match="2"):
        runpy.run_path(size_a_model.__file__, run_name="__main__")
    assert capsys.readouterr().err.startswith("size_a_model: ")
