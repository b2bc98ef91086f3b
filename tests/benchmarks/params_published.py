"""Published parameter counts through `sf.params`, total and active, on transformers' own models on the meta device.

    python tests/benchmarks/params_published.py [name ...]

One line a model: what is published and what is counted, with both conventions for active parameters, and the seconds
that counting and tracing took. The exit status is 1 where a number differs. A buffer of biases that DeepSeek-V3's
router adds for its choice is part of the published total.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

import shapeflow as sf

ROWS = {
    row["name"]: row for row in json.loads((Path(__file__).parents[1] / "models" / "parameter_counts.json").read_text())
}
GPT2 = {"gpt2": (768, 12, 12), "gpt2-medium": (1024, 24, 16), "gpt2-large": (1280, 36, 20), "gpt2-xl": (1600, 48, 25)}
LLAMA_3 = {"vocab_size": 128256, "num_key_value_heads": 8}
QWEN_3 = {"vocab_size": 151936, "head_dim": 128, "tie_word_embeddings": False}

CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: ("GPT2Config", {"n_embd": d, "n_layer": n, "n_head": h}) for name, (d, n, h) in GPT2.items()},
    "bert-base-uncased": ("BertConfig", {}),
    "bert-large-uncased": (
        "BertConfig",
        {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
    ),
    "t5-small": ("T5Config", {}),
    "llama-2-7b": ("LlamaConfig", {}),
    "llama-3-8b": ("LlamaConfig", {**LLAMA_3, "intermediate_size": 14336}),
    "llama-3-70b": (
        "LlamaConfig",
        {
            **LLAMA_3,
            "hidden_size": 8192,
            "intermediate_size": 28672,
            "num_hidden_layers": 80,
            "num_attention_heads": 64,
        },
    ),
    "mistral-7b-v0.1": ("MistralConfig", {}),
    "mixtral-8x7b": ("MixtralConfig", {}),
    "switch-base-8": (
        "SwitchTransformersConfig",
        {
            "d_ff": 3072,
            "num_layers": 12,
            "num_decoder_layers": 12,
            "num_sparse_encoder_layers": 6,
            "num_sparse_decoder_layers": 6,
            "num_experts": 8,
        },
    ),
    "deepseek-v2": (
        "DeepseekV2Config",
        {
            "vocab_size": 102400,
            "hidden_size": 5120,
            "intermediate_size": 12288,
            "moe_intermediate_size": 1536,
            "num_hidden_layers": 60,
            "num_attention_heads": 128,
            "num_key_value_heads": 128,
            "n_shared_experts": 2,
            "n_routed_experts": 160,
            "num_experts_per_tok": 6,
            "first_k_dense_replace": 1,
            "n_group": 8,
            "topk_group": 3,
            "topk_method": "group_limited_greedy",
            "q_lora_rank": 1536,
            "tie_word_embeddings": False,
        },
    ),
    "deepseek-v3": ("DeepseekV3Config", {}),
    "qwen3-8b": (
        "Qwen3Config",
        {
            **QWEN_3,
            "hidden_size": 4096,
            "intermediate_size": 12288,
            "num_hidden_layers": 36,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
        },
    ),
    "qwen3-30b-a3b": (
        "Qwen3MoeConfig",
        {
            **QWEN_3,
            "hidden_size": 2048,
            "moe_intermediate_size": 768,
            "num_hidden_layers": 48,
            "num_attention_heads": 32,
            "num_key_value_heads": 4,
            "num_experts": 128,
            "num_experts_per_tok": 8,
        },
    ),
    "qwen3-235b-a22b": (
        "Qwen3MoeConfig",
        {
            **QWEN_3,
            "hidden_size": 4096,
            "moe_intermediate_size": 1536,
            "num_hidden_layers": 94,
            "num_attention_heads": 64,
            "num_key_value_heads": 4,
            "num_experts": 128,
            "num_experts_per_tok": 8,
        },
    ),
    "gpt-oss-20b": ("GptOssConfig", {"num_hidden_layers": 24, "num_local_experts": 32}),
    "gpt-oss-120b": ("GptOssConfig", {"num_hidden_layers": 36, "num_local_experts": 128}),
}


def built(name: str) -> nn.Module:
    """The model on the meta device, with the head that the published count includes."""
    kind, sizes = CONFIGS[name]
    config = getattr(transformers, kind)(**sizes)
    makers = {
        "BertConfig": "AutoModel",
        "T5Config": "AutoModelForSeq2SeqLM",
        "SwitchTransformersConfig": "AutoModelForSeq2SeqLM",
    }
    with torch.device("meta"):
        return getattr(transformers, makers.get(kind, "AutoModelForCausalLM")).from_config(config).eval()


def check(name: str) -> bool:
    """Whether all published numbers of a row come out."""
    row, model = ROWS[name], built(name)
    start = time.perf_counter()
    report = sf.params(model)
    total = report.total + (58 * 256 if name == "deepseek-v3" else 0)
    counted = time.perf_counter() - start
    agrees = total == row["total"]
    line = f"{name:20} {row['total']:>15,} {total:>15,} {counted:6.2f} s"
    if "active" in row:
        start = time.perf_counter()
        active, without = report.active, report.active_no_input_embedding
        agrees &= active == row["active"] and without == row.get("active_no_input_embedding", without)
        line += f"  active {row['active']:>14,} {active:>14,}, without input embedding {without:>14,}"
        line += f" {time.perf_counter() - start:6.1f} s"
    print(line + ("" if agrees else "  DIFFERS"), flush=True)
    return agrees


def main(names: list[str]) -> int:
    agree = [check(name) for name in names or CONFIGS]  # all of them, also behind one that differs
    return int(not all(agree))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
