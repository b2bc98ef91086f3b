"""T5 of `transformers` (`T5ForConditionalGeneration`, versions 1.0 and 1.1) as our `models.t5.T5`."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..t5 import T5, T5Config
from .checkpoint import Weights, load, option, required

# How they name the feed-forward layer, and whether ours is gated.
GATED = {"relu": False, "gated-gelu": True}

# One projection of attention: our name, their name.
PROJECTIONS = {"q": "q", "k": "k", "v": "v", "out": "o"}

# The first checkpoints hold distances for cross-attention too, where neither theirs nor ours reads any.
UNUSED = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"

Network = Callable[[Weights, str, str], dict[str, Tensor]]


def convert(config: Mapping[str, Any], weights: Weights) -> T5:
    """The model with all of the weights; it has a head of its own where the checkpoint holds one that differs."""
    ours, tied = tables(weights)
    ours_config = our_config(config, tied=tied)
    network = partial(feed_forward, gated=ours_config.gated)
    ours |= stack(weights, "encoder", ours_config.n_encoder_layers, network)
    ours |= stack(weights, "decoder", ours_config.n_decoder_layers, network)
    weights.drop(UNUSED)
    model = T5(ours_config)
    load(model, ours)
    return model


def tables(weights: Weights) -> tuple[dict[str, Tensor], bool]:
    """The embedding, with the head where it is another matrix; and whether it is not."""
    table = weights.take("shared.weight")
    for name in ("encoder", "decoder"):
        weights.drop_copy(f"{name}.embed_tokens.weight", table)
    head = weights.take("lm_head.weight") if "lm_head.weight" in weights else table
    tied = torch.equal(head, table)
    return {"tokens.table.weight": table} | ({} if tied else {"head.weight": head}), tied


def our_config(config: Mapping[str, Any], *, tied: bool) -> T5Config:
    """Raises ValueError for an option that our model lacks.

    Version 1.1 does not scale before the head: a newer library says so in a field of its own, an older one by untying.
    """
    n_layers = required(config, "num_layers")
    return T5Config(
        vocab=required(config, "vocab_size"),
        d_model=required(config, "d_model"),
        d_head=required(config, "d_kv"),
        d_ff=required(config, "d_ff"),
        n_heads=required(config, "num_heads"),
        n_encoder_layers=n_layers,
        n_decoder_layers=config.get("num_decoder_layers") or n_layers,
        n_buckets=config.get("relative_attention_num_buckets", 32),
        max_distance=config.get("relative_attention_max_distance", 128),
        gated=option(config, "feed_forward_proj", GATED, default="relu"),
        tied=tied,
        scaled=config.get("scale_decoder_outputs", config.get("tie_word_embeddings", True)),
        eps=config.get("layer_norm_epsilon", 1e-6),
    )


def stack(weights: Weights, name: str, n_layers: int, network: Network) -> dict[str, Tensor]:
    """All blocks of one side, its last norm, and the biases of distances, which they keep in block 0.

    `network(weights, theirs, ours)` takes one feed-forward layer, `theirs` and `ours` are what its names begin with.
    """
    bias = f"{name}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    taken = {
        f"{name}.bias.table.weight": weights.take(bias),
        f"{name}.norm.weight": weights.take(f"{name}.final_layer_norm.weight"),
    }
    sublayers = {"attn": "SelfAttention"} | ({"cross": "EncDecAttention"} if name == "decoder" else {})
    for layer in range(n_layers):
        theirs, ours = f"{name}.block.{layer}.layer.", f"{name}.blocks.{layer}."
        for place, (our, their) in enumerate(sublayers.items()):
            taken[f"{ours}norm{place + 1}.weight"] = weights.take(f"{theirs}{place}.layer_norm.weight")
            for ours_part, theirs_part in PROJECTIONS.items():
                taken[f"{ours}{our}.{ours_part}.weight"] = weights.take(f"{theirs}{place}.{their}.{theirs_part}.weight")
        last = len(sublayers)
        taken[f"{ours}norm{last + 1}.weight"] = weights.take(f"{theirs}{last}.layer_norm.weight")
        taken |= network(weights, f"{theirs}{last}.", f"{ours}ffn.")
    return taken


def feed_forward(weights: Weights, theirs: str, ours: str, *, gated: bool) -> dict[str, Tensor]:
    parts = {"gate": "wi_0", "up": "wi_1", "down": "wo"} if gated else {"up": "wi", "down": "wo"}
    return {
        f"{ours}{our}.weight": weights.take(f"{theirs}DenseReluDense.{their}.weight") for our, their in parts.items()
    }
