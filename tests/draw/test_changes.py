"""A difference as text and as HTML."""

import pytest
import torch
from torch import nn

import shapeflow as sf
from models.gpt import toy as gpt
from shapeflow.draw.changes import render_rich
from shapeflow.graph import build, diff
from tests.graph.test_difference import Layer, small
from tests.handmade import Model, toy


def sequence(*layers: nn.Module):
    return sf.trace(nn.Sequential(*layers), "B 8")


def stack(**options):
    options = {"first": True, "name": "mix", "norm": nn.LayerNorm, "layers": 3} | options
    layers = options.pop("layers")
    return sf.trace(nn.Sequential(*(Layer(**options) for _ in range(layers))), "B T 8")


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(8, 24), nn.Linear(8, 24), nn.Linear(24, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.gelu(self.up(x)))


class Decoder(nn.Module):
    """Blocks of a norm, attention over an axis of choice, dropout and a feed-forward of choice."""

    def __init__(self, norm: type[nn.Module], ffn: type[nn.Module], dim: int = -1, p: float = 0.1) -> None:
        super().__init__()
        self.norms, self.ffns = nn.ModuleList(norm(8) for _ in range(3)), nn.ModuleList(ffn() for _ in range(3))
        self.drop, self.dim = nn.Dropout(p), dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for norm, ffn in zip(self.norms, self.ffns, strict=True):
            x = x + ffn(norm(x))
        return self.drop((x @ x.mT).softmax(self.dim) @ x)


def decoder(*parts: type[nn.Module], **options):
    return sf.trace(Decoder(*parts, **options), "B T 8")


TEXTS = [
    (
        lambda: (decoder(nn.LayerNorm, Plain), decoder(nn.RMSNorm, Gated)),
        """\
Decoder -> Decoder

~ norms.0 to norms.2, x3  LayerNorm -> RMSNorm
    - layer_norm  B T 8
    + rms_norm    B T 8
    - bias        8  parameter
~ ffns.0 to ffns.2, x3  Plain -> Gated
    + silu  B T 24
    - gelu  B T 32
    + mul   B T 24
+ ffns.0.gate to ffns.2.gate, x3  Linear, 216 parameters, 1 operator
  ffns.0.up to ffns.2.up, x3  Linear
    ~ linear  B T 32 -> B T 24
    ~ weight  32 8 -> 24 8  parameter
    ~ bias    32 -> 24      parameter
  ffns.0.down to ffns.2.down, x3  Linear
    ~ weight  8 32 -> 8 24  parameter

  total       1,704 -> 1,920 parameters (+216), 20 -> 26 operators (+6)""",
    ),
    (
        lambda: (decoder(nn.LayerNorm, Plain), decoder(nn.LayerNorm, Plain, dim=1, p=0.2)),
        """\
Decoder -> Decoder

  Decoder
    ~ softmax  dim -1 -> 1
  drop  Dropout
    ~ dropout  p 0.1 -> 0.2

  total       1,704 parameters, 20 operators""",
    ),
    (
        lambda: (sf.trace(gpt()), sf.trace(gpt())),
        """\
GPT
  no difference  33,764 parameters, 114 operators""",
    ),
    (
        lambda: (sf.trace(gpt()), sf.trace(gpt(n_layers=3))),
        """\
GPT -> GPT

+ blocks.2  DecoderBlock, 12,576 parameters, 54 operators

  total       33,764 -> 46,340 parameters (+12,576), 114 -> 168 operators (+54)""",
    ),
    (
        lambda: (sf.trace(gpt(n_layers=4)), sf.trace(gpt(n_layers=1))),
        """\
GPT -> GPT

- blocks.1 to blocks.3, x3  DecoderBlock, 12,576 parameters, 54 operators

  total       58,916 -> 21,188 parameters (-37,728), 222 -> 60 operators (-162)""",
    ),
    (
        lambda: (sf.trace(gpt()), sf.trace(gpt(max_len=128))),
        """\
GPT -> GPT
  holds for   B >= 2, 2 <= T <= 64 -> B >= 2, 2 <= T <= 128

  positions.table  Embedding
    ~ weight  64 32 -> 128 32  parameter

  total       33,764 -> 35,812 parameters (+2,048), 114 operators""",
    ),
    (
        lambda: (sf.trace(gpt()), sf.trace(gpt(d_ff=256))),
        """\
GPT -> GPT
  sizes       d_ff = 128 -> 256  (in the shapes of 4 operators)

  blocks.0.ffn.up to blocks.1.ffn.up, x2  Linear
    ~ weight  128 32 -> 256 32  parameter
    ~ bias    128 -> 256        parameter
  blocks.0.ffn.down to blocks.1.ffn.down, x2  Linear
    ~ weight  32 128 -> 32 256  parameter

  total       33,764 -> 50,404 parameters (+16,640), 114 operators""",
    ),
    (
        lambda: (
            sequence(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)),
            sequence(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 4, bias=False)),
        ),
        """\
Sequential -> Sequential

  0  Linear
    ~ linear  B 16 -> B 32
    ~ weight  16 8 -> 32 8  parameter
    ~ bias    16 -> 32      parameter
~ 1  ReLU -> GELU
    - relu  B 16
    + gelu  B 32
  2  Linear
    ~ linear  reads weight, bias -> weight
    - bias    4             parameter
    ~ weight  4 16 -> 4 32  parameter

  total       212 -> 416 parameters (+204), 3 operators""",
    ),
    (
        lambda: (stack(), stack(name="attention")),
        """\
Sequential -> Sequential

> 0.mix to 2.mix -> 0.attention to 2.attention, x3  Linear

  total       264 parameters, 9 operators""",
    ),
    (
        lambda: (stack(), stack(norm=nn.RMSNorm)),
        """\
Sequential -> Sequential

~ 0.norm to 2.norm, x3  LayerNorm -> RMSNorm
    - layer_norm  B T 8
    + rms_norm    B T 8
    - bias        8  parameter

  total       264 -> 240 parameters (-24), 9 operators""",
    ),
    (
        lambda: (stack(layers=1, first=False), stack(layers=1)),
        """\
Sequential -> Sequential

  Sequential
    ~ output  reads layer_norm in 0.norm -> add in 0
> 0.norm  LayerNorm  runs elsewhere
    ~ layer_norm  reads add -> input
  0.mix  Linear
    ~ linear  reads input -> layer_norm in norm

  total       88 parameters, 3 operators""",
    ),
    (
        lambda: (small(), small(swap=True)),
        """\
Small -> Small

  Small
    ~ cat  reads gelu, y -> y, gelu

  total       0 parameters, 3 operators""",
    ),
]


@pytest.mark.parametrize(("pair", "text"), TEXTS)
def test_text(pair, text: str) -> None:
    found = sf.diff(*pair())
    assert str(found) == text
    assert render_rich(found).plain == text


def test_parameters_of_modules_that_are_not_called() -> None:
    class Idle(nn.Module):
        def __init__(self, *, idle: bool) -> None:
            super().__init__()
            self.used = nn.Linear(3, 4)
            if idle:
                self.idle = nn.Linear(5, 6)
                self.scale = nn.Parameter(torch.zeros(7))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(x)

    text = str(sf.diff(sf.trace(Idle(idle=False), "B 3"), sf.trace(Idle(idle=True), "B 3")))
    assert "  Idle\n    + scale  7  parameter\n" in text
    assert "  idle  Linear, never called\n    + weight  6 5  parameter\n    + bias    6    parameter\n" in text


def test_the_dtype_where_it_is_what_changed() -> None:
    text = str(sf.diff(sf.trace(lambda x: x * 2, "B T"), sf.trace(lambda x: x.double() * 2, "B T")))
    assert "~ mul     B T:float32 -> B T:float64" in text


def test_a_head_that_is_tied_no_more() -> None:
    class Tied(nn.Module):
        def __init__(self, *, tied: bool) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(11, 3), nn.Linear(3, 11, bias=False)
            if tied:
                self.head.weight = self.table.weight

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.table(ids))

    text = str(sf.diff(sf.trace(Tied(tied=True), "B T:int64"), sf.trace(Tied(tied=False), "B T:int64")))
    assert "~ linear  reads table.weight -> head.weight" in text
    assert "33 -> 66 parameters (+33)" in text


def test_html_is_escaped() -> None:
    name = "<img src=x onerror=alert(1)>"
    model = Model(name)
    x = model.input("x", "B T")
    with model.module(name, name):
        x = model.op(name, x, out="B T")
        model.output(model.op(name, x, out="B T"))
    page = diff(build(toy(1).trace()), build(model.trace()))._repr_html_()
    assert page.startswith("<pre ")
    assert "<img" not in page
    assert page.count("&lt;img src=x onerror=alert(1)&gt;") >= 3
    assert '<span style="font-weight:bold;color:#3b82c4">+ &lt;img' in page
