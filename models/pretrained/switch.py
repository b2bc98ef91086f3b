"""Switch of `transformers` (`SwitchTransformersForConditionalGeneration`) as our `models.switch.Switch`.

All but the feed-forward layers is called as in T5.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..switch import Switch, SwitchConfig
from . import t5
from .checkpoint import Weights, load, option, required

NETWORK = {"up": "wi", "down": "wo"}


def convert(config: Mapping[str, Any], weights: Weights) -> Switch:
    """The model with all of the weights. Raises ValueError for an option that our model lacks."""
    ours, tied = t5.tables(weights)
    ours_config = our_config(config, tied=tied)
    ours |= t5.stack(weights, "encoder", ours_config.t5.n_encoder_layers, network)
    ours |= t5.stack(weights, "decoder", ours_config.t5.n_decoder_layers, network)
    weights.drop(t5.UNUSED)
    model = Switch(ours_config)
    load(model, ours)
    return model


def our_config(config: Mapping[str, Any], *, tied: bool) -> SwitchConfig:
    option(config, "dense_act_fn", {"relu": "relu"}, default="relu")
    return SwitchConfig(
        t5=t5.our_config(dict(config) | {"feed_forward_proj": "relu"}, tied=tied),
        n_experts=required(config, "num_experts"),
        capacity=required(config, "expert_capacity"),
        encoder_step=required(config, "encoder_sparse_step"),
        decoder_step=required(config, "decoder_sparse_step"),
        router_bias=config.get("router_bias", False),
    )


def network(weights: Weights, theirs: str, ours: str) -> dict[str, Tensor]:
    """A feed-forward layer: a router and one pair of matrices per expert, or the pair alone."""
    router = f"{theirs}mlp.router.classifier."
    if f"{router}weight" not in weights:
        return {f"{ours}{our}.weight": weights.take(f"{theirs}mlp.{their}.weight") for our, their in NETWORK.items()}
    kinds = [kind for kind in ("weight", "bias") if f"{router}{kind}" in weights]
    taken = {f"{ours}router.scorer.{kind}": weights.take(f"{router}{kind}") for kind in kinds}
    n_experts = len(taken[f"{ours}router.scorer.weight"])
    for our, their in NETWORK.items():
        names = [f"{theirs}mlp.experts.expert_{expert}.{their}.weight" for expert in range(n_experts)]
        taken[f"{ours}experts.{our}"] = torch.stack([weights.take(name).T for name in names])
    return taken
