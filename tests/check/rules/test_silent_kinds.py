"""SF304, SF306, SF308, SF309, SF316 to SF319: one wrong function of a kind beside the right one that looks like it."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.check.rules.found import at_the_marked_line, errors

IDS = "B T:int64"


class Tagger(nn.Module):
    """Steps first inside, the batch first outside."""

    def __init__(self, turned):
        super().__init__()
        self.table, self.rnn, self.head = nn.Embedding(40, 8), nn.GRU(8, 8), nn.Linear(8, 40)
        self.turned = turned

    def forward(self, ids, y):
        h, _ = self.rnn(self.table(ids).transpose(0, 1))
        if self.turned:
            y = y.t()
        return F.cross_entropy(self.head(h).reshape(-1, 40), y.reshape(-1))  # here


class Grouped(nn.Module):
    def __init__(self, copy):
        super().__init__()
        self.q, self.kv, self.copy = nn.Linear(48, 48), nn.Linear(48, 32), copy

    def forward(self, x):
        b, t, _ = x.shape
        q = self.q(x).view(b, t, 6, 8).transpose(1, 2)
        k, v = self.kv(x).view(b, t, 2, 2, 8).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k.repeat_interleave(3, dim=1), self.copy(v))


def all_copies(v):
    return v.repeat(1, 3, 1, 1)  # here


def each_copied(v):
    return v[:, :, None].expand(-1, -1, 3, -1, -1).flatten(1, 2)


class LastStep(nn.Module):
    def __init__(self, last):
        super().__init__()
        self.rnn, self.head, self.last = nn.LSTM(6, 8, batch_first=True), nn.Linear(8, 3), last

    def forward(self, x):
        return self.head(self.last(*self.rnn(x)))


def last_example(out, state):
    return out[-1]  # here


def last_example_of_a_state(out, state):
    return state[0][:, -1]  # here


class Token(nn.Module):
    def __init__(self, *, axis):
        super().__init__()
        self.token, self.mix, self.axis = nn.Parameter(torch.zeros(1, 1, 8)), nn.Linear(8, 8), axis

    def forward(self, x):
        if self.axis == 0:
            return self.mix(torch.cat([self.token.expand(-1, x.size(1), -1), x]))  # here
        return self.mix(torch.cat([self.token.expand(x.size(0), -1, -1), x], dim=1))


class Pooled(nn.Module):
    def __init__(self, axis):
        super().__init__()
        self.table, self.head, self.axis = nn.Embedding(9, 8), nn.Linear(8, 2), axis

    def forward(self, ids):
        return self.head(self.table(ids).mean(self.axis))  # here


class Normed(nn.Module):
    def __init__(self, *axes):
        super().__init__()
        self.g, self.b, self.axes = nn.Parameter(torch.ones(8)), nn.Parameter(torch.zeros(8)), axes

    def forward(self, x):
        mean = x.mean(self.axes, keepdim=True)  # here
        std = x.std(self.axes, keepdim=True)
        return self.g * (x - mean) / (std + 1e-6) + self.b


class Angles(nn.Module):
    def __init__(self, axis):
        super().__init__()
        self.axis = axis

    def forward(self, x):
        count = x.shape[0] if self.axis == 0 else x.shape[1]
        angle = torch.arange(count)[:, None] * torch.logspace(0, -4, 4)  # here
        angle = torch.cat((angle.sin(), angle.cos()), dim=-1)
        return x + (angle[:, None] if self.axis == 0 else angle)


def halves(x):
    one, two = x.chunk(2, dim=-1)
    return torch.cat((-two, one), dim=-1)


def slices(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def neighbours(x):
    return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)


def twice(angle):
    return torch.cat((angle, angle), dim=-1)  # here


def each_twice(angle):
    return angle.repeat_interleave(2, dim=-1)  # here


class Rotary(nn.Module):
    def __init__(self, turn, double):
        super().__init__()
        self.turn, self.double = turn, double

    def forward(self, x):
        angle = self.double(torch.arange(x.shape[1])[:, None] * torch.logspace(0, -4, 4))
        return x * angle.cos() + self.turn(x) * angle.sin()


class Averaged(nn.Module):
    def __init__(self, pool):
        super().__init__()
        self.table, self.pool = nn.Embedding(40, 8), pool

    def forward(self, ids):
        return self.pool(self.table(ids), (ids != 0).unsqueeze(-1))


def over_all(x, mask):
    return (x * mask).mean(1)  # here


def over_all_filled(x, mask):
    x = x.masked_fill(~mask, 0.0)
    return x.mean(dim=1)  # here


def over_tokens(x, mask):
    return (x * mask).sum(1) / mask.sum(1).clamp(min=1)


def of_positive_features(x, mask):
    return (x * (x > 0)).mean(1)


class Dropped(nn.Module):
    def __init__(self, *, told):
        super().__init__()
        self.told = told

    def forward(self, x):
        return self.on(x) if self.told else F.dropout(x, 0.1)  # here

    def on(self, x):
        return F.dropout(x, 0.1, training=self.training)


class Asking(nn.Module):
    def forward(self, x):
        return F.dropout(x, 0.1) if self.training else x


class Experts(nn.Module):
    def __init__(self, axis):
        super().__init__()
        self.gate, self.experts = nn.Linear(8, 4), nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.axis = axis

    def forward(self, x):
        gates = self.gate(x).softmax(dim=self.axis)  # here
        results = torch.stack([expert(x) for expert in self.experts], dim=2)
        return (results * gates.unsqueeze(-1)).sum(2)


WRONG = [
    ("SF316", Tagger(False), (IDS, IDS), "y.transpose(0, 1).reshape(-1)"),
    ("SF316", Grouped(all_copies), ("B T 48",), "v.repeat_interleave(3, dim=1)"),
    ("SF308", LastStep(last_example), ("B T 6",), "out[:, -1]"),
    ("SF308", LastStep(last_example_of_a_state), ("B T 6",), "state[0][-1]"),
    ("SF308", Token(axis=0), ("B T 8",), "expand it along axis 0, and dim=1 in the cat"),
    ("SF308", Pooled(0), (IDS,), "self.table(ids).mean(1)"),
    ("SF304", Normed(0), ("B T 8",), "x.mean(-1, keepdim=True)"),
    ("SF309", Angles(0), ("B T 8",), "torch.arange(x.shape[1])"),
    ("SF318", Rotary(halves, each_twice), ("B T 8",), "torch.cat((angle, angle), dim=-1)"),
    ("SF318", Rotary(slices, each_twice), ("B T 8",), "torch.cat((angle, angle), dim=-1)"),
    ("SF318", Rotary(neighbours, twice), ("B T 8",), "angle.repeat_interleave(2, dim=-1)"),
    ("SF317", Averaged(over_all), (IDS,), "(x * mask).sum(1) / mask.sum(1)"),
    ("SF317", Averaged(over_all_filled), (IDS,), "the sum over axis 1, divided by the number of positions"),
    ("SF319", Dropped(told=False), ("B T 8",), "F.dropout(x, 0.1, training=self.training)"),
    ("SF306", Experts(1), ("B T 8",), "dim=-1"),
]
RIGHT = [
    (Tagger(True), (IDS, IDS)),
    (Grouped(each_copied), ("B T 48",)),
    (LastStep(lambda out, state: out[:, -1]), ("B T 6",)),
    (LastStep(lambda out, state: state[0][-1]), ("B T 6",)),
    (Token(axis=1), ("B T 8",)),
    (Pooled(1), (IDS,)),
    (Normed(2), ("B T 8",)),
    (Normed(0, 1), ("B T 8",)),
    (Angles(1), ("B T 8",)),
    (Rotary(halves, twice), ("B T 8",)),
    (Rotary(neighbours, each_twice), ("B T 8",)),
    (Averaged(over_tokens), (IDS,)),
    (Averaged(of_positive_features), (IDS,)),
    (Dropped(told=True), ("B T 8",)),
    (Asking(), ("B T 8",)),
    (Experts(-1), ("B T 8",)),
]


@pytest.mark.parametrize(("rule", "model", "specs", "fix"), WRONG)
def test_the_line_and_the_fix(rule, model, specs, fix):
    (problem,) = errors(model, *specs)
    assert problem.rule == rule and at_the_marked_line(problem)
    assert problem.fix.startswith(fix)


@pytest.mark.parametrize(("model", "specs"), RIGHT)
def test_the_look_alike(model, specs):
    assert errors(model, *specs) == []


def test_pairs_of_all_rows_are_meant():
    def pairs(x, y):
        return x.repeat(y.shape[0], 1) + y.repeat_interleave(x.shape[0], dim=0)

    assert errors(pairs, "N 8", "M 8") == []
