"""Which models the zoo traces, and with which specs: torch's own, torchvision's, timm's and transformers'.

>>> [case.spec for case in torchvision_cases() if case.name == "resnet50"]
['B 3 224 224', 'B 3 H W']
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial

from case import Case
from families import FAMILIES
from torch import nn

TIMM_MODELS = 200
TIMM_SEED = 0
FIXED_SIZE = ("vit_",)
"""torchvision's names that take images of one size only, whatever they are built for."""


def nn_cases() -> Iterator[Case]:
    """torch's own modules for sequences."""
    yield Case("nn", "Transformer", partial(nn.Transformer, batch_first=True), ("B S 512", "B T 512"))
    yield Case("nn", "Transformer seq first", nn.Transformer, ("S B 512", "T B 512"))
    layer = partial(nn.TransformerEncoderLayer, 64, 4, batch_first=True)
    yield Case("nn", "TransformerEncoderLayer", layer, ("B T 64",))
    attention = partial(nn.MultiheadAttention, 64, 4, batch_first=True)
    yield Case("nn", "MultiheadAttention", attention, ("B T 64", "B S 64", "B S 64"))
    for kind in (nn.RNN, nn.LSTM, nn.GRU):
        yield Case("nn", kind.__name__, partial(kind, 8, 16, 2, batch_first=True), ("B T 8",))
        both_ways = partial(kind, 8, 16, 2, bidirectional=True)
        yield Case("nn", f"{kind.__name__} both ways", both_ways, ("T B 8",))
    yield Case("nn", "LSTM projected", partial(nn.LSTM, 8, 16, proj_size=4), ("T B 8",))
    yield Case("nn", "GRU with a state", partial(nn.GRU, 8, 16, batch_first=True), ("B T 8", "1 B 16"))
    yield Case("nn", "LSTMCell", partial(nn.LSTMCell, 8, 16), ("B 8",))
    yield Case("nn", "GRUCell", partial(nn.GRUCell, 8, 16), ("B 8",))


def torchvision_cases() -> Iterator[Case]:
    """Every model for classification, segmentation and detection."""
    from torchvision import models

    for name in models.list_models(module=models):
        size = 299 if name == "inception_v3" else 224
        build = partial(models.get_model, name, weights=None)
        yield Case("torchvision", name, build, (f"B 3 {size} {size}",))
        if not name.startswith(FIXED_SIZE):
            yield Case("torchvision", name, build, ("B 3 H W",))
    for name in models.list_models(module=models.segmentation):
        build = partial(models.get_model, name, weights=None, weights_backbone=None)
        yield Case("torchvision", name, build, ("B 3 224 224",))
        yield Case("torchvision", name, build, ("B 3 H W",))
    for name in models.list_models(module=models.detection):
        build = partial(models.get_model, name, weights=None, weights_backbone=None)
        yield Case("torchvision", name, build, (["3 H W"],))
        yield Case("torchvision", name, build, (["3 H W", "3 U V"],))


def timm_cases() -> Iterator[Case]:
    """Architectures by a fixed seed, at their own size; at any size too where timm says that they take one."""
    import timm

    names = sorted(timm.list_models())
    for name in sorted(random.Random(TIMM_SEED).sample(names, TIMM_MODELS)):
        config = timm.get_pretrained_cfg(name, allow_unregistered=False)
        build = partial(timm.create_model, name, pretrained=False)
        channels, height, width = config.input_size if config is not None else (3, 224, 224)
        yield Case("timm", name, build, (f"B {channels} {height} {width}",))
        if config is not None and not config.fixed_input_size:
            yield Case("timm", name, build, (f"B {channels} H W",))


def transformers_cases() -> Iterator[Case]:
    """Each of the families, with its own inputs."""
    return (family.case() for family in FAMILIES)


GROUPS: dict[str, Callable[[], Iterator[Case]]] = {
    "nn": nn_cases,
    "torchvision": torchvision_cases,
    "timm": timm_cases,
    "transformers": transformers_cases,
}
