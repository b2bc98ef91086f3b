"""The named models have as many parameters as their papers and checkpoints say: all of them, and those of one token."""

import json
import time
from functools import cache
from pathlib import Path

import pytest
import torch

from models.bert import BERT_BASE, BERT_LARGE, Bert, BertForPretraining
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

ROWS = {row["name"]: row for row in json.loads(Path(__file__).with_name("parameter_counts.json").read_text())}
SECONDS = 10  # of work that building one of them on the meta device may take

MODELS = {
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


def built(kind, config):
    with torch.device("meta"):
        return kind(config)


@cache
def named(name):
    return built(*MODELS[name])


def parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


def numbers(model):
    """The parameters and the biases of V3's choices, which no gradient moves: they are buffers."""
    return parameters(model) + sum(buffer.numel() for buffer in model.buffers())


# What the table does not call exact has a closed form below.
CLOSED_FORMS = {"transformer-base", "transformer-big", "switch-base-8", "deepseek-v2", "deepseek-v3"}


def test_every_row_has_a_model_and_what_is_not_exact_a_closed_form():
    assert ROWS.keys() == MODELS.keys()
    assert {name for name, row in ROWS.items() if not row["exact"]} == CLOSED_FORMS


@pytest.mark.parametrize("name", MODELS)
def test_the_total_is_the_published_one_and_found_in_seconds(name):
    start = time.process_time()
    assert numbers(built(*MODELS[name])) == ROWS[name]["total"]
    assert time.process_time() - start < SECONDS


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if "active" in row])
def test_the_active_parameters_are_the_published_ones(name):
    row, model = ROWS[name], named(name)
    assert active_parameters(model) == row["active"]
    without = row["active"] - (0 if model.config.tied else model.tokens.table.weight.numel())
    assert active_parameters(model, input_embedding=False) == row.get("active_no_input_embedding", without)


@pytest.mark.parametrize("name", ["llama-3-8b", "gpt-oss-20b"])
def test_without_experts_or_choice_everything_is_active(name):
    model = named(name)
    assert (active_parameters(model) == parameters(model)) == (name == "llama-3-8b")


def test_bert_with_the_heads_of_its_pretraining():
    assert parameters(built(BertForPretraining, BERT_BASE)) == 110_106_428
    assert parameters(built(BertForPretraining, BERT_LARGE)) == 336_226_108


@pytest.mark.parametrize("name", ["transformer-base", "transformer-big"])
def test_the_transformer_of_2017_is_its_closed_form(name):
    config = MODELS[name][1]
    d, d_ff = config.d_model, config.d_ff
    attention, ffn, norm = 4 * d * d + 4 * d, 2 * d * d_ff + d_ff + d, 2 * d
    encoder, decoder = attention + ffn + 2 * norm, 2 * attention + ffn + 3 * norm
    assert parameters(named(name)) == config.vocab * d + config.n_layers * (encoder + decoder)


@pytest.mark.parametrize("kept", [8, 1])
def test_switch_is_its_closed_form(kept):
    """With all experts of a layer, and with the one that a token meets."""
    t5 = SWITCH_BASE_8.t5
    d, d_attn = t5.d_model, t5.n_heads * t5.d_head
    attention, network = 4 * d * d_attn, 2 * d * t5.d_ff
    experts = kept * network + d * SWITCH_BASE_8.n_experts
    networks = 6 * network + 6 * experts  # of either stack's 12 blocks every other has experts
    ends = t5.n_buckets * t5.n_heads + d
    formula = t5.vocab * d + 12 * (attention + 2 * d) + 12 * (2 * attention + 3 * d) + 2 * (networks + ends)
    model = named("switch-base-8")
    assert formula == (parameters(model) if kept == 8 else active_parameters(model))


@pytest.mark.parametrize("name", ["deepseek-v2", "deepseek-v3"])
@pytest.mark.parametrize("all_experts", [True, False])
def test_deepseek_is_its_closed_form(name, all_experts):
    """As a sum over blocks; the biases of V3's choices are extra."""
    c = MODELS[name][1]
    d = c.d_model
    queries = d * c.d_latent_q + c.d_latent_q + c.d_latent_q * c.n_heads * (c.d_nope + c.d_rope)
    keys_and_values = d * (c.d_latent + c.d_rope) + c.d_latent + c.d_latent * c.n_heads * (c.d_nope + c.d_v)
    attention = queries + keys_and_values + c.n_heads * c.d_v * d
    per_token = c.n_shared + (c.n_experts if all_experts else c.top_k)
    sparse = per_token * 3 * d * c.d_expert + d * c.n_experts
    networks = c.n_dense_layers * 3 * d * c.d_ff + (c.n_layers - c.n_dense_layers) * sparse
    formula = 2 * c.vocab * d + d + c.n_layers * (attention + 2 * d) + networks
    model = named(name)
    assert formula == (parameters(model) if all_experts else active_parameters(model))
    assert numbers(model) - parameters(model) == (58 * 256 if name == "deepseek-v3" else 0)


def test_mixtral_is_not_eight_times_seven_billion():
    """Attention and embeddings are there once: two experts cost less than two models of 7 billion."""
    mistral, mixtral = parameters(named("mistral-7b-v0.1")), parameters(named("mixtral-8x7b"))
    assert 6.4 < mixtral / mistral < 6.5
    assert active_parameters(named("mixtral-8x7b")) / mistral < 1.8
