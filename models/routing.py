"""Which experts a token goes to, and how the choices are kept even: router, capacity, balance (notes, section 5.1).

>>> routing = Router(d_model=8, n_experts=4, top_k=2)(torch.randn(1, 5, 8))
>>> routing.chosen.shape, routing.weights.sum(dim=-1).shape
(torch.Size([1, 5, 2]), torch.Size([1, 5]))

Left alone, a router sends ever more tokens to the experts that happened to learn first (routing collapse). Three
remedies: a capacity that drops what is too much, a loss that is smallest when all experts get the same, and a bias that
rises where an expert gets too little.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn as nn
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

NO_EXPERT = -1  # in the place of a choice that was dropped


@dataclass(frozen=True, slots=True)
class Routing:
    """What a router decides for each token: every expert's score, the experts chosen, and the weights of their sum."""

    scores: Float[Tensor, "B T n_experts"]
    chosen: Int[Tensor, "B T top_k"]
    weights: Float[Tensor, "B T top_k"]


@dataclass(frozen=True, slots=True)
class Groups:
    """Experts that live on one machine form a group, and a token may go to few of them (DeepSeek-V2 and V3)."""

    n_groups: int  # divides n_experts; neighbours are in one group
    top_groups: int  # groups that a token may go to
    n_best: int  # a group counts as much as its so many best experts together: 1 in V2, 2 in V3


class Router(nn.Module):
    """A linear layer scores the experts, and the `top_k` best get the token.

    Scores are a `softmax` over all experts, or a `sigmoid` of each (V3). With `renormalised` the weights of the chosen
    are divided by their sum; after a softmax this is the softmax of the chosen ones' logits alone, so it does not
    matter which comes first. `scale` multiplies the weights. With `balanced` a bias per expert is added for the choice,
    and for the choice only: `rebalance` moves it, no gradient does.

    All is computed in float32 at least: rounded scores would change the choice (Switch calls it selective precision).
    """

    def __init__(
        self,
        *,
        d_model: int,
        n_experts: int,
        top_k: int,
        scoring: Literal["softmax", "sigmoid"] = "softmax",
        renormalised: bool = True,
        scale: float = 1.0,
        bias: bool = False,
        balanced: bool = False,
        groups: Groups | None = None,
    ) -> None:
        super().__init__()
        check_sizes(n_experts, top_k, groups)
        self.d_model = d_model
        self.n_experts = n_experts
        self.top_k = top_k
        self.scoring = scoring
        self.renormalised = renormalised
        self.scale = scale
        self.groups = groups
        if groups is not None:
            self.n_groups = groups.n_groups
            self.top_groups = groups.top_groups
            self.n_best = groups.n_best
            self.group_size = n_experts // groups.n_groups
        self.scorer = nn.Linear(d_model, n_experts, bias=bias)
        self.register_buffer("choice_bias", torch.zeros(n_experts) if balanced else None)

    def forward(self, x: Float[Tensor, "B T d_model"]) -> Routing:
        logits = self.logits(x)
        scores = logits.sigmoid() if self.scoring == "sigmoid" else logits.softmax(dim=-1)
        chosen = self.choice(scores)
        weights = scores.gather(-1, chosen)
        if self.renormalised:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        return Routing(scores=scores, chosen=chosen, weights=weights * self.scale)

    def logits(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T n_experts"]:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        logits = F.linear(wide, self.directions(wide.dtype))
        return logits if self.scorer.bias is None else logits + self.scorer.bias

    def directions(self, dtype: torch.dtype) -> Float[Tensor, "n_experts d_model"]:
        """For each expert the direction in which its tokens lie."""
        return self.scorer.weight.to(dtype)

    def choice(self, scores: Float[Tensor, "B T n_experts"]) -> Int[Tensor, "B T top_k"]:
        """The best experts first; nothing is learned through a choice, only through the weights."""
        rank = scores if self.choice_bias is None else scores + self.choice_bias
        if self.groups is not None:
            rank = rank.masked_fill(~self.in_best_groups(rank), -math.inf)
        return rank.topk(self.top_k, dim=-1).indices

    def in_best_groups(self, rank: Float[Tensor, "B T n_experts"]) -> Bool[Tensor, "B T n_experts"]:
        values = self.best_members(rank).sum(dim=-1)
        best = torch.zeros_like(values, dtype=torch.bool).scatter(-1, self.best_groups(values), True)
        return best.repeat_interleave(self.group_size, dim=-1)

    def best_members(self, rank: Float[Tensor, "B T n_experts"]) -> Float[Tensor, "B T n_groups n_best"]:
        return self.grouped(rank).topk(self.n_best, dim=-1).values

    def grouped(self, rank: Float[Tensor, "B T n_experts"]) -> Float[Tensor, "B T n_groups group_size"]:
        return rank.unflatten(-1, (self.n_groups, self.group_size))

    def best_groups(self, values: Float[Tensor, "B T n_groups"]) -> Int[Tensor, "B T top_groups"]:
        return values.topk(self.top_groups, dim=-1).indices

    @torch.no_grad()
    def rebalance(self, chosen: Int[Tensor, "B T top_k"], rate: float) -> None:
        """After a training step: the bias of an expert with less than its share rises by `rate`, with more it falls."""
        load = loads(chosen, self.n_experts)
        self.choice_bias += rate * torch.sign(load.mean() - load)


def check_sizes(n_experts: int, top_k: int, groups: Groups | None) -> None:
    """Refuse a choice that cannot be made."""
    if not 0 < top_k <= n_experts:
        raise ValueError(f"a token goes to at least one expert and at most all {n_experts}, got top_k = {top_k}")
    if groups is None:
        return
    if n_experts % groups.n_groups != 0:
        raise ValueError(f"n_experts must be divisible by n_groups, got {n_experts} and {groups.n_groups}")
    size = n_experts // groups.n_groups
    if not 0 < groups.top_groups <= groups.n_groups or top_k > groups.top_groups * size:
        raise ValueError(f"{groups.top_groups} of {groups.n_groups} groups of {size} do not hold top_k = {top_k}")
    if not 0 < groups.n_best <= size:
        raise ValueError(f"a group of {size} experts has no {groups.n_best} best ones")


def loads(chosen: Int[Tensor, "B T top_k"], n_experts: int) -> Float[Tensor, " n_experts"]:
    """How many tokens each expert gets.

    >>> loads(torch.tensor([[[0, 2], [2, NO_EXPERT]]]), n_experts=3)
    tensor([1., 0., 2.])
    """
    return torch.bincount(chosen[chosen != NO_EXPERT], minlength=n_experts).float()


def balancing_loss(routing: Routing, valid: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, ""]:
    """`n_experts * sum of f_e * P_e` (Switch): 1 when all experts get the same, `n_experts` when one gets everything.

    f_e is the part of all choices that fell on expert e, P_e its mean score, as a part of each token's scores. A choice
    has no gradient: what the loss moves is P, it lowers the scores of experts with many tokens. `valid` leaves out
    padding.
    """
    real = torch.ones_like(routing.chosen[..., 0], dtype=torch.bool) if valid is None else valid
    n_experts = routing.scores.shape[-1]
    load = loads(routing.chosen.masked_fill(~real[..., None], NO_EXPERT), n_experts)
    parts = routing.scores / routing.scores.sum(dim=-1, keepdim=True)
    return n_experts * (load / load.sum() * parts[real].mean(dim=0)).sum()


def expert_capacity(n_tokens: int, n_experts: int, factor: float = 1.0) -> int:
    """Tokens that one expert may take: an even share, times a factor for what is uneven (Switch).

    >>> expert_capacity(6, 3, factor=1.0), expert_capacity(6, 3, factor=1.5)
    (2, 3)
    """
    return math.ceil(n_tokens * factor / n_experts)


def within_capacity(chosen: Int[Tensor, "B T top_k"], *, n_experts: int, capacity: int) -> Int[Tensor, "B T top_k"]:
    """The choices that find a place, and `NO_EXPERT` for the others: who comes first in a sequence is served first.

    Each sequence has places of its own, so that sequences do not interact. Tokens do: padding takes places like any
    token, and a model that decodes with a cache forgets who came before.

    >>> within_capacity(torch.tensor([[[0], [1], [0], [0]]]), n_experts=2, capacity=2).flatten()
    tensor([ 0,  1,  0, -1])
    """
    taken = places(chosen, n_experts).flatten(1, 2)
    number = (taken.cumsum(dim=1) * taken).sum(dim=-1)  # 1 for the first token of its expert
    return chosen.masked_fill(number.view_as(chosen) > capacity, NO_EXPERT)


def places(chosen: Int[Tensor, "B T top_k"], n_experts: int) -> Int[Tensor, "B T top_k n_experts"]:
    """Each choice as a row with a 1 at its expert."""
    return F.one_hot(chosen, n_experts)
