"""Bytes: what is kept, what lives at once, what training holds."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import shapeflow as sf
from tests.cost.counters import kept, peak


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 11), nn.ReLU(), nn.Linear(11, 5))


def test_kept_are_the_inputs_of_products_and_the_output_of_relu_once() -> None:
    cost = sf.cost(mlp(), "B 6")
    assert str(cost.activation_bytes) == f"{4 * (6 + 11)}*B"  # the second layer reads ReLU's result
    assert [str(row.activation_bytes) for row in cost.rows] == ["68*B", "24*B", "44*B", "0"]


def test_nothing_is_kept_for_a_model_that_is_frozen() -> None:
    assert sf.cost(mlp().requires_grad_(False), "B 6").activation_bytes.constant == 0


@pytest.mark.parametrize(
    ("model", "spec", "shape"),
    [
        (nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.MaxPool2d(2), nn.GELU()), "B 3 H W", (2, 3, 11, 13)),
        (nn.Sequential(nn.Linear(6, 24), nn.Dropout(0.5), nn.LayerNorm(24), nn.Softmax(-1)), "B T 6", (2, 5, 6)),
        (nn.TransformerEncoderLayer(24, 4, 40, batch_first=True), "B T 24", (2, 5, 24)),
        (nn.GRU(24, 32, 2), "T B 24", (5, 3, 24)),
        (nn.RNN(24, 32), "T B 24", (5, 3, 24)),
        (nn.RNN(24, 32, 2, bidirectional=True), "T B 24", (32, 8, 24)),
        (nn.RNN(24, 32, bidirectional=True, batch_first=True), "B T 24", (8, 32, 24)),
        (nn.LSTM(64, 128), "T B 64", (32, 8, 64)),
        (nn.LSTM(256, 64), "T B 256", (32, 8, 256)),
        (nn.LSTM(64, 128, 2, bidirectional=True), "T B 64", (32, 8, 64)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_layers_keep_what_torch_says(model: nn.Module, spec: str, shape: tuple[int, ...]) -> None:
    cost = sf.cost(model, spec)
    names = [name for name in spec.split() if name.isidentifier()]
    sizes = {name: size for name, size in zip(spec.split(), shape, strict=True) if name in names}
    x = torch.randn(shape)
    near = 0.1 if isinstance(model, nn.RNNBase) else 0  # oneDNN rounds its workspace up
    assert cost.activation_bytes.at(**sizes) == pytest.approx(kept(model, lambda: model(x)), rel=near)


def test_the_fullest_moment() -> None:
    """Input, the wide layer and what ReLU makes of it: 6 + 11 + 11 numbers."""
    cost = sf.cost(mlp(), "B 6")
    assert cost.peak_bytes.at(B=7) == peak(mlp(), torch.randn(7, 6)) == 4 * 7 * (6 + 11 + 11)


def test_views_take_no_memory() -> None:
    cost = sf.cost(lambda x: x.view(-1).view(x.shape).transpose(0, 1)[:1], "n 6")
    assert str(cost.peak_bytes) == "24*n"


def test_which_moment_is_the_fullest_may_depend_on_the_sizes() -> None:
    def two_sided(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x * 2 + 1).sum() + (y * 2 + 1).sum()

    cost = sf.cost(two_sided, "n", "m")
    assert cost.peak_bytes.at(n=1000, m=2) == 4 * (3 * 1000 + 2)
    assert cost.peak_bytes.at(n=2, m=1000) == 4 * (3 * 1000 + 2) + 4  # and the first sum


@pytest.mark.parametrize(
    ("options", "per_parameter"),
    [
        ({"optimizer": "sgd"}, 4 + 4),
        ({"optimizer": "momentum"}, 4 + 4 + 4),
        ({"optimizer": "Adam"}, 4 + 4 + 8),
        ({"optimizer": "adamw", "precision": "mixed"}, 2 + 2 + 4 + 8),
        ({"optimizer": "sgd", "precision": "mixed"}, 2 + 2 + 4),
        ({"optimizer": "adam", "precision": "bfloat16"}, 2 + 2 + 4),
        ({}, 16),
    ],
)
def test_training_holds_so_many_bytes_a_parameter(options: dict[str, Any], per_parameter: int) -> None:
    model = mlp()
    count = sum(each.numel() for each in model.parameters())
    assert sf.cost(model, "B 6").training_bytes(**options).at() == per_parameter * count


def test_frozen_parameters_have_neither_gradients_nor_states() -> None:
    model = mlp()
    model[0].requires_grad_(False)
    memory = sf.cost(model, "B 6").training_memory(optimizer="adam")
    still, trained = 6 * 11 + 11, 11 * 5 + 5
    assert (memory.parameters.at(), memory.gradients.at(), memory.states.at()) == (
        4 * (still + trained), 4 * trained, 8 * trained,
    )  # fmt: skip


def test_real_optimisers_hold_what_is_said() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(3, 6)).sum().backward()
    optimizer.step()
    held = [value for state in optimizer.state.values() for value in state.values() if value.dim()]
    memory = sf.cost(model, "B 6").training_memory(optimizer="adam")
    assert memory.states.at() == sum(each.nbytes for each in held)


def test_parameters_count_once_and_by_their_dtype() -> None:
    model = nn.Sequential(nn.Linear(6, 6, dtype=torch.bfloat16), nn.ReLU())
    model.append(model[0])
    assert sf.cost(model, "B 6:bfloat16").parameter_bytes.at() == 2 * (36 + 6)


@pytest.mark.parametrize("options", [{"optimizer": "adan"}, {"precision": "fp8"}])
def test_unknown_optimisers_and_precisions(options: dict[str, str]) -> None:
    (what, name) = next(iter(options.items()))
    with pytest.raises(sf.InputError, match=f"no {what} is called '{name}'.*there are: "):
        sf.cost(mlp(), "B 6").training_bytes(**options)
