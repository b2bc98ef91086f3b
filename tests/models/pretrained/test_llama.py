"""Llama, Mistral and Qwen3 of transformers and ours: the same numbers from the same weights."""

import logging

import pytest
import torch
from torch.testing import assert_close
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    MistralConfig,
    MistralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from models.llama import Llama
from models.mistral import Mistral
from models.pretrained import from_transformers
from models.pretrained.llama import rotary
from models.qwen3 import Qwen3
from models.rope import LinearScaling
from tests.models.pretrained.parity import CLOSE, assert_same, randomised

B, T, VOCAB = 2, 23, 97
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 42,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 10,
    "intermediate_size": 53,
    "num_hidden_layers": 2,
}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 5000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 8.0}
LINEAR = {"rope_type": "linear", "rope_theta": 1000.0, "factor": 2.0}
FAMILIES = {
    "llama": (LlamaConfig, LlamaForCausalLM, Llama),
    "mistral": (MistralConfig, MistralForCausalLM, Mistral),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, Qwen3),
}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)
    logging.getLogger("transformers").setLevel(logging.ERROR)


def theirs(family, **options):
    config, model, _ = FAMILIES[family]
    return randomised(model(config(**(SIZES | options), bos_token_id=0, eos_token_id=0)))


def ids(t=T):
    return torch.randint(VOCAB, (B, t))


def scaled(parameters):
    return {"rope_parameters": parameters | {"original_max_position_embeddings": 16}, "max_position_embeddings": 128}


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("llama", {}),
        ("llama", {"num_attention_heads": 3, "head_dim": None, "rms_norm_eps": 1e-2}),
        ("llama", {"num_key_value_heads": 1, "tie_word_embeddings": True}),
        ("llama", scaled(LLAMA3)),
        ("llama", scaled(YARN)),
        ("llama", scaled(YARN | {"mscale": 0.7, "mscale_all_dim": 1.3, "truncate": False})),
        ("llama", scaled(YARN | {"factor": None, "attention_factor": 1.1})),
        ("llama", scaled(LINEAR)),
        ("mistral", {"sliding_window": 5}),
        ("mistral", {"sliding_window": 1}),
        ("mistral", {"sliding_window": None, "tie_word_embeddings": True}),
        ("mistral", {"sliding_window": 200, "num_key_value_heads": 2, "num_hidden_layers": 3}),
        ("qwen3", {}),
        ("qwen3", {"head_dim": 14, "tie_word_embeddings": True, "rms_norm_eps": 1e-3}),
        ("qwen3", {"rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}}),
    ],
)
def test_logits_and_gradients_are_theirs(family, options):
    model = theirs(family, **options)
    ours = from_transformers(model)
    assert isinstance(ours, FAMILIES[family][2])
    tokens = ids()
    assert_same(ours, model, [ours(tokens)], [model(tokens).logits])


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_on_the_left_is_theirs(family):
    model = theirs(family)
    tokens = ids()
    valid = torch.arange(T).expand(B, -1) >= torch.tensor([[0], [4]])
    expected = model(tokens, attention_mask=valid.long()).logits
    assert_close(from_transformers(model)(tokens, valid=valid)[valid], expected[valid], **CLOSE)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tied", [False, True])
def test_a_folder_gives_the_model_that_wrote_it(tmp_path, family, tied):
    model = theirs(family, tie_word_embeddings=tied)
    model.save_pretrained(tmp_path)
    ours = from_transformers(tmp_path)
    tokens = ids()
    assert_close(ours(tokens), model(tokens).logits, **CLOSE)
    assert (ours.head.weight is ours.tokens.table.weight) == tied


def test_frequencies_that_checkpoints_held_at_first_are_left_out(tmp_path):
    model = theirs("llama")
    model.config.save_pretrained(tmp_path)
    frequencies = {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": torch.ones(5) for i in range(2)}
    torch.save(model.state_dict() | frequencies, tmp_path / "pytorch_model.bin")
    tokens = ids()
    assert_close(from_transformers(tmp_path)(tokens), model(tokens).logits, **CLOSE)


def test_configs_of_old_spread_the_rotary_fields():
    assert rotary({"model_type": "llama", "rope_theta": 500.0}) == {"base": 500.0, "scaling": None}
    old = {"model_type": "llama", "rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 2}}
    assert rotary(old) == {"base": 500.0, "scaling": LinearScaling(factor=2.0)}
    assert rotary({"model_type": "llama"}) == {"base": 10000.0, "scaling": None}


@pytest.mark.parametrize(
    ("family", "options", "message"),
    [
        ("llama", {"attention_bias": True}, r"attention_bias = True of llama is not covered; covered are False"),
        ("llama", {"mlp_bias": True}, r"mlp_bias = True of llama"),
        ("llama", {"hidden_act": "gelu"}, r"hidden_act = 'gelu' of llama is not covered; covered are 'silu'"),
        (
            "llama",
            {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 100.0}},
            r"rope_type = 'dynamic' of llama is not covered; covered are 'default', 'linear', 'llama3', 'yarn'",
        ),
        ("qwen3", {"use_sliding_window": True, "max_window_layers": 1}, r"use_sliding_window = True of qwen3"),
    ],
)
def test_an_option_that_ours_lacks_is_named(family, options, message):
    with pytest.raises(ValueError, match=message):
        from_transformers(theirs(family, **options))


def test_another_head_is_named():
    config = LlamaConfig(**SIZES, num_labels=2, pad_token_id=0)
    with pytest.raises(ValueError, match=r"the checkpoint has no lm_head\.weight"):
        from_transformers(LlamaForSequenceClassification(config))
