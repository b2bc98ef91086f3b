"""Llama, Mistral and Qwen3 of `transformers` (`...ForCausalLM`) as ours.

Their names of the parts are the same in all of them, and in most of the models that came after.
"""

from collections.abc import Mapping
from typing import Any

import torch.nn as nn
from jaxtyping import Shaped
from torch import Tensor

from ..llama import Llama, LlamaConfig
from ..mistral import Mistral, MistralConfig
from ..qwen3 import Qwen3, Qwen3Config
from ..rope import LinearScaling, Llama3Scaling, Scaling, YarnScaling, yarn_magnitude
from .checkpoint import Weights, load, option, required

# Parts of a block: our name, their name.
NORMS = {"norm1": "input_layernorm", "norm2": "post_attention_layernorm"}
ATTENTION = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "out": "o_proj"}
HEAD_NORMS = {"q_norm": "q_norm", "k_norm": "k_norm"}
NETWORK = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}


def convert(config: Mapping[str, Any], weights: Weights) -> nn.Module:
    """The model with all of the weights. Raises ValueError for an option that our model lacks."""
    model = {"llama": llama, "mistral": mistral, "qwen3": qwen3}[config["model_type"]](config)
    attention = ATTENTION | (HEAD_NORMS if isinstance(model, Qwen3) else {})
    ours = outer(config, weights)
    for layer in range(required(config, "num_hidden_layers")):
        theirs, block = f"model.layers.{layer}.", f"blocks.{layer}."
        ours |= parts(weights, f"{theirs}", block, NORMS)
        ours |= parts(weights, f"{theirs}self_attn.", f"{block}attn.", attention)
        ours |= parts(weights, f"{theirs}mlp.", f"{block}ffn.", NETWORK)
        weights.drop(f"{theirs}self_attn.rotary_emb.inv_freq")  # which checkpoints held at first
    load(model, ours)
    if model.config.tied:  # what was loaded are two parameters with the same numbers
        model.head.weight = model.tokens.table.weight
    return model


def llama(config: Mapping[str, Any]) -> Llama:
    option(config, "mlp_bias", {False: False}, default=False)
    return Llama(LlamaConfig(**sizes(config)))


def mistral(config: Mapping[str, Any]) -> Mistral:
    return Mistral(MistralConfig(**sizes(config), window=config.get("sliding_window")))


def qwen3(config: Mapping[str, Any]) -> Qwen3:
    option(config, "use_sliding_window", {False: False}, default=False)
    return Qwen3(Qwen3Config(**sizes(config)))


def sizes(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that all of the configs share. Raises ValueError for an option that our models lack."""
    option(config, "hidden_act", {"silu": "silu"})
    option(config, "attention_bias", {False: False}, default=False)
    d_model, n_heads = required(config, "hidden_size"), required(config, "num_attention_heads")
    return {
        "vocab": required(config, "vocab_size"),
        "d_model": d_model,
        "n_heads": n_heads,
        "n_kv_heads": config.get("num_key_value_heads") or n_heads,
        "d_head": config.get("head_dim") or d_model // n_heads,
        "d_ff": required(config, "intermediate_size"),
        "n_layers": required(config, "num_hidden_layers"),
        "norm_eps": required(config, "rms_norm_eps"),
        "tied": config.get("tie_word_embeddings", False),
        **rotary(config),
    }


def outer(config: Mapping[str, Any], weights: Weights) -> dict[str, Shaped[Tensor, "..."]]:
    """What stands around the blocks: the embedding, the last norm, the vocabulary head."""
    table = weights.take("model.embed_tokens.weight")
    ours = {"tokens.table.weight": table, "norm.weight": weights.take("model.norm.weight")}
    if config.get("tie_word_embeddings", False):
        weights.drop_copy("lm_head.weight", table)
        return ours | {"head.weight": table}
    return ours | {"head.weight": weights.take("lm_head.weight")}


def parts(weights: Weights, theirs: str, ours: str, names: Mapping[str, str]) -> dict[str, Shaped[Tensor, "..."]]:
    """The weight, and the bias where there is one, of every part: `names` maps our name to theirs."""
    return {
        f"{ours}{our}.{kind}": weights.take(f"{theirs}{their}.{kind}")
        for our, their in names.items()
        for kind in ("weight", "bias")
        if kind == "weight" or f"{theirs}{their}.bias" in weights
    }


def rotary(config: Mapping[str, Any], *, base: float = 10000.0) -> dict[str, Any]:
    """`base` and `scaling` of `Rotary`; the argument is what the config means where it names no base."""
    given = rope_fields(config)
    option(given, "partial_rotary_factor", {1.0: 1.0, None: 1.0}, default=1.0)
    return {"base": float(given.get("rope_theta") or base), "scaling": scaling(config, given)}


def rope_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """All that the config says of rotary positions, in one mapping; older checkpoints spread it."""
    old = {"rope_theta": config.get("rope_theta"), **(config.get("rope_scaling") or {})}
    given = config.get("rope_parameters") or old
    return {"model_type": config.get("model_type"), "rope_type": given.get("type", "default"), **given}


def scaling(config: Mapping[str, Any], given: Mapping[str, Any]) -> Scaling | None:
    kind = option(given, "rope_type", {name: name for name in ("default", "linear", "llama3", "yarn")})
    if kind == "default":
        return None
    if kind == "linear":
        return LinearScaling(factor=float(required(given, "factor")))
    if kind == "llama3":
        return Llama3Scaling(
            factor=float(required(given, "factor")),
            low_freq_factor=float(required(given, "low_freq_factor")),
            high_freq_factor=float(required(given, "high_freq_factor")),
            original_max_len=required(given, "original_max_position_embeddings"),
        )
    return YarnScaling(
        factor=yarn_factor(config, given),
        original_max_len=required(given, "original_max_position_embeddings"),
        beta_fast=float(given.get("beta_fast") or 32.0),
        beta_slow=float(given.get("beta_slow") or 1.0),
        truncate=given.get("truncate", True),
        magnitude=magnitude(yarn_factor(config, given), given),
    )


def yarn_factor(config: Mapping[str, Any], given: Mapping[str, Any]) -> float:
    factor = given.get("factor")
    if factor is not None:
        return float(factor)
    return required(config, "max_position_embeddings") / required(given, "original_max_position_embeddings")


def magnitude(factor: float, given: Mapping[str, Any]) -> float:
    """How much YaRN lengthens turned vectors: as given, or DeepSeek's quotient of two, or the paper's formula."""
    if given.get("attention_factor") is not None:
        return float(given["attention_factor"])
    weight, weight_all = given.get("mscale"), given.get("mscale_all_dim")
    if weight and weight_all:
        return yarn_magnitude(factor, float(weight)) / yarn_magnitude(factor, float(weight_all))
    return yarn_magnitude(factor)
