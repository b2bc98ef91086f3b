"""Every named configuration has its published number of parameters, all and active; built on meta, each in seconds.

`parameter_counts.json` says which of its numbers are exact as published. The others are derived here by hand as well.
"""

import json
import time
from pathlib import Path

import pytest
import torch

from models.bert import BERT_BASE, BERT_LARGE, Bert
from models.deepseek import DEEPSEEK_V2, DEEPSEEK_V3, DeepSeek
from models.experts import active_parameters
from models.gpt import GPT, GPT2_LARGE, GPT2_MEDIUM, GPT2_SMALL, GPT2_XL
from models.gpt_oss import GPT_OSS_20B, GPT_OSS_120B, GptOss
from models.llama import LLAMA_2_7B, LLAMA_3_8B, LLAMA_3_70B, Llama
from models.mistral import MISTRAL_7B, Mistral
from models.mixtral import MIXTRAL_8X7B, Mixtral
from models.qwen3 import QWEN3_8B, Qwen3
from models.qwen3_moe import QWEN3_30B_A3B, QWEN3_235B_A22B, Qwen3Moe
from models.switch import SWITCH_BASE_8, Switch
from models.t5 import T5, T5_SMALL
from models.transformer import BASE, BIG, Transformer

ROWS = {row["name"]: row for row in json.loads(Path(__file__).with_name("parameter_counts.json").read_text("utf-8"))}
NAMED = {
    "transformer-base": (Transformer, BASE),
    "transformer-big": (Transformer, BIG),
    "gpt2": (GPT, GPT2_SMALL),
    "gpt2-medium": (GPT, GPT2_MEDIUM),
    "gpt2-large": (GPT, GPT2_LARGE),
    "gpt2-xl": (GPT, GPT2_XL),
    "bert-base-uncased": (Bert, BERT_BASE),
    "bert-large-uncased": (Bert, BERT_LARGE),
    "t5-small": (T5, T5_SMALL),
    "llama-2-7b": (Llama, LLAMA_2_7B),
    "llama-3-8b": (Llama, LLAMA_3_8B),
    "llama-3-70b": (Llama, LLAMA_3_70B),
    "mistral-7b-v0.1": (Mistral, MISTRAL_7B),
    "mixtral-8x7b": (Mixtral, MIXTRAL_8X7B),
    "switch-base-8": (Switch, SWITCH_BASE_8),
    "deepseek-v2": (DeepSeek, DEEPSEEK_V2),
    "deepseek-v3": (DeepSeek, DEEPSEEK_V3),
    "qwen3-8b": (Qwen3, QWEN3_8B),
    "qwen3-30b-a3b": (Qwen3Moe, QWEN3_30B_A3B),
    "qwen3-235b-a22b": (Qwen3Moe, QWEN3_235B_A22B),
    "gpt-oss-20b": (GptOss, GPT_OSS_20B),
    "gpt-oss-120b": (GptOss, GPT_OSS_120B),
}


def built(name):
    """The model on meta, where no parameter takes memory."""
    kind, config = NAMED[name]
    start = time.perf_counter()
    with torch.device("meta"):
        model = kind(config)
    assert time.perf_counter() - start < 20
    return model


def total(model):
    return sum(parameter.numel() for parameter in model.parameters())


def original(*, vocab, d_model, d_ff, n_layers):
    """The encoder-decoder of 2017 with one matrix for both embeddings and the logits, post-norm, biases everywhere."""
    attention, norm = 4 * (d_model**2 + d_model), 2 * d_model
    network = 2 * d_model * d_ff + d_ff + d_model
    encoder, decoder = attention + network + 2 * norm, 2 * attention + network + 3 * norm
    return vocab * d_model + n_layers * (encoder + decoder)


def switch_base(n_experts):
    """12 + 12 blocks of T5 base, half of which have experts; with one in each it is T5 base, but for the routers."""
    d_model, d_ff, d_attn, n_layers = 768, 3072, 12 * 64, 12
    attention, network = 4 * d_model * d_attn, 2 * d_model * d_ff
    stacks = n_layers * (3 * attention + 5 * d_model)  # norms have no biases
    networks = 12 * network + 12 * n_experts * network
    routers = 12 * 8 * d_model
    distances, last_norms = 2 * 32 * 12, 2 * d_model
    return 32128 * d_model + stacks + networks + routers + distances + last_norms


def deepseek(*, vocab, d_model, d_ff, d_expert, n_experts, n_routers, n_shared, n_dense, n_layers):
    """`n_experts` are those that are counted, of the `n_routers` that the router tells apart."""
    n_heads, d_nope, d_rope, d_v, d_latent, d_latent_q = 128, 128, 64, 128, 512, 1536
    queries = d_model * d_latent_q + d_latent_q + d_latent_q * n_heads * (d_nope + d_rope)
    keys_and_values = d_model * (d_latent + d_rope) + d_latent + d_latent * n_heads * (d_nope + d_v)
    attention = queries + keys_and_values + n_heads * d_v * d_model
    sparse = 3 * d_model * d_expert * (n_experts + n_shared) + d_model * n_routers
    blocks = n_layers * (attention + 2 * d_model) + n_dense * 3 * d_model * d_ff + (n_layers - n_dense) * sparse
    return 2 * vocab * d_model + blocks + d_model


V2 = {"vocab": 102400, "d_model": 5120, "d_ff": 12288, "d_expert": 1536, "n_routers": 160, "n_shared": 2}
V3 = {"vocab": 129280, "d_model": 7168, "d_ff": 18432, "d_expert": 2048, "n_routers": 256, "n_shared": 1}
V2 |= {"n_dense": 1, "n_layers": 60}
V3 |= {"n_dense": 3, "n_layers": 61}

# What is not exact in the table, as a closed form: all, and active where a token does not meet all.
BY_HAND = {
    "transformer-base": (original(vocab=37000, d_model=512, d_ff=2048, n_layers=6), None),
    "transformer-big": (original(vocab=37000, d_model=1024, d_ff=4096, n_layers=6), None),
    "switch-base-8": (switch_base(8), switch_base(1)),
    "deepseek-v2": (deepseek(**V2, n_experts=160), deepseek(**V2, n_experts=6)),
    "deepseek-v3": (deepseek(**V3, n_experts=256), deepseek(**V3, n_experts=8)),
}


def test_no_row_is_left_out_and_what_is_not_exact_is_derived():
    assert ROWS.keys() == NAMED.keys()
    assert {name for name, row in ROWS.items() if not row["exact"]} == BY_HAND.keys()


@pytest.mark.parametrize("name", ROWS)
def test_every_model_has_the_numbers_of_the_table(name):
    model, row = built(name), ROWS[name]
    # Of DeepSeek-V3 the biases of the choice are counted, which are no parameters: no gradient moves them.
    biases = sum(buffer.numel() for key, buffer in model.named_buffers() if key.endswith("choice_bias"))
    assert biases == (58 * 256 if name == "deepseek-v3" else 0)
    assert total(model) + biases == row["total"]
    assert active_parameters(model) == row.get("active", row["total"])
    if "active_no_input_embedding" in row:
        assert active_parameters(model, input_embedding=False) == row["active_no_input_embedding"]


@pytest.mark.parametrize("name", BY_HAND)
def test_what_is_not_exact_has_the_numbers_of_a_closed_form(name):
    model, (all_of_them, active) = built(name), BY_HAND[name]
    assert total(model) == all_of_them
    assert active_parameters(model) == (all_of_them if active is None else active)
