"""BERT of transformers and ours: the same numbers from the same weights, with and without heads."""

import pytest
import torch
from torch.testing import assert_close
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertForSequenceClassification,
    BertLMHeadModel,
    BertModel,
)

from models.bert import Bert, BertForMaskedTokens, BertForPretraining
from models.pretrained import from_transformers
from tests.models.pretrained.parity import CLOSE, assert_same, randomised

B, T, VOCAB = 2, 7, 107
OUTPUTS = {
    BertModel: (Bert, ["last_hidden_state", "pooler_output"]),
    BertForMaskedLM: (BertForMaskedTokens, ["logits"]),
    BertForPreTraining: (BertForPretraining, ["prediction_logits", "seq_relationship_logits"]),
}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def config(**options):
    sizes = {"vocab_size": VOCAB, "hidden_size": 33, "num_hidden_layers": 2, "num_attention_heads": 3}
    return BertConfig(**(sizes | {"intermediate_size": 59, "max_position_embeddings": 41} | options))


def inputs():
    """Ids, segments, and what is no padding. No id is 0: their table keeps gradients of looking that one up away."""
    segments = torch.tensor([[0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 1, 0, 0]])
    valid = torch.tensor([[True] * T, [*[True] * (T - 2), False, False]])
    return torch.randint(1, VOCAB, (B, T)), segments, valid


def tensors(outputs):
    return outputs if isinstance(outputs, tuple) else (outputs,)


@pytest.mark.parametrize("kind", OUTPUTS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"hidden_act": "relu", "layer_norm_eps": 1e-3, "type_vocab_size": 5},
        {"hidden_act": "gelu_new", "num_attention_heads": 11, "num_hidden_layers": 1},
    ],
)
def test_outputs_and_gradients_are_theirs(kind, options):
    theirs = randomised(kind(config(**options)))
    ours = from_transformers(theirs)
    our_kind, names = OUTPUTS[kind]
    ids, segments, valid = inputs()
    expected = theirs(ids, token_type_ids=segments, attention_mask=valid.long())
    assert type(ours) is our_kind
    found = tensors(ours(ids, segments=segments, valid=valid))
    assert_same(ours, theirs, found, [expected[name] for name in names])


@pytest.mark.parametrize("kind", OUTPUTS, ids=lambda kind: kind.__name__)
def test_a_folder_gives_the_model_that_wrote_it(tmp_path, kind):
    theirs = randomised(kind(config()))
    theirs.save_pretrained(tmp_path)
    ids, _, _ = inputs()
    expected = [theirs(ids)[name] for name in OUTPUTS[kind][1]]
    for found, wanted in zip(tensors(from_transformers(tmp_path)(ids)), expected, strict=True):
        assert_close(found, wanted, **CLOSE)


def test_a_checkpoint_of_old_names_norms_by_gamma_and_beta(tmp_path):
    theirs = randomised(BertForPreTraining(config()))
    theirs.config.save_pretrained(tmp_path)
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    weights = {}
    for name, tensor in theirs.state_dict().items():
        for new, before in old.items():
            name = name.replace(new, before)
        weights[name] = tensor
    weights["bert.embeddings.position_ids"] = torch.arange(41)[None]
    torch.save(weights, tmp_path / "pytorch_model.bin")
    ids, _, _ = inputs()
    assert_close(from_transformers(tmp_path)(ids)[0], theirs(ids).prediction_logits, **CLOSE)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BertModel(config(hidden_act="silu")), r"hidden_act = 'silu' of bert is not covered; covered are"),
        (lambda: BertLMHeadModel(config(is_decoder=True)), r"is_decoder = True"),
        (
            lambda: BertModel(config(position_embedding_type="relative_key")),
            r"position_embedding_type = 'relative_key'",
        ),
        (lambda: BertForSequenceClassification(config()), r"no place for classifier\.bias, classifier\.weight"),
        (lambda: BertModel(config(), add_pooling_layer=False), r"the checkpoint has no pooler\.dense\.weight"),
    ],
)
def test_what_ours_lacks_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        from_transformers(make())
