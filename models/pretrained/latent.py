"""The attention of DeepSeek-V2 and V3 in `transformers` as our `models.latent.LatentAttention`.

Their rotary axes are paired as neighbours, ours as two halves: the rows that make them are reordered here.
"""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor

from ..rope import yarn_magnitude
from .checkpoint import Weights, option, required
from .llama import parts, rope_fields, yarn_factor

# Our name, their name.
PARTS = {"norm": "kv_a_layernorm", "up": "kv_b_proj", "out": "o_proj"}
LOW_RANK_QUERIES = {"q.down": "q_a_proj", "q.norm": "q_a_layernorm"}

# What their norms of latents add, whatever the config says of the other norms.
NORM_EPS = 1e-6


def latent_sizes(config: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `LatentAttention`; its `Rotary` is of the config's `qk_rope_head_dim`."""
    n_heads = required(config, "num_attention_heads")
    option(config, "num_key_value_heads", {n_heads: n_heads, None: n_heads}, default=None)
    return {
        "d_model": required(config, "hidden_size"),
        "n_heads": n_heads,
        "d_nope": required(config, "qk_nope_head_dim"),
        "d_rope": required(config, "qk_rope_head_dim"),
        "d_v": required(config, "v_head_dim"),
        "d_latent": required(config, "kv_lora_rank"),
        "d_latent_q": config.get("q_lora_rank"),
        "norm_eps": NORM_EPS,
        "sharpness": sharpness(config),
        "bias": config.get("attention_bias", False),
    }


def sharpness(config: Mapping[str, Any]) -> float:
    """What multiplies the scores where YaRN lengthens the text: `mscale_all_dim` weighs it, 0 or nothing leaves it."""
    given = rope_fields(config)
    weight = given.get("mscale_all_dim")
    if given["rope_type"] == "default" or not weight:
        return 1.0
    return yarn_magnitude(yarn_factor(config, given), float(weight)) ** 2


def latent_attention(
    config: Mapping[str, Any], weights: Weights, theirs: str, ours: str
) -> dict[str, Shaped[Tensor, "..."]]:
    """The tensors of one attention; `theirs` and `ours` are what their names begin with."""
    d_nope, d_rope = required(config, "qk_nope_head_dim"), required(config, "qk_rope_head_dim")
    order = halves_from_neighbours(d_rope) if config.get("rope_interleave", True) else torch.arange(d_rope)
    taken = parts(weights, theirs, ours, PARTS)
    for name, tensor in parts(weights, theirs, ours, {"down": "kv_a_proj_with_mqa"}).items():
        taken[name] = torch.cat([tensor[:-d_rope], tensor[-d_rope:][order]])
    low_rank = config.get("q_lora_rank") is not None
    if low_rank:
        taken |= parts(weights, theirs, ours, LOW_RANK_QUERIES)
    q = weights.take(f"{theirs}q_b_proj.weight" if low_rank else f"{theirs}q_proj.weight")
    heads = q.unflatten(0, (-1, d_nope + d_rope))
    taken[f"{ours}q.up.weight"] = torch.cat([heads[:, :d_nope], heads[:, d_nope:][:, order]], dim=1).flatten(0, 1)
    return taken


def halves_from_neighbours(d_rope: int) -> Shaped[Tensor, " d_rope"]:
    """The order of rows that puts the first of each pair into the first half.

    >>> halves_from_neighbours(6)
    tensor([0, 2, 4, 1, 3, 5])
    """
    return torch.cat([torch.arange(0, d_rope, 2), torch.arange(1, d_rope, 2)])
