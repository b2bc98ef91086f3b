"""T5 of transformers and ours: the same numbers from the same weights."""

import json

import pytest
import torch
from torch.testing import assert_close
from transformers import T5Config, T5ForConditionalGeneration, T5ForTokenClassification

from models.pretrained import from_transformers
from tests.models.pretrained.parity import CLOSE, assert_same, randomised

B, S, T, VOCAB = 2, 41, 29, 101  # longer than max_distance, so that every bucket is used
V1_1 = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def model(**options):
    sizes = {"vocab_size": VOCAB, "d_model": 29, "d_kv": 5, "d_ff": 37, "num_layers": 2, "num_heads": 3}
    distances = {"relative_attention_num_buckets": 14, "relative_attention_max_distance": 19}
    # A smaller table than by default keeps the logits of version 1.1, which are not scaled, within reach of 1e-5.
    return T5ForConditionalGeneration(T5Config(**(sizes | distances | {"initializer_factor": 0.3} | options)))


def ids(t):
    return torch.randint(VOCAB, (B, t))


@pytest.mark.parametrize(
    "options",
    [
        {},
        V1_1,
        {"num_decoder_layers": 3, "layer_norm_epsilon": 1e-3},
        {"relative_attention_num_buckets": 32, "relative_attention_max_distance": 128, "num_heads": 5},
    ],
)
def test_logits_and_gradients_are_theirs(options):
    theirs = randomised(model(**options))
    ours = from_transformers(theirs)
    source, target = ids(S), ids(T)
    expected = theirs(input_ids=source, decoder_input_ids=target).logits
    assert_same(ours, theirs, [ours(source, target)], [expected])


def test_padding_of_both_sides_is_theirs():
    theirs = randomised(model())
    ours = from_transformers(theirs)
    source, target = ids(S), ids(T)
    source_valid, valid = torch.ones(B, S, dtype=torch.bool), torch.ones(B, T, dtype=torch.bool)
    source_valid[0, -5:] = valid[1, :3] = False
    masks = {"attention_mask": source_valid.long(), "decoder_attention_mask": valid.long()}
    expected = theirs(input_ids=source, decoder_input_ids=target, **masks).logits
    assert_close(ours(source, target, source_valid=source_valid, valid=valid)[valid], expected[valid], **CLOSE)


def test_version_1_1_has_a_head_of_its_own_where_the_checkpoint_holds_one(tmp_path):
    theirs = model(**V1_1)
    tensors = theirs.state_dict()
    tensors["lm_head.weight"] = torch.randn(VOCAB, 29)
    config = theirs.config.to_dict() | {"tie_word_embeddings": False}
    del config["scale_decoder_outputs"]  # as libraries before this field wrote it
    (tmp_path / "config.json").write_text(json.dumps(config))
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    ours = from_transformers(tmp_path)
    assert (ours.config.tied, ours.config.scaled, ours.config.gated) == (False, False, True)
    assert_close(ours.head.weight.detach(), tensors["lm_head.weight"])


def test_a_folder_gives_the_model_that_wrote_it(tmp_path):
    theirs = randomised(model())
    theirs.save_pretrained(tmp_path)
    source, target = ids(S), ids(T)
    expected = theirs(input_ids=source, decoder_input_ids=target).logits
    assert_close(from_transformers(tmp_path)(source, target), expected, **CLOSE)


def test_a_checkpoint_of_old_holds_distances_that_nobody_reads(tmp_path):
    theirs = randomised(model())
    theirs.config.save_pretrained(tmp_path)
    unused = {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": torch.ones(14, 3)}
    torch.save(theirs.state_dict() | unused, tmp_path / "pytorch_model.bin")
    source, target = ids(S), ids(T)
    expected = theirs(input_ids=source, decoder_input_ids=target).logits
    assert_close(from_transformers(tmp_path)(source, target), expected, **CLOSE)


def test_half_precision_stays():
    theirs = randomised(model()).to(torch.bfloat16)
    ours = from_transformers(theirs)
    assert {parameter.dtype for parameter in ours.parameters()} == {torch.bfloat16}
    source, target = ids(S), ids(T)
    expected = theirs(input_ids=source, decoder_input_ids=target).logits
    assert_close(ours(source, target), expected, atol=0.1, rtol=0.1)


def test_what_ours_lacks_is_named():
    with pytest.raises(
        ValueError, match=r"feed_forward_proj = 'gated-silu' of t5 is not covered; covered are 'relu', "
    ):
        from_transformers(model(feed_forward_proj="gated-silu"))
    config = model().config
    with pytest.raises(ValueError, match=r"the checkpoint has no shared\.weight"):
        from_transformers(T5ForTokenClassification(config))
