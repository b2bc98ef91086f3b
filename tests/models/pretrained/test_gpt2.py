"""GPT-2 of transformers and ours: the same numbers from the same weights, in memory and from a folder."""

import pytest
import torch
from torch.testing import assert_close
from transformers import GPT2Config, GPT2ForTokenClassification, GPT2LMHeadModel, GPT2Model

from models.pretrained import from_transformers
from tests.models.pretrained.parity import CLOSE, assert_same, randomised

B, T, VOCAB = 2, 7, 101


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def config(**options):
    sizes = {"vocab_size": VOCAB, "n_positions": 53, "n_embd": 21, "n_layer": 2, "n_head": 3}
    return GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, **options)


def ids(t=T):
    return torch.randint(VOCAB, (B, t))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"n_inner": 37, "activation_function": "gelu", "layer_norm_epsilon": 1e-3},
        {"activation_function": "relu", "n_head": 1},
        {"activation_function": "gelu_pytorch_tanh", "n_layer": 3, "n_head": 7},
    ],
)
def test_logits_and_gradients_are_theirs(options):
    theirs = randomised(GPT2LMHeadModel(GPT2Config(**(config().to_dict() | options))))
    ours = from_transformers(theirs)
    tokens = ids()
    assert_same(ours, theirs, [ours(tokens)], [theirs(tokens).logits])


def test_padding_on_the_left_is_theirs():
    theirs = randomised(GPT2LMHeadModel(config()))
    ours = from_transformers(theirs)
    tokens = ids()
    valid = torch.tensor([[True] * T, [False, False, *[True] * (T - 2)]])
    positions = (valid.cumsum(1) - 1).clamp(min=0)
    expected = theirs(tokens, attention_mask=valid.long(), position_ids=positions).logits
    assert_close(ours(tokens, valid=valid)[valid], expected[valid], **CLOSE)


def test_the_model_without_a_head_has_the_same_weights():
    theirs = randomised(GPT2LMHeadModel(config()))
    alone = GPT2Model(config())
    alone.load_state_dict(theirs.transformer.state_dict())
    tokens = ids()
    assert_close(from_transformers(alone)(tokens), theirs(tokens).logits, **CLOSE)


@pytest.mark.parametrize("shard", ["5GB", "10KB"])
def test_a_folder_gives_the_model_that_wrote_it(tmp_path, shard):
    theirs = randomised(GPT2LMHeadModel(config()))
    theirs.save_pretrained(tmp_path, max_shard_size=shard)
    assert (len(list(tmp_path.glob("*.safetensors"))) > 1) == (shard == "10KB")
    tokens = ids()
    assert_close(from_transformers(tmp_path)(tokens), theirs(tokens).logits, **CLOSE)


def test_a_folder_may_hold_a_pickle_of_old(tmp_path):
    theirs = randomised(GPT2LMHeadModel(config()))
    theirs.config.save_pretrained(tmp_path)
    masks = {"transformer.h.0.attn.bias": torch.ones(1, 1, 53, 53), "transformer.h.1.attn.masked_bias": torch.ones(())}
    torch.save(theirs.state_dict() | masks, tmp_path / "pytorch_model.bin")
    tokens = ids()
    assert_close(from_transformers(str(tmp_path))(tokens), theirs(tokens).logits, **CLOSE)


def test_a_tensor_that_the_checkpoint_lacks_is_named(tmp_path):
    theirs = GPT2LMHeadModel(config())
    theirs.config.save_pretrained(tmp_path)
    weights = theirs.state_dict()
    del weights["transformer.h.1.ln_2.bias"]
    torch.save(weights, tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"the checkpoint has no transformer\.h\.1\.ln_2\.bias"):
        from_transformers(tmp_path)


def test_half_precision_stays():
    theirs = randomised(GPT2LMHeadModel(config())).to(torch.bfloat16)
    ours = from_transformers(theirs)
    assert {parameter.dtype for parameter in ours.parameters()} == {torch.bfloat16}
    tokens = ids()
    assert_close(ours(tokens), theirs(tokens).logits, atol=0.1, rtol=0.1)


def test_the_weights_are_copies():
    theirs = GPT2LMHeadModel(config())
    ours = from_transformers(theirs)
    with torch.no_grad():
        ours.tokens.table.weight.zero_()
    assert theirs.transformer.wte.weight.abs().max() > 0


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"activation_function": "silu"}, r"activation_function = 'silu' of gpt2 is not covered; covered are 'gelu',"),
        ({"scale_attn_weights": False}, r"scale_attn_weights = False"),
        ({"scale_attn_by_inverse_layer_idx": True}, r"scale_attn_by_inverse_layer_idx = True"),
        ({"add_cross_attention": True}, r"add_cross_attention = True"),
        ({"tie_word_embeddings": False}, r"tie_word_embeddings = False"),
    ],
)
def test_an_option_that_ours_lacks_is_named(option, message):
    with pytest.raises(ValueError, match=message):
        from_transformers(GPT2LMHeadModel(config(**option)))


def test_another_head_is_named():
    with pytest.raises(ValueError, match=r"no place for classifier\.bias, classifier\.weight of the checkpoint"):
        from_transformers(GPT2ForTokenClassification(config()))
