"""Which part takes the most at which size; a picture of it; sizes that do not fit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import shapeflow as sf
from models import gpt
from shapeflow.cost.parts import Part
from shapeflow.trace.construct import construct


class Block(nn.Module):
    """A decoder's two halves, by the letters."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.d_model = d_model
        self.attn = Attention(d_model)
        self.ffn = FeedForward(d_model, d_ff)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.ffn(x + self.attn(x))


class Attention(nn.Module):
    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, keys, values = self.qkv(x).chunk(3, dim=-1)
        return self.out((query @ keys.transpose(1, 2)).softmax(-1) @ values)


class FeedForward(nn.Module):
    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.up(x).relu())


def test_parts_add_up() -> None:
    cost = sf.cost(Block(24, 96), "B T 24")
    assert {part.name: str(part.flops) for part in cost.parts} == {
        "Attention": f"{8 * 24 * 24}*B*T",
        "Attention, scores": f"{4 * 24}*B*T^2",
        "FeedForward": f"{4 * 24 * 96}*B*T",
    }
    assert sum((part.flops for part in cost.parts), 0 * cost.flops) is cost.flops


def test_attention_overtakes_at_numbers() -> None:
    told = sf.cost(Block(24, 96), "B T 24").scaling("T")
    assert str(told).splitlines() == [
        "T 1 to 95: FeedForward takes the most",
        "T from 96: Attention, scores takes the most",
        "Attention, scores overtakes Attention at T > 48",
        "Attention, scores overtakes FeedForward at T > 96",
    ]


def test_attention_overtakes_at_a_formula_of_the_width() -> None:
    recipe = construct(lambda d_model: Block(d_model, 4 * d_model), {"d_model": None})
    told = sf.cost(recipe, "B T d_model").scaling("T")
    assert [(each.greater, each.lesser, str(each.above)) for each in told.overtakings] == [
        ("Attention, scores", "Attention", "2*d_model"),
        ("Attention, scores", "FeedForward", "4*d_model"),
    ]


def test_each_overtaking_is_where_it_says() -> None:
    cost = sf.cost(gpt.toy())
    told = cost.scaling("T")
    flops = {part.name: part.flops for part in cost.parts}
    assert told.overtakings
    for each in told.overtakings:
        above = each.above.at()
        greater, lesser = flops[each.greater], flops[each.lesser]
        assert greater.at(B=3, T=above) <= lesser.at(B=3, T=above)
        assert greater.at(B=3, T=above + 1) > lesser.at(B=3, T=above + 1)
    for reign in told.reigns:
        for size in {reign.low, reign.high or 2 * reign.low}:
            most = max(part.at(B=3, T=size) for part in flops.values())
            assert flops[reign.part].at(B=3, T=size) == most


def test_sizes_beyond_the_model_are_marked() -> None:
    lines = str(sf.cost(gpt.toy()).scaling("T")).splitlines()
    assert any(line.endswith("(the model takes T <= 64 only)") for line in lines)


def test_rounded_sizes_are_searched_for() -> None:
    """No formula says where `H//8` squared passes: the size is found."""
    model = nn.Sequential(nn.Conv2d(3, 64, 8, stride=8), nn.Flatten(2))

    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.mix = model, Mix()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.mix(self.stem(x))

    class Mix(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ x.transpose(1, 2) @ x

    cost = sf.cost(Pooled(), "B 3 H 64")
    (part,) = [part for part in cost.parts if part.name.endswith("scores")]
    assert isinstance(part, Part)
    for each in cost.scaling("H", B=2).overtakings:
        above = each.above.at()
        flops = {part.name: part.flops for part in cost.parts}
        assert flops[each.greater].at(B=2, H=above + 1) > flops[each.lesser].at(B=2, H=above + 1)


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_the_plot_is_written(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"cost.{suffix}"
    sf.cost(Block(24, 96), "B T 24").plot("T", path, B=1, low=4, high=4096)
    written = path.read_bytes()
    assert len(written) > 5000
    if suffix == "svg":
        for name in ("FeedForward", "Attention, scores", "whole forward"):
            assert f"<!-- {name} -->".encode() in written


@pytest.mark.parametrize(
    ("dim", "path", "message"),
    [
        ("Q", "cost.svg", "no operation depends on Q; sizes that some do: B, T"),
        ("T", "cost.txt", "no suffix that says how to draw: one of .svg, .png, .pdf"),
        ("T", "missing/cost.svg", "cannot be written"),
    ],
)
def test_plots_that_cannot_be(tmp_path: Path, dim: str, path: str, message: str) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(sf.ShapeflowError, match=message):
        sf.cost(Block(24, 96), "B T 24").plot(dim, tmp_path / path)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"B": 2, "T2": 5}, r"GPT has no size T2; did you mean T\?; its sizes are: B, T"),
        ({"B": 2, "T": 65}, "GPT was traced for 2 <= T <= 64: T = 65 is outside"),
        ({"B": -2, "T": 5}, "a size is a whole number of at least 0, not B = -2"),
        ({"B": 2.5, "T": 5}, "a size is a whole number of at least 0, not B = 2.5"),
        ({"B": 2, "T": 5, "d_model": 31}, "d_model is 32 in GPT, not 31"),
        ({"B": 2}, "no size is given for T: numbers take all of B, T"),
        ({"B": 0, "T": 5}, "B = 0 is outside"),
    ],
)
def test_sizes_that_do_not_fit(sizes: dict[str, int], message: str) -> None:
    with pytest.raises(sf.InputError, match=message):
        sf.cost(gpt.toy()).sheet(**sizes)


def test_sizes_that_a_relation_excludes() -> None:
    cost = sf.cost(lambda x: x.view(x.shape[0] // 4, 4) @ x.new_ones(4, 3), "n")
    assert cost.at(n=8)["flops"] == 2 * 2 * 4 * 3
    with pytest.raises(sf.InputError, match=r"n % 4 == 0: n = 10 is outside"):
        cost.at(n=10)


def test_one_is_a_size_like_any_other() -> None:
    """The generic run takes sizes from 2 on; a batch of one costs what the formula says."""
    assert sf.cost(gpt.toy()).at(B=1, T=1)["flops"] == 256 + 55552


def test_a_trace_has_its_inputs() -> None:
    trace = sf.trace(nn.Linear(6, 5), "B 6")
    assert str(sf.cost(trace).flops) == "60*B"
    with pytest.raises(sf.InputError, match="a trace has its inputs already"):
        sf.cost(trace, "B 6")
