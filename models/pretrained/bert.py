"""BERT of `transformers` (`BertModel`, `BertForMaskedLM`, `BertForPreTraining`) as ours of `models.bert`."""

from collections.abc import Mapping
from typing import Any

import torch.nn as nn
from torch import Tensor

from ..bert import Bert, BertConfig, BertForMaskedTokens, BertForPretraining
from .checkpoint import Weights, load, option, required

# The activation: their name, our name.
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}

# Layers with a weight and a bias: our name, their name.
BLOCK = {
    "attn.out": "attention.output.dense",
    "ln1": "attention.output.LayerNorm",
    "ffn.up": "intermediate.dense",
    "ffn.down": "output.dense",
    "ln2": "output.LayerNorm",
}
MASKED = {"masked.dense": "transform.dense", "masked.norm": "transform.LayerNorm"}
TABLES = {
    "tokens": "word_embeddings",
    "positions": "position_embeddings",
    "segments": "token_type_embeddings",
}


def convert(config: Mapping[str, Any], weights: Weights) -> nn.Module:
    """The model with the heads that the checkpoint has."""
    ours_config = our_config(config)
    theirs = "bert." if "bert.embeddings.word_embeddings.weight" in weights else ""
    if "cls.seq_relationship.weight" in weights:
        model, ours = BertForPretraining(ours_config), "bert."
    elif "cls.predictions.bias" in weights:
        model, ours = BertForMaskedTokens(ours_config), ""
    else:
        model, ours = Bert(ours_config), ""
    taken = encoder(weights, theirs, f"{ours}encoder.", ours_config.n_layers)
    if not isinstance(model, BertForMaskedTokens):
        taken |= pair(weights, f"{theirs}pooler.dense", f"{ours}pooler.dense")
    if not isinstance(model, Bert):
        taken |= masked_tokens(weights, taken[f"{ours}encoder.tokens.table.weight"])
    if isinstance(model, BertForPretraining):
        taken |= pair(weights, "cls.seq_relationship", "following.dense")
    load(model, taken)
    return model


def our_config(config: Mapping[str, Any]) -> BertConfig:
    """Raises ValueError for an option that our model lacks."""
    option(config, "is_decoder", {False: False}, default=False)
    option(config, "position_embedding_type", {"absolute": "absolute"}, default="absolute")
    option(config, "tie_word_embeddings", {True: True}, default=True)
    return BertConfig(
        vocab=required(config, "vocab_size"),
        max_len=required(config, "max_position_embeddings"),
        n_segments=required(config, "type_vocab_size"),
        d_model=required(config, "hidden_size"),
        n_heads=required(config, "num_attention_heads"),
        d_ff=required(config, "intermediate_size"),
        n_layers=required(config, "num_hidden_layers"),
        activation=option(config, "hidden_act", ACTIVATIONS, default="gelu"),
        eps=config.get("layer_norm_eps", 1e-12),
    )


def encoder(weights: Weights, theirs: str, ours: str, n_layers: int) -> dict[str, Tensor]:
    """Embeddings and blocks; our attention keeps queries, keys and values in one projection."""
    taken = {}
    for our, their in TABLES.items():
        taken[f"{ours}{our}.table.weight"] = weights.take(f"{theirs}embeddings.{their}.weight")
    weights.drop(f"{theirs}embeddings.position_ids")  # the numbers from 0 on, which checkpoints held at first
    taken |= pair(weights, f"{theirs}embeddings.LayerNorm", f"{ours}norm")
    for layer in range(n_layers):
        their_block, our_block = f"{theirs}encoder.layer.{layer}.", f"{ours}blocks.{layer}."
        for part in ("weight", "bias"):
            names = [f"{their_block}attention.self.{name}.{part}" for name in ("query", "key", "value")]
            taken[f"{our_block}attn.qkv.{part}"] = weights.stack(*names)
        for our, their in BLOCK.items():
            taken |= pair(weights, f"{their_block}{their}", f"{our_block}{our}")
    return taken


def masked_tokens(weights: Weights, table: Tensor) -> dict[str, Tensor]:
    """The head for masked tokens; its table and its bias may be there a second time under the name of a layer."""
    taken = {"masked.bias": weights.take("cls.predictions.bias")}
    weights.drop_copy("cls.predictions.decoder.weight", table)
    weights.drop_copy("cls.predictions.decoder.bias", taken["masked.bias"])
    for our, their in MASKED.items():
        taken |= pair(weights, f"cls.predictions.{their}", our)
    return taken


def pair(weights: Weights, theirs: str, ours: str) -> dict[str, Tensor]:
    """Weight and bias of one layer. The first BERT checkpoints call those of a norm gamma and beta."""
    old = {"weight": "gamma", "bias": "beta"}
    names = {part: old[part] if f"{theirs}.{old[part]}" in weights else part for part in old}
    return {f"{ours}.{part}": weights.take(f"{theirs}.{name}") for part, name in names.items()}
