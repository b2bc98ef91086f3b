"""Mixture of experts: many feed-forward networks, of which a router picks a few for each token (notes, section 5).

>>> router, experts = Router(d_model=8, n_experts=4, top_k=2), SwiGLUExperts(n_experts=4, d_model=8, d_expert=16)
>>> layer = MixtureOfExperts(router, experts)
>>> layer(torch.randn(2, 5, 8)).shape
torch.Size([2, 5, 8])
>>> sum(p.numel() for p in layer.parameters()), active_parameters(layer)
(1568, 800)

Memory grows with `n_experts`, work with `top_k`. Routing is real: an expert computes the tokens that chose it and no
others, so each has a number of tokens of its own (`n_routed`), which may be 0.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn as nn
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from .routing import Router, Routing, within_capacity


class SwiGLUExperts(nn.Module):
    """Networks as in `swiglu.py`, all of them in three parameters: expert e has the e-th matrix of each.

    A list of modules would be the same numbers; but DeepSeek-V3 would be 45,000 of them.
    """

    def __init__(self, *, n_experts: int, d_model: int, d_expert: int) -> None:
        super().__init__()
        self.n_experts = n_experts
        self.d_model = d_model
        self.d_expert = d_expert
        self.gate = packed(n_experts, d_model, d_expert)
        self.up = packed(n_experts, d_model, d_expert)
        self.down = packed(n_experts, d_expert, d_model)

    def forward(self, x: Float[Tensor, "n_routed d_model"], expert: int) -> Float[Tensor, "n_routed d_model"]:
        gate, up, down = self.matrices(expert)
        return (F.silu(x @ gate) * (x @ up)) @ down

    def matrices(
        self, expert: int
    ) -> tuple[Float[Tensor, "d_model d_expert"], Float[Tensor, "d_model d_expert"], Float[Tensor, "d_expert d_model"]]:
        return self.gate[expert], self.up[expert], self.down[expert]


def packed(n_experts: int, d_in: int, d_out: int) -> nn.Parameter:
    """One matrix per expert, which multiplies from the right; drawn as `nn.Linear` draws its own."""
    bound = 1 / math.sqrt(d_in)
    return nn.Parameter(torch.empty(n_experts, d_in, d_out).uniform_(-bound, bound))


class MixtureOfExperts(nn.Module):
    """In the place of a feed-forward layer: the weighted sum of what the chosen experts make of each token.

    `shared` is a network that every token goes through as well (DeepSeek): what all need is learned once. With a
    `capacity` an expert takes so many tokens of a sequence; one that no expert takes gets 0, which leaves it to the
    residual connection.
    """

    def __init__(
        self, router: Router, experts: nn.Module, *, shared: nn.Module | None = None, capacity: int | None = None
    ) -> None:
        super().__init__()
        self.d_model = router.d_model
        self.n_experts = router.n_experts
        self.top_k = router.top_k
        self.capacity = capacity
        self.router = router
        self.experts = experts
        self.shared = shared

    def forward(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_model"]:
        routing = self.router(x)
        chosen = routing.chosen
        if self.capacity is not None:
            chosen = within_capacity(chosen, n_experts=self.n_experts, capacity=self.capacity)
        mixture = torch.zeros_like(x)
        for expert in range(self.n_experts):
            b, t, place = torch.where(chosen == expert)
            output = self.experts(x[b, t], expert) * routing.weights[b, t, place, None]
            mixture = mixture.index_put((b, t), output.to(x.dtype), accumulate=True)
        return mixture if self.shared is None else mixture + self.shared(x)


@contextmanager
def recorded_routings(model: nn.Module) -> Iterator[list[Routing]]:
    """Every `Routing` of the forward passes within, layer after layer: what the balancing loss is made from.

    with recorded_routings(model) as routings:
        logits = model(ids)
    loss = nll + 0.01 * sum(balancing_loss(routing) for routing in routings)
    """
    routings: list[Routing] = []
    routers = [module for module in model.modules() if isinstance(module, Router)]
    hooks = [router.register_forward_hook(lambda _, args, routing: routings.append(routing)) for router in routers]
    try:
        yield routings
    finally:
        for hook in hooks:
            hook.remove()


def active_parameters(model: nn.Module, *, input_embedding: bool = True) -> int:
    """The parameters that one token can touch: all but the experts that do not get it (notes, section 5.2).

    Papers differ in whether the embedding table counts, of which a token reads one row. Without `input_embedding` it is
    left out, unless the vocabulary head is the same table.
    """
    active = sum(parameter.numel() for parameter in model.parameters())
    for layer in model.modules():
        if isinstance(layer, MixtureOfExperts):
            per_expert = sum(parameter.numel() for parameter in layer.experts.parameters()) // layer.n_experts
            active -= (layer.n_experts - layer.top_k) * per_expert
    if not input_embedding and not model.config.tied:
        active -= model.tokens.table.weight.numel()
    return active
