"""Experts that take their tokens by value: each choice is one row for one of them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import shapeflow as sf
from tests.cost.counters import counted, repeatable

SIZES = [{"B": 2, "T": 5}, {"B": 3, "T": 11}, {"B": 1, "T": 29}]


@pytest.mark.parametrize("experts", ["eager", "batched_mm", "grouped_mm"])
def test_mixtral_is_one_formula_however_its_experts_run(experts: str) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.MixtralConfig(
        vocab_size=37, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, num_local_experts=5, num_experts_per_tok=2,
    )  # fmt: skip
    with repeatable():
        model = transformers.MixtralModel(config).eval()
    model.set_experts_implementation(experts)
    cost = sf.cost(model, "B T:int64")
    model.set_experts_implementation("batched_mm")  # torch's counter leaves products of grouped matrices out
    for sizes in SIZES:
        ids = torch.randint(0, 37, (sizes["B"], sizes["T"]))
        expected, _ = counted(lambda ids=ids: model(ids))
        assert cost.flops.at(**sizes) == expected


class Routed(nn.Module):
    """A loop over experts that are modules of their own; `how` they find their rows."""

    def __init__(self, how: Callable[[torch.Tensor, int], torch.Tensor], top_k: int = 2) -> None:
        super().__init__()
        self.how, self.top_k = how, top_k
        self.gate = nn.Linear(8, 3)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1, 8)
        weights, chosen = self.gate(flat).softmax(-1).topk(self.top_k, dim=-1)
        out = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            rows = self.how(chosen, number)
            out.index_add_(0, rows, expert(flat[rows]))
        return (out * weights.sum(-1, keepdim=True)).view(x.shape)


HOWS: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "where": lambda chosen, number: torch.where(chosen == number)[0],
    "nonzero": lambda chosen, number: (chosen == number).any(-1).nonzero().squeeze(-1),
    "nonzero_tuple": lambda chosen, number: torch.nonzero(chosen == number, as_tuple=True)[0],
    "one_hot": lambda chosen, number: torch.where(nn.functional.one_hot(chosen, 3)[..., number] > 0)[0],
}


@pytest.mark.parametrize("how", HOWS)
def test_a_loop_over_experts_is_what_torch_counts(how: str) -> None:
    with repeatable():
        model = Routed(HOWS[how])
    cost = sf.cost(model, "B T 8")
    per_row = 2 * (8 * 16 + 16 * 8)
    assert str(cost.flops) == f"{2 * 8 * 3 + 2 * per_row}*B*T"
    for sizes in SIZES[1:]:
        with repeatable():
            inputs = torch.randn(sizes["B"], sizes["T"], 8)
        assert (cost.flops.at(**sizes), cost.backward_flops.at(**sizes)) == counted(lambda x=inputs: model(x))


def test_a_selection_of_one_value_stays_open() -> None:
    """Nobody knows how many ids are 0: the count is a size of its own, and has to be given."""
    cost = sf.cost(lambda ids, x: x[ids == 0] @ x.new_ones(6, 5), "n:int64", "n 6")
    (name,) = (symbol.name for symbol in cost.flops.symbols)
    assert cost.flops.at(**{name: 7}) == 7 * 60
    with pytest.raises(sf.InputError, match=rf"no size is given for {name} \(rows that .* finds\)"):
        cost.sheet(n=11)


@pytest.mark.parametrize("name", ["mixtral", "deepseek", "gpt_oss", "qwen3_moe", "switch"])
def test_the_models_of_the_notes_cost_what_torch_counts(name: str) -> None:
    with repeatable():
        model: Any = importlib.import_module(f"models.{name}").toy().eval()
    cost = sf.cost(model)
    sizes = {"B": 2, "S": 7, "T": 5}
    ids = [torch.randint(0, 17, (2, sizes["S"])), torch.randint(0, 17, (2, 5))] if name == "switch" else None
    inputs = ids or [torch.randint(0, 17, (2, 5))]
    expected, _ = counted(lambda: model(*inputs))
    assert cost.flops.at(**sizes) == expected
