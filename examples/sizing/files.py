"""Configurations from a file: a `config.json` as transformers writes it, or sizes under the names that `models/` has.

{"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, ...}
{"d_model": 1024, "n_layers": 24, "n_heads": 16, "n_kv_heads": 4, "vocab": 32000}
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from models.pretrained import deepseek, experts, gpt2, llama

from .described import OPTIONS, described
from .mistake import Refused
from .published import NAMED, Config


def by_model(make: Callable[[Mapping[str, Any]], Any]) -> Callable[[Mapping[str, Any]], Config]:
    """Where `models.pretrained` makes the model at once, its configuration is asked for it."""

    def read(config: Mapping[str, Any]) -> Config:
        with torch.device("meta"):
            return make(config).config

    return read


READERS: dict[str, Callable[[Mapping[str, Any]], Config]] = {
    "gpt2": gpt2.our_config,
    "llama": by_model(llama.llama),
    "mistral": by_model(llama.mistral),
    "qwen3": by_model(llama.qwen3),
    "mixtral": by_model(experts.mixtral),
    "qwen3_moe": by_model(experts.qwen3_moe),
    "deepseek_v2": deepseek.our_config,
    "deepseek_v3": deepseek.our_config,
}
SIZES = (
    *("vocab_size", "hidden_size", "intermediate_size", "moe_intermediate_size", "num_hidden_layers", "sliding_window"),
    *("num_attention_heads", "num_key_value_heads", "head_dim", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
    *("kv_lora_rank", "q_lora_rank", "num_local_experts", "num_experts", "num_experts_per_tok", "n_routed_experts"),
    *("n_shared_experts", "n_group", "topk_group", "n_embd", "n_head", "n_layer", "n_inner", "n_positions"),
)
"""Fields of transformers that are sizes where they are not null."""


def found(text: str) -> Config:
    """What a name, a file, or a folder with a `config.json` stands for."""
    if text in NAMED:
        return NAMED[text]
    path = Path(text)
    if path.is_dir():
        path = path / "config.json"
    if not path.is_file():
        raise Refused(f"{text} is no file, and none of {', '.join(NAMED)}")
    return read(path)


def read(path: Path) -> Config:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # ValueError: neither text nor JSON
        raise Refused(f"{path} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise Refused(f"{path} holds no object: fields and sizes are needed")
    try:
        return ours(config) if "model_type" not in config else theirs(config)
    except (Refused, ValueError) as error:
        raise Refused(f"{path}: {error}") from error


def theirs(config: dict[str, Any]) -> Config:
    """A configuration of transformers, read by `models.pretrained`."""
    kind = config["model_type"]
    if kind not in READERS:
        raise Refused(f"model_type = {kind!r} is not covered; covered are {', '.join(READERS)}")
    refuse_no_sizes({name: config[name] for name in SIZES if config.get(name) is not None})
    return READERS[kind](config)


def ours(config: dict[str, Any]) -> Config:
    """Sizes alone, as options give them."""
    fields = [field for field, _ in OPTIONS.values()]
    strange = config.keys() - {*fields}
    if strange:
        raise Refused(f"{min(strange)} is no field; there are model_type, or {', '.join(fields)}")
    refuse_no_sizes(config)
    return described(config)


def refuse_no_sizes(sizes: Mapping[str, Any]) -> None:
    for name, size in sizes.items():
        if type(size) is not int or size < (name == "n_dense_layers" or 1):
            raise Refused(f"{name} = {size!r} is no size: a positive whole number")
