"""Mixtral, Qwen3-MoE and gpt-oss of `transformers` (`...ForCausalLM`) as ours.

In memory they keep the experts packed, as we do but transposed; on disk Mixtral and Qwen have one tensor per matrix.
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn as nn
from jaxtyping import Shaped
from torch import Tensor

from ..gpt_oss import GptOss, GptOssConfig
from ..mixtral import Mixtral, MixtralConfig
from ..qwen3_moe import Qwen3Moe, Qwen3MoeConfig
from .checkpoint import Weights, load, option, required
from .llama import ATTENTION, HEAD_NORMS, NETWORK, NORMS, outer, parts, sizes

# One expert on disk: our name, their name.
EXPERT = NETWORK
MIXTRAL_EXPERT = {"gate": "w1", "up": "w3", "down": "w2"}


def convert(config: Mapping[str, Any], weights: Weights) -> nn.Module:
    """The model with all of the weights. Raises ValueError for an option that our model lacks."""
    kind = config["model_type"]
    model = {"mixtral": mixtral, "qwen3_moe": qwen3_moe, "gpt_oss": gpt_oss}[kind](config)
    attention = ATTENTION | (HEAD_NORMS if kind == "qwen3_moe" else {})
    network = {"mixtral": mixtral_network, "qwen3_moe": qwen3_network, "gpt_oss": gpt_oss_network}[kind]
    ours = outer(config, weights)
    for layer in range(required(config, "num_hidden_layers")):
        theirs, block = f"model.layers.{layer}.", f"blocks.{layer}."
        ours |= parts(weights, theirs, block, NORMS)
        ours |= parts(weights, f"{theirs}self_attn.", f"{block}attn.", attention)
        if kind == "gpt_oss":
            ours[f"{block}attn.sinks"] = weights.take(f"{theirs}self_attn.sinks")
        ours |= network(weights, theirs, f"{block}ffn.")
    load(model, ours)
    if model.config.tied:  # what was loaded are two parameters with the same numbers
        model.head.weight = model.tokens.table.weight
    return model


def mixtral(config: Mapping[str, Any]) -> Mixtral:
    fields = expert_sizes(config, d_expert="intermediate_size")
    return Mixtral(MixtralConfig(**fields, window=config.get("sliding_window")))


def qwen3_moe(config: Mapping[str, Any]) -> Qwen3Moe:
    option(config, "use_sliding_window", {False: False}, default=False)
    step, dense = config.get("decoder_sparse_step", 1), config.get("mlp_only_layers") or ()
    layers = range(required(config, "num_hidden_layers"))
    return Qwen3Moe(
        Qwen3MoeConfig(
            **expert_sizes(config, d_expert="moe_intermediate_size"),
            renormalised=config.get("norm_topk_prob", False),
            dense_layers=tuple(layer for layer in layers if layer in dense or (layer + 1) % step != 0),
            d_ff=required(config, "intermediate_size"),
        )
    )


def gpt_oss(config: Mapping[str, Any]) -> GptOss:
    fields = expert_sizes(dict(config) | {"attention_bias": False}, d_expert="intermediate_size")
    window = config.get("sliding_window")
    kinds = config.get("layer_types") or ["sliding_attention", "full_attention"] * fields["n_layers"]
    windows = {"sliding_attention": window, "full_attention": None}
    return GptOss(
        GptOssConfig(
            **{name: value for name, value in fields.items() if name != "n_layers"},
            windows=tuple(windows[kind] for kind in kinds[: fields["n_layers"]]),
            sharpness=config.get("swiglu_alpha", 1.702),
            limit=config.get("swiglu_limit", 7.0),
            biased=config.get("attention_bias", True),
        )
    )


def expert_sizes(config: Mapping[str, Any], *, d_expert: str) -> dict[str, Any]:
    """The fields that the configs share; `d_expert` is what they call the width of an expert."""
    fields = {name: value for name, value in sizes(config).items() if name != "d_ff"}
    n_experts = config.get("num_local_experts") or required(config, "num_experts")
    top_k = required(config, "num_experts_per_tok")
    return fields | {"d_expert": required(config, d_expert), "n_experts": n_experts, "top_k": top_k}


def mixtral_network(weights: Weights, theirs: str, ours: str) -> dict[str, Shaped[Tensor, "..."]]:
    old = f"{theirs}block_sparse_moe."
    theirs = old if f"{old}gate.weight" in weights else f"{theirs}mlp."
    return routed(weights, theirs, ours, MIXTRAL_EXPERT)


def qwen3_network(weights: Weights, theirs: str, ours: str) -> dict[str, Shaped[Tensor, "..."]]:
    if f"{theirs}mlp.gate.weight" in weights:
        return routed(weights, f"{theirs}mlp.", ours, EXPERT)
    return parts(weights, f"{theirs}mlp.", ours, NETWORK)


def routed(weights: Weights, theirs: str, ours: str, names: Mapping[str, str]) -> dict[str, Shaped[Tensor, "..."]]:
    """Router and SwiGLU experts; `names` maps our matrices to those of a single expert."""
    taken = parts(weights, theirs, ours, {"router.scorer": "gate"})
    n_experts = len(taken[f"{ours}router.scorer.weight"])
    matrices = packed(weights, f"{theirs}experts.", names, n_experts=n_experts)
    return taken | {f"{ours}experts.{name}": matrix for name, matrix in matrices.items()}


def packed(
    weights: Weights, theirs: str, names: Mapping[str, str], *, n_experts: int
) -> dict[str, Shaped[Tensor, "n_experts ..."]]:
    """The three parameters of `SwiGLUExperts`."""
    if f"{theirs}gate_up_proj" in weights:
        gate, up = weights.take(f"{theirs}gate_up_proj").chunk(2, dim=1)
        found = {"gate": gate, "up": up, "down": weights.take(f"{theirs}down_proj")}
    else:
        found = {
            our: torch.stack([weights.take(f"{theirs}{expert}.{their}.weight") for expert in range(n_experts)])
            for our, their in names.items()
        }
    return {name: matrices.transpose(1, 2).contiguous() for name, matrices in found.items()}


def gpt_oss_network(weights: Weights, theirs: str, ours: str) -> dict[str, Shaped[Tensor, "..."]]:
    """Gate and input are woven into one another, column by column; nothing is transposed."""
    taken = parts(weights, f"{theirs}mlp.", ours, {"router.scorer": "router"})
    for suffix in ("", "_bias"):
        both = weights.take(f"{theirs}mlp.experts.gate_up_proj{suffix}")
        taken[f"{ours}experts.gate{suffix}"] = both[..., ::2].contiguous()
        taken[f"{ours}experts.up{suffix}"] = both[..., 1::2].contiguous()
        taken[f"{ours}experts.down{suffix}"] = weights.take(f"{theirs}mlp.experts.down_proj{suffix}")
    return taken
