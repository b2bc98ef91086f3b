"""Draws the gallery: six models, each as one page, and one of them in other ways.

    python examples/gallery/draw.py

Models are built on the meta device: no weights are made, and Mixtral's 47 billion parameters cost nothing.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

import shapeflow as sf

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parents[1])]  # unet.py beside this file; models/ of the checkout


@dataclass(frozen=True)
class Picture:
    """How to build a model, its inputs, and how it is drawn."""

    build: Callable[[], nn.Module]
    inputs: dict[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


def toy_gpt() -> nn.Module:
    from models import gpt

    return gpt.toy()


def transformer() -> nn.Module:
    from models import transformer

    return transformer.Transformer(transformer.BASE)


def resnet50() -> nn.Module:
    from torchvision import models

    return models.resnet50()


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config())


def unet() -> nn.Module:
    from unet import UNet

    return UNet()


def mixtral() -> nn.Module:
    from models import mixtral

    return mixtral.Mixtral(mixtral.MIXTRAL_8X7B)


PICTURES = {
    "toy_gpt": Picture(toy_gpt),
    "toy_gpt_dark": Picture(toy_gpt, options={"theme": "dark", "sizes": {"B": 2, "T": 5}}),
    "toy_gpt_attention": Picture(toy_gpt, options={"depth": 3}),
    "transformer": Picture(transformer),
    "resnet50": Picture(resnet50, {"x": "B 3 H W"}),
    "gpt2": Picture(gpt2, {"input_ids": "B T:int64"}),
    "unet": Picture(unet, {"image": "B 3 16*h 16*w"}),
    "mixtral": Picture(mixtral),
}


def traced(picture: Picture) -> sf.Trace:
    with torch.device("meta"):
        model = picture.build().eval()
    return sf.trace(model, **picture.inputs)


def main() -> None:
    for name, picture in PICTURES.items():
        trace = traced(picture)
        for suffix in ("dot", "svg"):
            trace.save(FOLDER / f"{name}.{suffix}", **picture.options)
        print(FOLDER / f"{name}.svg")


if __name__ == "__main__":
    main()
