"""GPT-2 of `transformers` (`GPT2Model`, `GPT2LMHeadModel`) as our `models.gpt.GPT`."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ..gpt import GPT, GPTConfig
from .checkpoint import Weights, load, option, required

# The activation: their name, our name.
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}

# Parts of a block: our name, their name.
NORMS = {"ln1": "ln_1", "ln2": "ln_2"}
PROJECTIONS = {"attn.qkv": "attn.c_attn", "attn.out": "attn.c_proj", "ffn.up": "mlp.c_fc", "ffn.down": "mlp.c_proj"}


def convert(config: Mapping[str, Any], weights: Weights) -> GPT:
    """The model with all of the weights; the logits come from the embedding table, as theirs do."""
    model = GPT(our_config(config))
    prefix = "transformer." if "transformer.wte.weight" in weights else ""
    ours = {
        "tokens.table.weight": weights.take(f"{prefix}wte.weight"),
        "positions.table.weight": weights.take(f"{prefix}wpe.weight"),
    }
    for part in ("weight", "bias"):
        ours[f"norm.{part}"] = weights.take(f"{prefix}ln_f.{part}")
    for layer in range(model.config.n_layers):
        ours |= block(weights, f"{prefix}h.{layer}.", f"blocks.{layer}.")
    weights.drop_copy("lm_head.weight", ours["tokens.table.weight"])
    load(model, ours)
    return model


def our_config(config: Mapping[str, Any]) -> GPTConfig:
    """Raises ValueError for an option that our model lacks."""
    option(config, "scale_attn_weights", {True: True}, default=True)
    option(config, "scale_attn_by_inverse_layer_idx", {False: False}, default=False)
    option(config, "add_cross_attention", {False: False}, default=False)
    option(config, "tie_word_embeddings", {True: True}, default=True)
    d_model = required(config, "n_embd")
    return GPTConfig(
        vocab=required(config, "vocab_size"),
        max_len=required(config, "n_positions"),
        d_model=d_model,
        n_heads=required(config, "n_head"),
        d_ff=config.get("n_inner") or 4 * d_model,
        n_layers=required(config, "n_layer"),
        bias=True,
        tied=True,
        activation=option(config, "activation_function", ACTIVATIONS, default="gelu_new"),
        eps=config.get("layer_norm_epsilon", 1e-5),
    )


def block(weights: Weights, theirs: str, ours: str) -> dict[str, Tensor]:
    """One decoder block. Their projections multiply from the right, so that a weight is stored as (inputs, outputs)."""
    taken = {}
    for our, their in NORMS.items():
        for part in ("weight", "bias"):
            taken[f"{ours}{our}.{part}"] = weights.take(f"{theirs}{their}.{part}")
    for our, their in PROJECTIONS.items():
        taken[f"{ours}{our}.weight"] = weights.take(f"{theirs}{their}.weight").T.contiguous()
        taken[f"{ours}{our}.bias"] = weights.take(f"{theirs}{their}.bias")
    for mask in ("attn.bias", "attn.masked_bias"):  # the causal mask, which checkpoints held at first
        weights.drop(theirs + mask)
    return taken
