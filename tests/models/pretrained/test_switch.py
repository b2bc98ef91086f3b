"""Switch of transformers and ours: the same numbers from the same weights, also where experts are full."""

import logging

import pytest
import torch
from torch.testing import assert_close
from transformers import SwitchTransformersConfig, SwitchTransformersForConditionalGeneration

from models.experts import MixtureOfExperts
from models.pretrained import from_transformers
from tests.models.pretrained.parity import CLOSE, assert_same, randomised

B, S, T, VOCAB = 2, 19, 13, 103
SIZES = {
    "vocab_size": VOCAB,
    "d_model": 29,
    "d_kv": 5,
    "d_ff": 37,
    "num_heads": 3,
    "num_layers": 4,
    "num_decoder_layers": 2,
    "num_sparse_encoder_layers": 2,
    "num_sparse_decoder_layers": 1,
    "num_experts": 5,
    "relative_attention_num_buckets": 14,
    "relative_attention_max_distance": 19,
}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)
    logging.getLogger("transformers").setLevel(logging.ERROR)


def theirs(**options):
    made = SwitchTransformersForConditionalGeneration(SwitchTransformersConfig(**(SIZES | options)))
    for stack in (made.encoder, made.decoder):
        stack.embed_tokens = made.shared  # they leave three tables where the head is another one
    randomised(made)
    with torch.no_grad():  # scores are not divided by sqrt(d_head): large ones would make rounding errors large
        for name, parameter in made.named_parameters():
            if name.endswith("Attention.q.weight"):
                parameter *= 0.3
    return made


def ids(t):
    return torch.randint(1, VOCAB, (B, t))


def experts_of(stack):
    return [layer for layer, block in enumerate(stack.blocks) if isinstance(block.ffn, MixtureOfExperts)]


@pytest.mark.parametrize(
    ("options", "in_encoder", "in_decoder"),
    [
        ({}, [1, 3], [1]),
        ({"expert_capacity": 2}, [1, 3], [1]),
        ({"expert_capacity": 1, "num_experts": 2, "router_bias": True}, [1, 3], [1]),
        ({"num_layers": 2, "num_sparse_decoder_layers": 0, "num_experts": 31}, [0, 1], [1]),
        ({"tie_word_embeddings": False, "num_layers": 2, "num_sparse_encoder_layers": 0}, [1], [1]),
    ],
)
def test_logits_and_gradients_are_theirs(options, in_encoder, in_decoder):
    model = theirs(**options)
    ours = from_transformers(model)
    assert experts_of(ours.encoder) == in_encoder
    assert experts_of(ours.decoder) == in_decoder
    source, target = ids(S), ids(T)
    assert_same(ours, model, [ours(source, target)], [model(input_ids=source, decoder_input_ids=target).logits])


def test_a_source_with_padding_is_theirs():
    model = theirs()
    source, target = ids(S), ids(T)
    valid = torch.arange(S).expand(B, -1) < torch.tensor([[S], [11]])
    expected = model(input_ids=source, attention_mask=valid.long(), decoder_input_ids=target).logits
    assert_close(from_transformers(model)(source, target, source_valid=valid), expected, **CLOSE)


def test_a_folder_gives_the_model_that_wrote_it(tmp_path):
    model = theirs()
    model.save_pretrained(tmp_path)
    source, target = ids(S), ids(T)
    expected = model(input_ids=source, decoder_input_ids=target).logits
    assert_close(from_transformers(tmp_path)(source, target), expected, **CLOSE)


def test_an_option_that_ours_lacks_is_named():
    model = theirs()
    model.config.dense_act_fn = "gelu"
    with pytest.raises(ValueError, match=r"dense_act_fn = 'gelu' of switch_transformers is not covered"):
        from_transformers(model)
