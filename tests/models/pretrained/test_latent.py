"""The attention of DeepSeek-V2 and V3 of transformers and ours: the same numbers from the same weights."""

import pytest
import torch
from torch.testing import assert_close
from transformers import DeepseekV2Config, DeepseekV3Config
from transformers.models.deepseek_v2 import modeling_deepseek_v2 as v2
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as v3

from models.latent import LatentAttention
from models.pretrained.checkpoint import Weights, load
from models.pretrained.latent import halves_from_neighbours, latent_attention, latent_sizes
from models.pretrained.llama import rotary
from models.rope import Rotary
from tests.models.pretrained.parity import CLOSE, randomised

B, T = 2, 23
SIZES = {  # even where theirs of V2 looks at neighbours as complex numbers
    "hidden_size": 42,
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "qk_nope_head_dim": 10,
    "qk_rope_head_dim": 6,
    "v_head_dim": 13,
    "kv_lora_rank": 22,
    "q_lora_rank": 17,
    "attn_implementation": "eager",
}
YARN = {
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 100.0,
        "factor": 8.0,
        "mscale": 0.7,
        "mscale_all_dim": 1.3,
        "original_max_position_embeddings": 16,
    },
    "max_position_embeddings": 128,
}
VERSIONS = {
    "v2": (DeepseekV2Config, v2.DeepseekV2Attention, v2.DeepseekV2RotaryEmbedding),
    "v3": (DeepseekV3Config, v3.DeepseekV3Attention, v3.DeepseekV3RotaryEmbedding),
}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def with_weights(config, tensors):
    ours = LatentAttention(**latent_sizes(config))
    weights = Weights(tensors)
    load(ours, latent_attention(config, weights, "", ""))
    weights.check_all_taken()
    return ours


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"q_lora_rank": None},
        {"attention_bias": True, "rms_norm_eps": 1e-2},
        YARN,
        {"rope_parameters": YARN["rope_parameters"] | {"mscale_all_dim": 0.0}, "max_position_embeddings": 128},
    ],
)
@pytest.mark.parametrize("absorb", [False, True])
def test_outputs_and_gradients_are_theirs(version, options, absorb):
    make_config, make_attention, make_rotary = VERSIONS[version]
    config = make_config(**(SIZES | options))
    theirs = randomised(make_attention(config, layer_idx=0))
    fields = config.to_dict()
    ours = with_weights(fields, {name: tensor.detach().clone() for name, tensor in theirs.state_dict().items()})
    ours.absorb = absorb

    x = torch.randn(B, T, 42)
    positions = torch.arange(T).expand(B, -1)
    mask = torch.full((T, T), -torch.inf).triu(1)[None, None]
    expected, _ = theirs(x, attention_mask=mask, position_embeddings=make_rotary(config)(x, positions))
    output = ours(x, Rotary(6, **rotary(fields))(positions))
    assert_close(output, expected, **CLOSE)

    direction = torch.randn_like(output) / output.numel() ** 0.5
    expected.backward(direction)
    output.backward(direction)
    gradients = with_weights(fields, {name: parameter.grad for name, parameter in theirs.named_parameters()})
    for name, parameter in ours.named_parameters():
        assert_close(parameter.grad, gradients.get_parameter(name).detach(), **CLOSE)
        assert parameter.grad.abs().max() > 1e-3


def test_the_order_of_rows_puts_the_first_of_each_pair_in_front():
    assert halves_from_neighbours(6).tolist() == [0, 2, 4, 1, 3, 5]


def test_axes_that_are_two_halves_already_stay():
    config = DeepseekV3Config(**SIZES, rope_interleave=False)
    theirs = randomised(v3.DeepseekV3Attention(config, layer_idx=0))
    ours = with_weights(config.to_dict(), dict(theirs.state_dict()))
    x, positions = torch.randn(B, T, 42), torch.arange(T).expand(B, -1)
    mask = torch.full((T, T), -torch.inf).triu(1)[None, None]
    expected, _ = theirs(x, v3.DeepseekV3RotaryEmbedding(config)(x, positions), mask)
    assert_close(ours(x, Rotary(6)(positions)), expected, **CLOSE)


def test_fewer_key_heads_than_query_heads_are_not_covered():
    fields = DeepseekV3Config(**(SIZES | {"num_key_value_heads": 1})).to_dict()
    with pytest.raises(ValueError, match=r"num_key_value_heads = 1 of deepseek_v3 is not covered"):
        latent_sizes(fields)
