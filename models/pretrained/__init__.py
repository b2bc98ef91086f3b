"""Weights that were made elsewhere: models of the `transformers` library, and the checkpoints it writes.

    from models.pretrained import from_transformers

    model = from_transformers(GPT2LMHeadModel.from_pretrained("gpt2"))  # an object of that library
    model = from_transformers("path/to/checkpoint")  # a folder: config.json beside *.safetensors or pytorch_model.bin

Nothing here imports `transformers`. What it calls dropout is left out: the models that come back compute what theirs do
in eval mode.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

import torch.nn as nn

from .checkpoint import Weights, read_folder, read_model

# Their `model_type`, and the file of this folder whose `convert(config, weights)` makes our model of it.
CONVERTERS = {
    "bert": "bert",
    "deepseek_v2": "deepseek",
    "deepseek_v3": "deepseek",
    "gpt2": "gpt2",
    "gpt_oss": "experts",
    "llama": "llama",
    "mistral": "llama",
    "mixtral": "experts",
    "qwen3": "llama",
    "qwen3_moe": "experts",
    "switch_transformers": "switch",
    "t5": "t5",
}


def from_transformers(source: Any) -> nn.Module:
    """Our model with the weights of `source`: a model of `transformers`, or the folder that holds its checkpoint.

    The weights are copies, in the dtype they had. Raises ValueError for what is not covered: a `model_type`, a field of
    the config, a tensor that our model has no place for, one that it misses.
    """
    config, tensors = read_folder(Path(source)) if isinstance(source, (str, Path)) else read_model(source)
    kind = config.get("model_type")
    if kind not in CONVERTERS:
        raise ValueError(f"model_type = {kind!r} is not covered; covered are {', '.join(sorted(CONVERTERS))}")
    weights = Weights(tensors)
    model = import_module(f".{CONVERTERS[kind]}", __name__).convert(config, weights)
    weights.check_all_taken()
    return model
