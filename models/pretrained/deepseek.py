"""DeepSeek-V2 and V3 of `transformers` (`...ForCausalLM`) as our `models.deepseek.DeepSeek`."""

from collections.abc import Mapping
from typing import Any

from jaxtyping import Shaped
from torch import Tensor

from ..deepseek import DeepSeek, DeepSeekConfig
from ..routing import Groups
from .checkpoint import Weights, load, option, required
from .experts import EXPERT, routed
from .latent import latent_attention, latent_sizes
from .llama import NETWORK, NORMS, outer, parts, rotary


def convert(config: Mapping[str, Any], weights: Weights) -> DeepSeek:
    """The model with all of the weights. Raises ValueError for an option that our model lacks."""
    model = DeepSeek(our_config(config))
    ours = outer(config, weights)
    for layer in range(model.config.n_layers):
        theirs, block = f"model.layers.{layer}.", f"blocks.{layer}."
        ours |= parts(weights, theirs, block, NORMS)
        ours |= latent_attention(config, weights, f"{theirs}self_attn.", f"{block}attn.")
        dense = layer < model.config.n_dense_layers
        ours |= (parts if dense else with_shared)(weights, f"{theirs}mlp.", f"{block}ffn.", NETWORK)
    load(model, ours)
    if model.config.tied:  # what was loaded are two parameters with the same numbers
        model.head.weight = model.tokens.table.weight
    return model


def with_shared(weights: Weights, theirs: str, ours: str, names: Mapping[str, str]) -> dict[str, Shaped[Tensor, "..."]]:
    """Router, its bias for the choice where it has one, experts, and the network that all tokens share."""
    taken = routed(weights, theirs, ours, EXPERT)
    bias = f"{theirs}gate.e_score_correction_bias"
    if bias in weights:
        taken[f"{ours}router.choice_bias"] = weights.take(bias)
    return taken | parts(weights, f"{theirs}shared_experts.", f"{ours}shared.", names)


def our_config(config: Mapping[str, Any]) -> DeepSeekConfig:
    option(config, "hidden_act", {"silu": "silu"})
    option(config, "mlp_bias", {False: False}, default=False)
    option(config, "moe_layer_freq", {1: 1}, default=1)
    latent = latent_sizes(config)
    return DeepSeekConfig(
        **{name: value for name, value in latent.items() if name not in ("norm_eps", "bias")},
        attention_bias=latent["bias"],
        vocab=required(config, "vocab_size"),
        d_ff=required(config, "intermediate_size"),
        d_expert=required(config, "moe_intermediate_size"),
        n_experts=required(config, "n_routed_experts"),
        top_k=required(config, "num_experts_per_tok"),
        n_shared=required(config, "n_shared_experts"),
        n_dense_layers=required(config, "first_k_dense_replace"),
        n_layers=required(config, "num_hidden_layers"),
        scale=required(config, "routed_scaling_factor"),
        norm_eps=required(config, "rms_norm_eps"),
        tied=config.get("tie_word_embeddings", False),
        **rotary(config),
        **(v2 if config["model_type"] == "deepseek_v2" else v3)(config),
    )


def v2(config: Mapping[str, Any]) -> dict[str, Any]:
    """V2's router; theirs never renormalises, whatever the config says."""
    option(config, "scoring_func", {"softmax": "softmax"}, default="softmax")
    option(config, "norm_topk_prob", {False: False, None: False}, default=False)
    grouped = option(config, "topk_method", {"greedy": False, "group_limited_greedy": True}, default="greedy")
    return {"groups": groups(config, n_best=1) if grouped else None}


def v3(config: Mapping[str, Any]) -> dict[str, Any]:
    option(config, "scoring_func", {"sigmoid": "sigmoid"}, default="sigmoid")
    option(config, "topk_method", {"noaux_tc": "noaux_tc"}, default="noaux_tc")
    return {
        "scoring": "sigmoid",
        "renormalised": config.get("norm_topk_prob", True),
        "balanced": True,
        "groups": groups(config, n_best=2),
    }


def groups(config: Mapping[str, Any], *, n_best: int) -> Groups:
    return Groups(n_groups=required(config, "n_group"), top_groups=required(config, "topk_group"), n_best=n_best)
