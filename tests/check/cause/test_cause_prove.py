"""Repairs are tried on the model itself, which is as before afterwards, whatever happens."""

import pytest
import torch
from torch import nn

from shapeflow.check.cause.prove import applied, prove
from shapeflow.check.cause.result import Cause, Repair


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.tied = self.head = nn.Linear(10, 5, dtype=torch.float64)
        self.rnn = nn.LSTM(4, 6, bidirectional=True)
        self.attn = nn.MultiheadAttention(16, 4)

    def forward(self, x):
        return x


def repair(model, path, **changes):
    return Repair(model, path, tuple(changes.items()), "the fix")


def state(model):
    return {name: id(module) for name, module in model.named_modules(remove_duplicate=False)}, {
        name: (id(each), each.shape) for name, each in model.named_parameters()
    }


def test_a_layer_is_built_anew_without_storage():
    model = Net().eval()
    with applied(repair(model, "conv", stride=1, in_channels=1)) as changed:
        new = model.conv
        assert changed
        assert (new.stride, new.padding, new.bias, new.training) == ((1, 1), (1, 1), None, False)
        assert tuple(new.weight.shape) == (8, 1, 3, 3)
        assert new.weight.is_meta


def test_a_layer_that_stands_twice_is_replaced_twice():
    model = Net()
    with applied(repair(model, "head", in_features=490)):
        assert model.tied is model.head
        assert model.head.in_features == 490
        assert model.head.weight.dtype is torch.float64
    assert model.tied is model.head


@pytest.mark.parametrize(
    ("path", "changes", "weight", "shape"),
    [
        ("rnn", {"input_size": 7}, "weight_ih_l0_reverse", (24, 7)),
        ("attn", {"embed_dim": 32}, "in_proj_weight", (96, 32)),
        ("attn", {"kdim": 7, "vdim": 7}, "k_proj_weight", (16, 7)),
    ],
)
def test_modules_whose_constructor_keeps_its_arguments_elsewhere(path, changes, weight, shape):
    model = Net()
    with applied(repair(model, path, **changes)):
        assert tuple(getattr(model.get_submodule(path), weight).shape) == shape


def test_the_model_is_as_before_also_on_errors():
    model = Net()
    before = state(model)
    assert prove([repair(model, "head", in_features=3)], lambda: False) is None
    assert state(model) == before

    def fails():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prove([repair(model, "head", in_features=3)], fails)
    assert state(model) == before


def test_the_first_repair_that_runs_is_kept():
    model = Net()
    repairs = [repair(model, "head", in_features=size) for size in (3, 7, 7)]
    assert prove(repairs, lambda: model.head.in_features == 7) is repairs[1]


@pytest.mark.parametrize(
    ("path", "changes"), [("head", {"nonsense": 3}), ("attn", {"embed_dim": 15}), ("nowhere", {"in_features": 3})]
)
def test_a_repair_that_cannot_be_built_is_none(path, changes):
    assert prove([repair(Net(), path, **changes)], lambda: True) is None


def test_a_model_that_is_the_layer_itself_cannot_be_replaced():
    model = nn.Linear(3, 4)
    assert prove([repair(model, "", in_features=5)], lambda: True) is None


def test_a_cause_that_is_proved_says_what_the_repair_says():
    model = Net()
    first, second = (
        repair(model, "head", in_features=3),
        Repair(model, "conv", (("stride", 1),), "fix", "stride is wrong"),
    )
    cause = Cause("head or conv", "the fix", candidates=(first, second))
    assert cause.proved(second).message == "stride is wrong"
    assert cause.proved(second).fix == "fix"
    assert cause.proved(first).message == "head or conv"
