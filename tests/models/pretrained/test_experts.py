"""Mixtral, Qwen3-MoE and gpt-oss of transformers and ours: the same numbers from the same weights."""

import logging

import pytest
import torch
from torch.testing import assert_close
from transformers import (
    GptOssConfig,
    GptOssForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

from models.experts import recorded_routings
from models.gpt_oss import GptOss
from models.mixtral import Mixtral
from models.pretrained import from_transformers
from models.qwen3_moe import Qwen3Moe
from models.routing import balancing_loss
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
    "num_local_experts": 7,
    "num_experts_per_tok": 3,
}
FAMILIES = {
    "mixtral": (MixtralConfig, MixtralForCausalLM, Mixtral, {}),
    "qwen3_moe": (Qwen3MoeConfig, Qwen3MoeForCausalLM, Qwen3Moe, {"moe_intermediate_size": 29}),
    "gpt_oss": (GptOssConfig, GptOssForCausalLM, GptOss, {}),
}
YARN = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 8.0, "original_max_position_embeddings": 16}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)
    logging.getLogger("transformers").setLevel(logging.ERROR)


def theirs(family, **options):
    config, model, _, own = FAMILIES[family]
    made = randomised(model(config(**(SIZES | own | options), bos_token_id=0, eos_token_id=0)))
    made.set_experts_implementation("eager")  # their fast one wants widths that are multiples of 16 bytes
    return made


def ids(t=T):
    return torch.randint(VOCAB, (B, t))


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("mixtral", {}),
        ("mixtral", {"num_experts_per_tok": 1, "head_dim": None, "num_attention_heads": 3}),
        ("mixtral", {"num_experts_per_tok": 7, "tie_word_embeddings": True, "sliding_window": 5}),
        ("mixtral", {"num_local_experts": 31, "num_experts_per_tok": 2, "rms_norm_eps": 1e-2}),  # some get no token
        ("qwen3_moe", {"norm_topk_prob": True}),
        ("qwen3_moe", {"norm_topk_prob": False, "tie_word_embeddings": True}),
        ("qwen3_moe", {"mlp_only_layers": [1], "num_hidden_layers": 3}),
        ("qwen3_moe", {"decoder_sparse_step": 2, "num_hidden_layers": 3}),
        ("gpt_oss", {}),
        ("gpt_oss", {"sliding_window": 3, "num_hidden_layers": 3, "num_experts_per_tok": 1}),
        ("gpt_oss", {"attention_bias": False, "tie_word_embeddings": True, "layer_types": ["full_attention"] * 2}),
        ("gpt_oss", {"rope_parameters": YARN | {"truncate": False}, "max_position_embeddings": 128}),
        ("gpt_oss", {"swiglu_limit": 0.3, "swiglu_alpha": 1.3}),
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


@pytest.mark.parametrize(
    ("family", "options", "message"),
    [
        ("mixtral", {"hidden_act": "gelu"}, r"hidden_act = 'gelu' of mixtral is not covered; covered are 'silu'"),
        ("qwen3_moe", {"attention_bias": True}, r"attention_bias = True of qwen3_moe is not covered"),
        ("qwen3_moe", {"use_sliding_window": True, "sliding_window": 3}, r"use_sliding_window = True of qwen3_moe"),
        ("gpt_oss", {"rope_parameters": YARN | {"rope_type": "longrope"}}, r"rope_type = 'longrope' of gpt_oss"),
    ],
)
def test_an_option_that_ours_lacks_is_named(family, options, message):
    model = theirs(family)
    for name, value in options.items():
        setattr(model.config, name, value)
    with pytest.raises(ValueError, match=message):
        from_transformers(model)


def test_the_balancing_loss_is_theirs_over_top_k():
    """Theirs is top_k where all experts get the same."""
    ours, top_k = from_transformers(theirs("mixtral")), 3
    with recorded_routings(ours) as routings:
        ours(ids())
    for routing in routings:
        logits = routing.scores.log().flatten(0, 1)
        assert_close(balancing_loss(routing), load_balancing_loss_func((logits,), 7, top_k) / top_k)
