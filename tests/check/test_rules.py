"""The rules on the graph: what each finds in several spellings, and the look-alikes that it leaves alone."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import shapeflow as sf
from shapeflow.check.rules import RULES


def found(function, *specs, **named):
    report = sf.check(function, *specs, **named)
    return sorted({problem.rule for problem in report.problems if problem.rule.startswith("SF3")})


class Attention(nn.Module):
    """torch's attention with a mask that `make` gives for a length."""

    def __init__(self, make, *, batch_first=True):
        super().__init__()
        self.mha = nn.MultiheadAttention(8, 2, batch_first=batch_first)
        self.make = make

    def forward(self, x):
        mask = self.make(x.shape[1])
        return self.mha(x, x, x, attn_mask=mask)[0]


class Inside(nn.Module):
    """A layer of torch in a module, as people have it."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        y = self.layer(x)
        return y[0] if isinstance(y, tuple) else y


class Scored(nn.Module):
    def __init__(self, squeezed):
        super().__init__()
        self.net = nn.Linear(4, 1)
        self.squeezed = squeezed

    def forward(self, x, y):
        score = self.net(x)
        return F.mse_loss(score.squeeze(-1) if self.squeezed else score, y)


class Padded(nn.Module):
    def __init__(self, invert):
        super().__init__()
        self.table = nn.Embedding(10, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.invert = invert

    def forward(self, ids):
        mask = ids == 0 if self.invert else ids != 0
        return self.layer(self.table(ids), src_key_padding_mask=mask)


class Lost(nn.Module):
    def __init__(self, used):
        super().__init__()
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 2)
        self.used = used

    def forward(self, x):
        y = self.norm(x)
        return self.head(y if self.used else x)


def later(t):
    return torch.ones(t, t, dtype=torch.bool).triu(1)


def earlier(t):
    return torch.ones(t, t, dtype=torch.bool).tril()


def attend(mask):
    return lambda q: F.scaled_dot_product_attention(q, q, q, attn_mask=mask(q.shape[-2]))


def merged(y):
    b, h, t, d = y.shape
    return y.reshape(b, t, h * d)


def moved(y):
    b, h, t, d = y.shape
    return y.transpose(1, 2).reshape(b, t, h * d)


def windows(x):
    b, h, w, c = x.shape
    x = x.view(b, h // 8, 8, w // 8, 8, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 64, c)
    return x.view(b, h // 8, w // 8, 8, 8, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)


def shifted(x):
    b, h, t, s = x.shape
    x = F.pad(x, (1, 0)).view(b, h, s + 1, t)
    return x[:, :, 1:].reshape(b, h, t, s)


def shuffled(x):
    b, c, h, w = x.shape
    return x.view(b, 2, c // 2, h, w).transpose(1, 2).reshape(b, c, h, w)


def beams(x):
    b, t, d = x.shape
    x = x.unsqueeze(1).expand(b, 4, t, d).reshape(b * 4, t, d)
    return x.view(b, 4, t, d).sum(1)


def beams_turned(x):
    b, t, d = x.shape
    x = x.unsqueeze(1).expand(b, 4, t, d).reshape(b * 4, t, d)
    return x.view(4, b, t, d).sum(0)


def weigh(dim, *, mask=None, late=None):
    def weights(q, v, pad):
        scores = q @ v.transpose(-2, -1)
        if mask is not None:
            scores = scores.masked_fill(mask(pad), -torch.inf)
        w = scores.softmax(dim)
        if late is not None:
            w = late(w, pad)
        return F.dropout(w, 0.1) @ v

    return weights


SCORES = ("B T d", "B S d", "B S:bool")
CASES = [
    # SF301
    (merged, ("B 4 T 8",), ["SF301"]),
    (lambda y: torch.reshape(y, (y.shape[0], y.shape[2], -1)), ("B 4 T 8",), ["SF301"]),
    (lambda x: x.view(x.shape[1], x.shape[0], x.shape[2]), ("B T 8",), ["SF301"]),
    (lambda x: x.reshape(x.shape[0], -1, 16), ("B 16 H W",), ["SF301"]),
    (beams_turned, ("B T 8",), ["SF301"]),
    (moved, ("B 4 T 8",), []),
    (windows, ("B 64 64 3",), []),
    (shifted, ("B 2 T T",), []),
    (shuffled, ("B 8 H W",), []),
    (beams, ("B T 8",), []),
    (lambda x: x.flatten(2).transpose(1, 2), ("B 16 H W",), []),
    (lambda x: x.view(x.shape[0], x.shape[1], 4, 2).view(x.shape[0], x.shape[1], 8), ("B T 8",), []),
    # SF302, SF303
    (Scored(squeezed=False), ("B 4", "B"), ["SF302"]),
    (Scored(squeezed=True), ("B 4", "B"), []),
    (lambda x: x[:, None] - x, ("T",), []),
    (lambda a: a / a.sum(1), ("N N",), ["SF303"]),
    (lambda a: a / a.sum(1, keepdim=True), ("N N",), []),
    (lambda a: a / a.sum(0), ("N N",), []),
    # SF304 - SF307, SF313
    (lambda x: x.softmax(0), ("B 8",), ["SF304"]),
    (lambda x: F.log_softmax(x, dim=-1), ("B 8",), []),
    (lambda x: F.linear(x, torch.ones(1, 8)).softmax(-1), ("B T 8",), ["SF305"]),
    (weigh(1), SCORES, ["SF306"]),
    (weigh(-1), SCORES, []),
    (weigh(-1, mask=lambda pad: pad[:, None, :]), SCORES, []),
    (
        lambda s, v, pad: s.masked_fill(pad[:, :, None], -torch.inf).softmax(-1) @ v,
        ("B T S", "B S d", "B T:bool"),
        ["SF307"],
    ),
    (weigh(-1, late=lambda w, pad: w.masked_fill(pad[:, None], 0.0)), SCORES, ["SF313"]),
    (weigh(-1, late=lambda w, pad: w * pad[:, None].float()), SCORES, ["SF313"]),
    (weigh(-1, late=lambda w, pad: w.masked_fill(pad.all(-1)[:, None, None], 0.0)), SCORES, []),
    # SF308
    (Inside(nn.LSTM(8, 4)), ("B T 8",), ["SF308"]),
    (Inside(nn.GRU(8, 4, batch_first=True)), ("B T 8",), []),
    (Inside(nn.LSTM(8, 4)), ("T B 8",), []),
    (Inside(nn.TransformerEncoderLayer(8, 2, 16)), ("B T 8",), ["SF308"]),
    (Inside(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)), ("B T 8",), []),
    # SF310
    (lambda x: x.mean((2, 3), keepdim=True).squeeze(), ("B 8 H W",), ["SF310"]),
    (lambda x: x.mean((2, 3), keepdim=True).squeeze(), ("B>=2 8 H W",), []),
    (lambda x: x.mean(-1, keepdim=True).squeeze(-1), ("B T 8",), []),
    # SF311
    (lambda x, y: F.cross_entropy(x.softmax(-1), y), ("B 8", "B:int64"), ["SF311"]),
    (lambda x, y: F.nll_loss(F.softmax(x, dim=1), y), ("B 8", "B:int64"), ["SF311"]),
    (lambda x, y: F.binary_cross_entropy_with_logits(torch.sigmoid(x), y), ("B 8", "B 8"), ["SF311"]),
    (lambda x, y: F.nll_loss(F.log_softmax(x, dim=1), y), ("B 8", "B:int64"), []),
    (lambda x, y: F.cross_entropy(x, y), ("B 8", "B:int64"), []),
    # SF312
    (Attention(earlier), ("B T 8",), ["SF312"]),
    (Attention(later), ("B T 8",), []),
    (attend(later), ("B h T d",), ["SF312"]),
    (attend(lambda t: torch.triu(torch.ones(t, t)).bool()), ("B h T d",), ["SF312"]),
    (attend(earlier), ("B h T d",), []),
    (Padded(invert=False), ("B T:int64",), ["SF312"]),
    (Padded(invert=True), ("B T:int64",), []),
    # SF314
    (lambda x: F.normalize(x), ("B T 8",), ["SF314"]),
    (lambda x: F.normalize(x, dim=-1), ("B T d",), []),
    (lambda x: F.normalize(x), ("B d",), []),
    (lambda x, y: F.cosine_similarity(x, y), ("B T 8", "B T 8"), ["SF314"]),
    # SF315
    (Lost(used=False), ("B 8",), ["SF315"]),
    (Lost(used=True), ("B 8",), []),
]


@pytest.mark.filterwarnings("ignore:Using a target size")  # torch's own hint at SF302
@pytest.mark.parametrize("function, specs, rules", CASES, ids=range(len(CASES)))
def test_rules(function, specs, rules):
    model = function.train() if isinstance(function, nn.Module) else function
    assert found(model, *specs) == rules


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_every_rule_says_what_is_wrong_and_what_is_right(rule):
    assert rule.title and len(rule.doc.strip().splitlines()) >= 4
    assert rule.level in ("error", "warning", "note")


def test_a_table_read_up_to_the_batch():
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(64, 8)

        def forward(self, x):
            return x + self.table(torch.arange(x.shape[0]))

    (problem,) = [each for each in sf.check(Table(), "B 8").problems if each.rule == "SF309"]
    assert (
        problem.message == "table 'table' is read up to the batch size B: each example of a batch gets a row of its own"
    )
