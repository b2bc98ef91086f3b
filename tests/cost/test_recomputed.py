"""Activation checkpointing: what is kept, and what the backward computes once more, as torch has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import shapeflow as sf
from tests.cost.counters import counted, kept, repeatable


class Part(nn.Module):
    """A layer, then `inner` kept or recomputed, then another layer."""

    def __init__(self, before: nn.Module, inner: nn.Module, after: nn.Module, reentrant: bool | None) -> None:
        super().__init__()
        self.before, self.inner, self.after, self.reentrant = before, inner, after, reentrant

    def forward(self, x: Tensor) -> Tensor:
        x = self.before(x)
        if self.reentrant is None:
            return self.after(self.inner(x))
        return self.after(checkpoint(self.inner, x, use_reentrant=self.reentrant))


class InSegments(Part):
    def forward(self, x: Tensor) -> Tensor:
        x = self.before(x)
        if self.reentrant is None:
            return self.after(self.inner(x))
        return self.after(checkpoint_sequential(self.inner, 2, x, use_reentrant=self.reentrant))


def feed_forward() -> nn.Sequential:
    return nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 16))


def convolutions() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 8, 3))


CASES: dict[str, tuple[Callable[[bool | None], nn.Module], str, tuple[int, ...]]] = {
    "feed-forward": (lambda how: Part(nn.Linear(8, 16), feed_forward(), nn.Linear(16, 5), how), "B T 8", (3, 7, 8)),
    "ends with what keeps its result": (
        lambda how: Part(nn.Linear(8, 16), nn.Sequential(nn.Linear(16, 16), nn.Tanh()), nn.Linear(16, 5), how),
        "B T 8",
        (3, 7, 8),
    ),
    "begins with the input": (
        lambda how: Part(nn.Identity(), nn.Sequential(nn.Linear(8, 16), nn.Tanh()), nn.Linear(16, 5), how),
        "B T 8",
        (3, 7, 8),
    ),
    "in segments": (
        lambda how: InSegments(
            nn.Linear(8, 16), nn.Sequential(*(feed_forward() for _ in range(4))), nn.Linear(16, 5), how
        ),
        "B T 8",
        (3, 7, 8),
    ),
    "convolutions": (
        lambda how: Part(nn.Conv2d(3, 8, 3), convolutions(), nn.Conv2d(8, 4, 1), how),
        "B 3 H W",
        (2, 3, 11, 13),
    ),
}


def agrees(model: nn.Module, cost: sf.Cost, sizes: dict[str, int], run: Callable[[], Any]) -> None:
    with repeatable():
        assert (cost.flops.at(**sizes), cost.backward_flops.at(**sizes)) == counted(run)
        assert cost.activation_bytes.at(**sizes) == kept(model, run)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")  # that is the third case
@pytest.mark.parametrize("how", [None, False, True], ids=["kept", "not reentrant", "reentrant"])
@pytest.mark.parametrize("name", CASES)
def test_checkpoints_keep_their_arguments_and_compute_the_rest_again(name: str, how: bool | None) -> None:
    make, spec, shape = CASES[name]
    model, x = make(how).train(), torch.randn(shape)
    sizes = {dim: size for dim, size in zip(spec.split(), shape, strict=True) if dim.isidentifier()}
    agrees(model, sf.cost(model, spec), sizes, lambda: model(x))


def test_what_is_frozen_and_what_no_gradient_reaches_is_not_computed_again() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = feed_forward().requires_grad_(False), feed_forward()

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(self.second, checkpoint(self.first, x, use_reentrant=False), use_reentrant=False)

    model, x = Two().train(), torch.randn(3, 7, 16)
    agrees(model, sf.cost(model, "B T 16"), {"B": 3, "T": 7}, lambda: model(x))


@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable. is deprecated")  # older ones have no other name
@pytest.mark.parametrize("reentrant", [False, True])
def test_transformers_gradient_checkpointing(reentrant: bool) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=37, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
        attn_implementation="eager",
    )  # fmt: skip
    model = transformers.LlamaModel(config).train()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    cost = sf.cost(model, input_ids="B T:int64")
    ids = torch.randint(0, 37, (2, 11))
    agrees(model, cost, {"B": 2, "T": 11}, lambda: model(ids))
    rows = {row.path: row for row in cost.rows}
    layer = rows["layers.0"]
    assert layer.backward_flops.at(B=2, T=11) > 2 * layer.flops.at(B=2, T=11)


def test_nothing_stays_behind() -> None:
    make, spec, _ = CASES["feed-forward"]
    before = torch.utils.checkpoint.CheckpointFunction.forward, torch.is_grad_enabled
    sf.trace(make(True).train(), spec)
    assert (torch.utils.checkpoint.CheckpointFunction.forward, torch.is_grad_enabled) == before
