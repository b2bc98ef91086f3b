"""DeepSeek-V2 and V3 of transformers and ours: the same numbers from the same weights."""

import logging

import pytest
import torch
from torch.testing import assert_close
from transformers import DeepseekV2Config, DeepseekV2ForCausalLM, DeepseekV3Config, DeepseekV3ForCausalLM

from models.pretrained import from_transformers
from tests.models.pretrained.parity import CLOSE, assert_same, randomised

B, T, VOCAB = 2, 23, 97
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 42,
    "num_attention_heads": 6,
    "num_key_value_heads": 6,
    "intermediate_size": 53,
    "moe_intermediate_size": 29,
    "num_hidden_layers": 3,
    "first_k_dense_replace": 1,
    "n_routed_experts": 12,
    "num_experts_per_tok": 3,
    "n_shared_experts": 2,
    "routed_scaling_factor": 1.3,
    "kv_lora_rank": 22,
    "q_lora_rank": 19,
    "qk_nope_head_dim": 10,
    "qk_rope_head_dim": 6,
    "v_head_dim": 13,
}
GROUPED = {"topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2}
FAMILIES = {
    2: (DeepseekV2Config, DeepseekV2ForCausalLM, {}),
    3: (DeepseekV3Config, DeepseekV3ForCausalLM, {"n_group": 4, "topk_group": 2}),
}
YARN = {
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 100.0,
        "factor": 8.0,
        "original_max_position_embeddings": 16,
        "mscale": 0.7,
        "mscale_all_dim": 0.7,
    },
    "max_position_embeddings": 128,
}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)
    logging.getLogger("transformers").setLevel(logging.ERROR)


def theirs(version, **options):
    """With a bias for the choice that changes it."""
    config, model, own = FAMILIES[version]
    made = randomised(model(config(**(SIZES | own | options), bos_token_id=0, eos_token_id=0)))
    for name, buffer in made.named_buffers():
        if name.endswith("e_score_correction_bias"):
            buffer.normal_(std=0.3)
    made.set_experts_implementation("eager")  # their fast one wants widths that are multiples of 16 bytes
    return made


def ids():
    return torch.randint(VOCAB, (B, T))


@pytest.mark.parametrize(
    ("version", "options"),
    [
        (2, {}),
        (2, GROUPED),
        (2, GROUPED | YARN | {"q_lora_rank": None, "tie_word_embeddings": True}),
        (2, {"first_k_dense_replace": 0, "attention_bias": True, "rms_norm_eps": 1e-2}),
        (3, {}),
        (3, YARN | {"norm_topk_prob": False}),
        (3, {"n_group": 1, "topk_group": 1, "n_shared_experts": 1, "q_lora_rank": None}),
        (3, {"n_group": 3, "topk_group": 1, "rope_interleave": False, "first_k_dense_replace": 3}),
        (3, {"n_group": 6, "topk_group": 5, "attention_bias": True, "tie_word_embeddings": True}),
    ],
)
def test_logits_and_gradients_are_theirs(version, options):
    model = theirs(version, **options)
    ours = from_transformers(model)
    tokens = ids()
    assert_same(ours, model, [ours(tokens)], [model(tokens).logits])


def test_the_bias_of_the_choice_is_taken_over_and_matters():
    model = theirs(3)
    ours = from_transformers(model)
    tokens = ids()
    before = ours(tokens)
    for block in ours.blocks[1:]:
        assert block.ffn.router.choice_bias.abs().max() > 0.1
        block.ffn.router.choice_bias.zero_()
    assert (ours(tokens) - before).abs().max() > 1e-2


@pytest.mark.parametrize("version", FAMILIES)
def test_padding_on_the_left_is_theirs(version):
    model = theirs(version)
    tokens = ids()
    valid = torch.arange(T).expand(B, -1) >= torch.tensor([[0], [4]])
    expected = model(tokens, attention_mask=valid.long()).logits
    assert_close(from_transformers(model)(tokens, valid=valid)[valid], expected[valid], **CLOSE)


@pytest.mark.parametrize("version", FAMILIES)
def test_a_folder_gives_the_model_that_wrote_it(tmp_path, version):
    model = theirs(version)
    model.save_pretrained(tmp_path)
    tokens = ids()
    assert_close(from_transformers(tmp_path)(tokens), model(tokens).logits, **CLOSE)


@pytest.mark.parametrize(
    ("version", "options", "message"),
    [
        (2, {"norm_topk_prob": True}, r"norm_topk_prob = True of deepseek_v2 is not covered; covered are False, None"),
        (2, {"mlp_bias": True}, r"mlp_bias = True of deepseek_v2"),
        (2, {"topk_method": "noaux_tc"}, r"topk_method = 'noaux_tc' of deepseek_v2"),
        (3, {"scoring_func": "softmax"}, r"scoring_func = 'softmax' of deepseek_v3"),
        (3, {"moe_layer_freq": 2}, r"moe_layer_freq = 2 of deepseek_v3"),
        (3, {"num_key_value_heads": 1}, r"num_key_value_heads = 1 of deepseek_v3"),
    ],
)
def test_an_option_that_ours_lacks_is_named(version, options, message):
    model = theirs(version)
    for name, value in options.items():
        setattr(model.config, name, value)
    with pytest.raises(ValueError, match=message):
        from_transformers(model)
