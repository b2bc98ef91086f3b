"""Experts that Python code picks by values, and routers that are no `topk` of indices: still k of n."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import shapeflow as sf
from shapeflow.cost import measured
from tests.cost.counters import repeatable

D, E, K = 6, 5, 2
ONE, ROUTER = 2 * D * D, D * E


class Experts(nn.Module):
    """A router and small networks in a list; how tokens get to them is each case's own."""

    def __init__(self, way: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.way = way
        self.router = nn.Linear(D, E, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(D, D, bias=False), nn.ReLU(), nn.Linear(D, D, bias=False)) for _ in range(E)
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.way(self, x.reshape(-1, D)).view_as(x)


def picked(self: Any, flat: Tensor) -> tuple[Tensor, Tensor]:
    return self.router(flat).softmax(-1).topk(K, dim=-1)


def tolist_of_each_token(self, flat):
    weights, chosen = picked(self, flat)
    rows = [
        sum(weights[i, j] * self.experts[e](flat[i]) for j, e in enumerate(row))
        for i, row in enumerate(chosen.tolist())
    ]
    return torch.stack(rows)


def item_of_each_token(self, flat):
    weights, chosen = picked(self, flat)
    out = torch.zeros_like(flat)
    for i in range(flat.shape[0]):
        for j in range(K):
            out[i] += weights[i, j] * self.experts[chosen[i, j].item()](flat[i])
    return out


def lists_of_tokens(self, flat):
    weights, chosen = picked(self, flat)
    groups: dict[int, list[int]] = {}
    for i, row in enumerate(chosen.tolist()):
        for e in row:
            groups.setdefault(e, []).append(i)
    out = torch.zeros_like(flat)
    for e, members in groups.items():
        out.index_add_(0, torch.tensor(members), self.experts[e](flat[torch.tensor(members)]))
    return out * weights.sum(-1, keepdim=True)


def skipped_where_nobody_chose(self, flat):
    weights, chosen = picked(self, flat)
    out = torch.zeros_like(flat)
    for e, expert in enumerate(self.experts):
        mask = chosen == e
        if not mask.any():
            continue
        rows = mask.any(-1)
        out[rows] += expert(flat[rows]) * (weights * mask).sum(-1)[rows].unsqueeze(-1)
    return out


def one_slot_at_a_time(self, flat):
    weights, chosen = picked(self, flat)
    out = torch.zeros_like(flat)
    for slot in range(K):
        for e in range(E):
            mask = chosen[:, slot] == e
            if mask.any():
                out[mask] += weights[mask, slot : slot + 1] * self.experts[e](flat[mask])
    return out


def sorted_by_expert_numpy(self, flat):
    """As DeepSeek's code for inference does."""
    weights, chosen = picked(self, flat)
    counts = chosen.new_zeros((chosen.shape[0], E)).scatter_(1, chosen, 1).sum(0)
    order = chosen.view(-1).argsort()
    rows, start, outs = flat[order // K], 0, []
    for e, count in enumerate(counts.cpu().numpy()):
        if count == 0:
            continue
        outs.append(self.experts[e](rows[start : start + count]))
        start = start + count
    mixed = torch.cat(outs)
    back = torch.empty_like(mixed)
    back[order] = mixed
    return (back.view(*chosen.shape, -1) * weights.unsqueeze(-1)).sum(1)


def split_by_counts(self, flat):
    weights, chosen = picked(self, flat)
    order = chosen.view(-1).argsort()
    counts = torch.bincount(chosen.view(-1), minlength=E).tolist()
    parts = [expert(rows) for expert, rows in zip(self.experts, flat[order // K].split(counts), strict=True)]
    mixed = torch.cat(parts) * weights.view(-1)[order].unsqueeze(-1)
    return torch.zeros_like(flat).index_add(0, order // K, mixed)


def ends_by_cumsum(self, flat):
    weights, chosen = picked(self, flat)
    order = chosen.view(-1).argsort()
    ends = chosen.view(-1).bincount().cpu().numpy().cumsum(0)
    out = torch.zeros_like(flat)
    for e, end in enumerate(ends):
        start = 0 if e == 0 else ends[e - 1]
        if start == end:
            continue
        rows = order[start:end] // K
        out.index_add_(0, rows, self.experts[e](flat[rows]) * weights.view(-1, 1)[order[start:end]])
    return out


def those_that_are_hit(self, flat):
    """As Mixtral's older code does, with experts in a list."""
    weights, chosen = picked(self, flat)
    mask = functional.one_hot(chosen, E).permute(2, 1, 0)
    out = torch.zeros_like(flat)
    for hit in torch.greater(mask.sum((-1, -2)), 0).nonzero():
        slot, row = torch.where(mask[hit].squeeze(0))
        out.index_add_(0, row, self.experts[hit](flat[row]) * weights[row, slot, None])
    return out


def unique_ones(self, flat):
    weights, chosen = picked(self, flat)
    out = torch.zeros_like(flat)
    for e in chosen.unique().tolist():
        row, slot = torch.where(chosen == e)
        out.index_add_(0, row, self.experts[e](flat[row]) * weights[row, slot, None])
    return out


def compared_with_the_kth(self, flat):
    logits = self.router(flat)
    least = logits.topk(K, -1).values[..., -1:]
    weights = logits.masked_fill(logits < least, -torch.inf).softmax(-1)
    return sum(weights[..., e, None] * self.experts[e](flat) for e in range(E))


def compared_with_kthvalue(self, flat):
    logits = self.router(flat)
    least = logits.kthvalue(E - K + 1, -1, keepdim=True).values
    weights = torch.where(logits >= least, logits, torch.full_like(logits, -torch.inf)).softmax(-1)
    return sum(weights[..., e, None] * self.experts[e](flat) for e in range(E))


IN_PYTHON = [
    tolist_of_each_token, item_of_each_token, lists_of_tokens, sorted_by_expert_numpy, split_by_counts, ends_by_cumsum,
    those_that_are_hit, unique_ones,
]  # fmt: skip
IN_THE_GRAPH = [skipped_where_nobody_chose, one_slot_at_a_time, compared_with_the_kth, compared_with_kthvalue]


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("way", IN_PYTHON, ids=lambda way: way.__name__)
def test_a_token_touches_k_of_n_experts_that_python_picks(way: Any, device: str) -> None:
    with repeatable():
        model = Experts(way).to(device)
    report = sf.params(model, f"B T {D}")
    assert report.active == ROUTER + K * ONE, report.activity
    assert report.activity.measured
    assert {each.partition(".")[0] for each in report.activity.routed} == {"experts"}
    assert "(2 of 5 experts)" in str(report)
    assert "seen in runs on one token, as Python code picks experts by numbers" in str(report)


@pytest.mark.parametrize("way", IN_THE_GRAPH, ids=lambda way: way.__name__)
def test_a_token_touches_k_of_n_experts_by_the_graph(way: Any) -> None:
    report = sf.params(Experts(way), f"B T {D}")
    assert report.active == ROUTER + K * ONE, report.activity
    assert not report.activity.measured


def test_a_hard_gumbel_softmax_picks_one() -> None:
    def gumbel(self: Any, flat: Tensor) -> Any:
        gates = functional.gumbel_softmax(self.router(flat), hard=True)
        return sum(gates[..., e, None] * self.experts[e](flat) for e in range(E))

    assert sf.params(Experts(gumbel), f"B T {D}").active == ROUTER + ONE


def test_experts_that_are_matrices_of_one_parameter() -> None:
    class Fused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.router, self.up = nn.Linear(D, E, bias=False), nn.Parameter(torch.ones(E, D, D))

        def forward(self, x: Tensor) -> Tensor:
            flat = x.reshape(-1, D)
            chosen = picked(self, flat)[1].tolist()
            return torch.stack([sum(flat[i] @ self.up[e] for e in row) for i, row in enumerate(chosen)])

    assert sf.params(Fused(), f"B T {D}").active == ROUTER + K * D * D


def as_many_as_are_likely(self, flat):
    out = torch.zeros_like(flat)
    for i, e in (self.router(flat).softmax(-1) > 0.2).nonzero().tolist():
        out[i] += self.experts[e](flat[i])
    return out


UNTOLD = r"active parameters of Experts cannot be told: its Python code .* at .*test_routing.py:\d+.*, and "


@pytest.mark.parametrize(
    ("way", "spec", "reason"),
    [
        (tolist_of_each_token, f"2 3 {D}", 'is more than one token: name the axes of tokens, as in "B T 6"'),
        (as_many_as_are_likely, f"B T {D}", r"one token touches more of experts\.0\.0\.weight and its like than"),
    ],
)
def test_what_cannot_be_told_is_said(way: Any, spec: str, reason: str) -> None:
    with repeatable():
        model = Experts(way)
    with pytest.raises(sf.InputError, match=UNTOLD + f".*{reason}"):
        _ = sf.params(model, spec).active


def test_a_large_model_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "LARGEST", 100)
    with pytest.raises(sf.InputError, match=UNTOLD + "a model of 390 parameters is not run for it"):
        _ = sf.params(Experts(unique_ones), f"B T {D}").active


@pytest.mark.parametrize("way", [sorted_by_expert_numpy, split_by_counts], ids=lambda way: way.__name__)
def test_counts_of_choices_add_up(way: Any) -> None:
    """Each of the k choices of a token is one row for some expert, however the rows are cut."""
    assert str(sf.cost(Experts(way), f"B T {D}").flops) == f"{2 * ROUTER + K * 2 * ONE}*B*T"
