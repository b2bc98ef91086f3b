"""One formula, three sizes each, against torch's own counter and hooks on real tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import shapeflow as sf
from tests.cost.counters import counted, kept, repeatable

transformers = pytest.importorskip("transformers")
torchvision = pytest.importorskip("torchvision")


@dataclass
class Case:
    make: Callable[[], nn.Module]
    specs: dict[str, str]
    sizes: list[dict[str, int]]
    least_kept: float = 1.0  # what we count of what is kept; below 1 where oneDNN pads
    train: bool = True
    made: dict[str, Any] = field(default_factory=dict)


def ids(*shape: int) -> torch.Tensor:
    return torch.randint(0, 37, shape)


def text(**sizes: int) -> dict[str, torch.Tensor]:
    return {"input_ids": ids(sizes["B"], sizes["T"])}


class Block(nn.Sequential):
    def __init__(self, before: int, after: int) -> None:
        super().__init__(
            nn.Conv2d(before, after, 3, padding=1),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
            nn.Conv2d(after, after, 3, padding=1, groups=2),
            nn.ReLU(),
        )


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.inner = Block(3, 8), Block(8, 16)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.out = Block(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skipped = self.down(x)
        inner = self.inner(functional.max_pool2d(skipped, 2))
        return self.out(torch.cat([skipped, self.up(inner)], dim=1))


def gpt2(**more: Any) -> nn.Module:
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=37, n_embd=24, n_layer=2, n_head=3, n_positions=64, **more)
    )


def mixtral(experts: str) -> nn.Module:
    config = transformers.MixtralConfig(
        vocab_size=37, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, num_local_experts=5, num_experts_per_tok=2,
    )  # fmt: skip
    model = transformers.MixtralModel(config)
    model.set_experts_implementation(experts)
    return model


BT = {"input_ids": "B T:int64"}
TEXTS = [{"B": 2, "T": 5}, {"B": 3, "T": 11}, {"B": 1, "T": 29}]
PAIRS = [{"B": 2, "S": 5, "T": 3}, {"B": 3, "S": 7, "T": 11}, {"B": 1, "S": 13, "T": 1}]
CASES = {
    "gpt2": Case(gpt2, BT, TEXTS),
    "gpt2_eager": Case(lambda: gpt2(attn_implementation="eager"), BT, TEXTS),
    "bert": Case(
        lambda: transformers.BertModel(
            transformers.BertConfig(
                vocab_size=37, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3
            )
        ),
        BT,
        TEXTS,
    ),
    "t5": Case(
        lambda: transformers.T5Model(
            transformers.T5Config(vocab_size=37, d_model=24, d_kv=6, d_ff=40, num_layers=2, num_heads=4)
        ),
        {"input_ids": "B S:int64", "decoder_input_ids": "B T:int64"},
        PAIRS,
    ),
    "transformer": Case(
        lambda: nn.Transformer(24, 4, 2, 2, 40, batch_first=True), {"src": "B S 24", "tgt": "B T 24"}, PAIRS
    ),
    "mixtral": Case(lambda: mixtral("batched_mm"), BT, TEXTS),
    "unet": Case(
        UNet, {"x": "B 3 H W"}, [{"B": 2, "H": 8, "W": 12}, {"B": 1, "H": 20, "W": 6}, {"B": 3, "H": 2, "W": 4}]
    ),
    "resnet50": Case(
        lambda: torchvision.models.resnet50(),
        {"x": "B 3 H W"},
        [{"B": 2, "H": 32, "W": 64}, {"B": 1, "H": 65, "W": 97}, {"B": 3, "H": 40, "W": 33}],
    ),
    "vit": Case(lambda: torchvision.models.vit_b_16(), {"x": "B 3 224 224"}, [{"B": 1}, {"B": 2}, {"B": 3}]),
}


def real(case: Case, sizes: dict[str, int]) -> dict[str, torch.Tensor]:
    """Tensors as the specs say."""
    found = {}
    for name, spec in case.specs.items():
        dims, _, dtype = spec.partition(":")
        shape = [sizes[dim] if dim in sizes else int(dim) for dim in dims.split()]
        found[name] = ids(*shape) if dtype else torch.randn(shape)
    return found


def model_of(case: Case, *, train: bool) -> nn.Module:
    if "model" not in case.made:
        with repeatable():
            case.made["model"] = case.make()
    return case.made["model"].train(train)


def cost_of(case: Case, *, train: bool) -> sf.Cost:
    if train not in case.made:
        case.made[train] = sf.cost(model_of(case, train=train), **case.specs)
    return case.made[train]


@pytest.mark.parametrize("name", CASES)
def test_operations_are_those_of_torchs_counter(name: str) -> None:
    case = CASES[name]
    cost = cost_of(case, train=False)
    assert cost.unknown == ()
    for sizes in (
        case.sizes if name != "vit" else case.sizes[:1]
    ):  # its three sizes are in the benchmark: 35 GFLOPs each
        model, inputs = model_of(case, train=False), real(case, sizes)
        with repeatable():
            expected = counted(lambda model=model, inputs=inputs: model(**inputs))
        assert (cost.flops.at(**sizes), cost.backward_flops.at(**sizes)) == expected
        assert 2 * cost.macs.at(**sizes) == expected[0]


@pytest.mark.parametrize("train", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("name", CASES)
def test_activations_are_what_autograd_keeps(name: str, train: bool) -> None:
    case = CASES[name]
    cost = cost_of(case, train=train)
    for sizes in case.sizes[:2] if name != "vit" else case.sizes[:1]:
        model, inputs = model_of(case, train=train), real(case, sizes)
        with repeatable():
            expected = kept(model, lambda model=model, inputs=inputs: model(**inputs))
        assert cost.activation_bytes.at(**sizes) == pytest.approx(expected, rel=0.02)


def test_a_three_sized_vision_transformer_is_its_formula() -> None:
    """ViT-B/16 by hand: patches, 12 layers of four projections, two products and a feed-forward, the head."""
    cost = cost_of(CASES["vit"], train=False)
    tokens, width = 14 * 14 + 1, 768
    layer = tokens * (2 * 4 * width * width + 2 * 2 * width * 3072) + 4 * tokens * tokens * width
    assert cost.flops.at(B=1) == 2 * 14 * 14 * 3 * 16 * 16 * width + 12 * layer + 2 * width * 1000
    assert cost.flops.at(B=7) == 7 * cost.flops.at(B=1)
