"""SF308: layers of torch that read the batch as time."""

import pytest
import torch
from torch import nn

import shapeflow as sf
from tests.check.rules.found import errors, found


class Around(nn.Module):
    """Any layer, given what `before` makes of the input."""

    def __init__(self, layer, before=lambda x: x):
        super().__init__()
        self.layer, self.before = layer, before

    def forward(self, x):
        out = self.layer(self.before(x))
        return out[0] if isinstance(out, tuple) else out


class SelfAttention(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.mha = nn.MultiheadAttention(16, 4, **options)

    def forward(self, x):
        return self.mha(x, x, x, need_weights=False)[0]


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(
            8,
            16,
            num_layers=2,
        )

    def forward(self, x):
        out, _ = self.rnn(x)
        return out


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.attn = nn.MultiheadAttention(d, h, dropout=0.1)

    def forward(self, x):
        return x + self.attn(x, x, x)[0]


class Stacked(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 4, dim_feedforward=32)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x):
        return self.encoder(x)


class Inline(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32), 2, enable_nested_tensor=False)

    def forward(self, x):
        return self.encoder(x)


class Reversed(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(8, 16, batch_first=True)

    def forward(self, x):
        return self.rnn(x)[0]


class Frames(nn.Module):
    """Batch and cameras in one axis: still the batch."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(8, 16)

    def forward(self, x):
        return self.rnn(x.flatten(0, 1))[0]


WRONG = [
    (SelfAttention, "B T 16", "self.mha = nn.MultiheadAttention(16, 4, **options)", "batch_first=True)"),
    (Tagger, "B T 8", "self.rnn = nn.GRU(", "nn.GRU(8, 16, num_layers=2, batch_first=True)"),
    (Frames, "B N T 8", "self.rnn = nn.RNN(8, 16)", "nn.RNN(8, 16, batch_first=True)"),
    (Reversed, "T B 8", "self.rnn = nn.LSTM(8, 16, batch_first=True)", "nn.LSTM(8, 16, batch_first=False)"),
    (
        Stacked,
        "B T 16",
        "layer = nn.TransformerEncoderLayer(16, 4, dim_feedforward=32)",
        "nn.TransformerEncoderLayer(16, 4, dim_feedforward=32, batch_first=True)",
    ),
    (
        Inline,
        "B T 16",
        "self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32), 2, enable_nested_tensor=False)",
        "nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)",
    ),
]


@pytest.mark.parametrize(("kind", "spec", "code", "fix"), WRONG)
def test_the_constructor_is_told(kind, spec, code, fix):
    (problem,) = found("SF308", kind(), spec)
    assert problem.level == "error"
    assert problem.code == code
    assert problem.fix.endswith(fix)
    assert "B" in problem.dims


def test_the_message_says_what_it_takes_and_gets():
    (problem,) = found("SF308", Tagger(), "B T 8")
    assert problem.message == "GRU 'rnn' takes time first and gets (B, T, 8): it reads axis 0 (B), the batch, as time"
    assert problem.details[0].endswith("out, _ = self.rnn(x)")


def test_layers_of_one_line_are_told_once():
    assert len(found("SF308", nn.Sequential(*[Block(16, 4) for _ in range(3)]), "B T 16")) == 1


def test_nothing_else_is_said_of_the_softmax_inside():
    assert [problem.rule for problem in errors(Block(16, 4), "B T 16")] == ["SF308"]


def test_a_batch_of_rows_without_time():
    (problem,) = found("SF308", Around(nn.LSTM(8, 16)), "B 8")
    assert problem.message.startswith("LSTM 'layer' takes time first and gets (B, 8)")


RIGHT = [
    (SelfAttention(batch_first=True), "B T 16"),
    (SelfAttention(), "T B 16"),
    (SelfAttention(), "L N 16"),
    (SelfAttention(), "T 16"),
    (Around(nn.LSTM(8, 16), lambda x: x.transpose(0, 1)), "B T 8"),
    (Around(nn.LSTM(8, 16), lambda x: x.permute(1, 0, 2)), "B T 8"),
    (Around(nn.GRU(8, 16), lambda x: torch.stack(x.unbind(2)).flatten(1, 2)), "B N 3 8"),
    (Around(nn.GRU(8, 16), lambda x: x.flatten(2).permute(2, 0, 1)), "B 8 H W"),
    (Around(nn.GRU(8, 16)), "T 8"),
    (Around(nn.GRU(8, 16)), "N 8"),
    (Around(nn.TransformerEncoderLayer(16, 4, 32)), "S N 16"),
    (Around(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)), "B T 16"),
]


@pytest.mark.parametrize(("module", "spec"), RIGHT)
def test_the_right_order_is_no_finding(module, spec):
    assert found("SF308", module, spec) == []


@pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning")  # torch says so of its own default
def test_both_of_a_whole_transformer():
    model = Around(nn.Transformer(16, 4, 1, 1, 32), lambda x: x)
    model.forward = lambda src, tgt: model.layer(src, tgt)
    assert found("SF308", model, "T B 16", "T B 16") == []
    assert len(found("SF308", nn.Transformer(16, 4, 1, 1, 32), "B T 16", "B T 16")) == 1


def test_the_root_itself_may_be_the_layer():
    (problem,) = sf.check(nn.LSTM(8, 16), "B T 8").problems
    assert problem.rule == "SF308" and problem.fix == "LSTM(..., batch_first=True)"
