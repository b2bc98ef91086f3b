"""A checkpoint as two plain values: the config, a mapping, and the weights, each of which is taken exactly once.

A converter asks for what it knows, and what it did not ask for is an error:

>>> config = {"model_type": "gpt2", "activation_function": "gelu_new"}
>>> option(config, "activation_function", {"gelu": "none", "gelu_new": "tanh"})
'tanh'
>>> weights = Weights({"wte.weight": torch.eye(2), "score.weight": torch.eye(3)})
>>> weights.take("wte.weight").shape
torch.Size([2, 2])
>>> weights.check_all_taken()
Traceback (most recent call last):
ValueError: the model has no place for score.weight of the checkpoint
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn as nn
from jaxtyping import Shaped
from torch import Tensor

MISSING = object()


def read_model(source: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Config and copies of the weights of a model in memory: anything with `.config.to_dict()` and `.state_dict()`."""
    if not (hasattr(source, "config") and hasattr(source, "state_dict")):
        raise ValueError(f"a model of transformers or the folder of its checkpoint is needed, not {type(source)}")
    return source.config.to_dict(), {name: tensor.detach().clone() for name, tensor in source.state_dict().items()}


def read_folder(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Config and weights of a checkpoint on disk, in one file or in shards that an index lists."""
    if not (folder / "config.json").is_file():
        raise ValueError(f"{folder} holds no checkpoint: there is no config.json in it")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return config, {name: tensor for file in weight_files(folder) for name, tensor in read_weights(file).items()}


def weight_files(folder: Path) -> list[Path]:
    """The files that hold the weights; where both formats are there, safetensors."""
    for stem in ("model.safetensors", "pytorch_model.bin"):
        index = folder / f"{stem}.index.json"
        if index.is_file():
            shards = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
            return [folder / shard for shard in sorted(set(shards))]
        if (folder / stem).is_file():
            return [folder / stem]
    raise ValueError(f"{folder} holds no weights: neither model.safetensors nor pytorch_model.bin is in it")


def read_weights(file: Path) -> Mapping[str, Tensor]:
    """One file of weights. A pickle may hold nothing but tensors: it is never executed."""
    if file.suffix == ".safetensors":
        from safetensors.torch import load_file  # comes with transformers, and only folders need it

        return load_file(file)
    return torch.load(file, map_location="cpu", weights_only=True)


def option(config: Mapping[str, Any], field: str, covered: Mapping[Any, Any], *, default: Any = MISSING) -> Any:
    """What our model calls the value of a field that takes few values; `default` is theirs, where the field is absent.

    Raises ValueError for a value that our model has nothing for.
    """
    value = required(config, field) if default is MISSING else config.get(field, default)
    for theirs, ours in covered.items():  # compared one by one, as a value may be a list or a mapping
        if theirs == value:
            return ours
    names = ", ".join(repr(theirs) for theirs in covered)
    raise ValueError(f"{field} = {value!r} of {config.get('model_type')} is not covered; covered are {names}")


def required(config: Mapping[str, Any], field: str) -> Any:
    """A field that the checkpoint's config must have."""
    if field not in config:
        raise ValueError(f"the config of {config.get('model_type')} has no field {field}")
    return config[field]


class Weights:
    """The tensors of a checkpoint by name, which a converter takes one by one."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.left = dict(tensors)

    def __contains__(self, name: str) -> bool:
        return name in self.left

    def take(self, name: str) -> Shaped[Tensor, "..."]:
        """The tensor of this name, which nobody can take again."""
        if name not in self.left:
            raise ValueError(f"the checkpoint has no {name}, or it was taken before")
        return self.left.pop(name)

    def stack(self, *names: str) -> Shaped[Tensor, "..."]:
        """Several tensors as one, along their first axis: projections that our model keeps packed."""
        return torch.cat([self.take(name) for name in names])

    def drop_copy(self, name: str, original: Shaped[Tensor, "..."]) -> None:
        """Leave out a tensor that is there under a second name, as tied weights are; a checkpoint may lack it."""
        if name in self.left and not torch.equal(self.take(name), original):
            raise ValueError(f"{name} should equal the weight it is tied to, but the checkpoint holds another")

    def drop(self, name: str) -> None:
        """Leave out a tensor that the model computes itself, such as a mask; a checkpoint may lack it."""
        self.left.pop(name, None)

    def check_all_taken(self) -> None:
        """Raises ValueError with the names of what nobody took."""
        if self.left:
            raise ValueError(f"the model has no place for {', '.join(sorted(self.left))} of the checkpoint")


def load(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Give every parameter of `model` its tensor, by our names; the tensors themselves become the parameters.

    Raises ValueError where the names are not those of the model, RuntimeError where shapes differ (torch names them).
    """
    names = set(model.state_dict())
    if missing := names - set(tensors):
        raise ValueError(f"the checkpoint gives nothing for {', '.join(sorted(missing))} of our model")
    if unknown := set(tensors) - names:
        raise ValueError(f"our model has no {', '.join(sorted(unknown))}")
    model.load_state_dict(dict(tensors), assign=True)
