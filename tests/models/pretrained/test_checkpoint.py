"""What a converter may take, what it must not leave, and what a folder must hold."""

import doctest
import json
import pickle
from types import SimpleNamespace

import pytest
import torch
import torch.nn as nn
from torch.testing import assert_close

from models.pretrained import checkpoint, from_transformers
from models.pretrained.checkpoint import Weights, load, option, read_folder


@pytest.fixture
def weights():
    return Weights({"a": torch.ones(2, 3), "b": torch.zeros(5, 3), "tied": torch.ones(2, 3)})


def test_the_examples_in_the_docstrings_are_true():
    result = doctest.testmod(checkpoint)
    assert result.attempted > 0
    assert result.failed == 0


def test_a_tensor_is_taken_once(weights):
    assert_close(weights.take("a"), torch.ones(2, 3))
    with pytest.raises(ValueError, match=r"no a, or it was taken before"):
        weights.take("a")


def test_what_nobody_took_is_named(weights):
    weights.take("a")
    with pytest.raises(ValueError, match=r"no place for b, tied of the checkpoint"):
        weights.check_all_taken()


def test_packed_projections_are_stacked_in_order(weights):
    assert_close(weights.stack("b", "a"), torch.cat([torch.zeros(5, 3), torch.ones(2, 3)]))
    weights.drop("tied")
    weights.drop("tied")
    weights.check_all_taken()


def test_a_copy_may_be_absent_and_must_not_differ(weights):
    weights.drop_copy("absent", torch.ones(2, 3))
    weights.drop_copy("tied", torch.ones(2, 3))
    with pytest.raises(ValueError, match=r"b should equal the weight it is tied to"):
        weights.drop_copy("b", torch.ones(5, 3))


def test_every_parameter_gets_its_tensor_and_its_dtype():
    model = nn.Linear(3, 2)
    load(model, {"weight": torch.ones(2, 3, dtype=torch.bfloat16), "bias": torch.zeros(2)})
    assert model.weight.dtype is torch.bfloat16
    assert model.weight.requires_grad


@pytest.mark.parametrize(
    ("tensors", "error", "message"),
    [
        ({"weight": torch.ones(2, 3)}, ValueError, r"nothing for bias of our model"),
        ({"weight": torch.ones(2, 3), "bias": torch.ones(2), "mask": torch.ones(1)}, ValueError, r"model has no mask"),
        ({"weight": torch.ones(3, 2), "bias": torch.ones(2)}, RuntimeError, r"size mismatch for weight"),
    ],
)
def test_names_and_shapes_must_be_those_of_the_model(tensors, error, message):
    with pytest.raises(error, match=message):
        load(nn.Linear(3, 2), tensors)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "x", "act": "tanh"}, r"act = 'tanh' of x is not covered; covered are 'gelu', None"),
        ({"model_type": "x", "act": {"a": []}}, r"act = \{'a': \[\]\} of x is not covered"),
        ({"model_type": "x"}, r"config of x has no field act"),
    ],
)
def test_a_field_has_a_covered_value(config, message):
    with pytest.raises(ValueError, match=message):
        option(config, "act", {"gelu": 1, None: 2})
    assert option({}, "act", {"gelu": 1}, default="gelu") == 1


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (nn.Linear(3, 2), r"model of transformers or the folder of its checkpoint is needed, not .*Linear"),
        (
            SimpleNamespace(config=SimpleNamespace(to_dict=lambda: {"model_type": "resnet"}), state_dict=dict),
            r"model_type = 'resnet' is not covered; covered are bert, .*gpt2",
        ),
    ],
)
def test_a_source_that_is_not_covered_says_what_is(source, message):
    with pytest.raises(ValueError, match=message):
        from_transformers(source)


def test_a_folder_without_a_checkpoint_says_what_it_lacks(tmp_path):
    with pytest.raises(ValueError, match=r"there is no config\.json in it"):
        from_transformers(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    with pytest.raises(ValueError, match=r"neither model\.safetensors nor pytorch_model\.bin"):
        from_transformers(str(tmp_path))


def test_shards_are_read_by_their_index(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    torch.save({"a": torch.ones(2)}, tmp_path / "1.bin")
    torch.save({"b": torch.zeros(3), "c": torch.ones(1)}, tmp_path / "2.bin")
    index = {"weight_map": {"a": "1.bin", "b": "2.bin", "c": "2.bin"}}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    _, tensors = read_folder(tmp_path)
    assert sorted(tensors) == ["a", "b", "c"]


class Planted:
    """Pickled, it asks whoever reads it to call a function."""

    def __reduce__(self):
        return (print, ("called",))


def test_a_pickle_that_would_run_code_is_refused(tmp_path, capsys):
    (tmp_path / "config.json").write_text("{}")
    torch.save({"a": Planted()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(pickle.UnpicklingError, match=r"Weights only load failed"):
        read_folder(tmp_path)
    assert "called" not in capsys.readouterr().out
