"""SF302 and SF303: operands that broadcast as nobody meant, and the broadcasts that are meant."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.check.rules.found import at_the_marked_line, errors, found


class Written(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x, y):
        pred = self.head(x)
        return ((pred - y) ** 2).mean()  # here


class TargetFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 1)

    def forward(self, x, y):
        pred = torch.sigmoid(self.head(x))
        return (y - pred).abs().mean()  # here


class Accuracy(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 1)

    def forward(self, x, y):
        pred = self.head(x) > 0
        return (pred == y).float().mean()  # here


class OfALoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 1)

    def forward(self, x, y):
        out = self.head(x)
        return F.mse_loss(out, y)  # here


class OfAModuleLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.head, self.criterion = nn.Linear(8, 1), nn.SmoothL1Loss()

    def forward(self, x, y):
        out = self.head(x)
        return self.criterion(out, y)  # here


class CrossEntropyByHand(nn.Module):
    """Two products of one line are one fault."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 1), nn.Sigmoid())

    def forward(self, x, y):
        p = self.net(x)
        return -(y * p.log() + (1 - y) * (1 - p).log()).mean()  # here


class Factorised(nn.Module):
    """Matrix factorisation whose biases are embeddings of one feature."""

    def __init__(self):
        super().__init__()
        self.user, self.item, self.bias = nn.Embedding(10, 8), nn.Embedding(11, 8), nn.Embedding(10, 1)

    def forward(self, u, i):
        return (self.user(u) * self.item(i)).sum(1) + self.bias(u)  # here


class Critic(nn.Module):
    """Q-learning: what a net says of the next state, (B, 1), in a target of (B,)."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 1)

    def forward(self, x, reward):
        value = self.net(x)
        return reward + 0.9 * value  # here


DOUBLED = [
    (Written(), ("B 8", "B"), "pred.squeeze(-1)"),
    (TargetFirst(), ("B 8", "B"), "pred.squeeze(-1)"),
    (Accuracy(), ("B 8", "B"), "pred.squeeze(-1)"),
    (OfALoss(), ("B 8", "B"), "out.squeeze(-1)"),
    (OfAModuleLoss(), ("B 8", "B"), "out.squeeze(-1)"),
    (CrossEntropyByHand(), ("B 8", "B"), "p.squeeze(-1)"),
    (Factorised(), ("B:int64", "B:int64"), "self.bias(u).squeeze(-1)"),
    (Critic(), ("B 8", "B"), "(0.9 * value).squeeze(-1)"),
]


def name(target):
    return getattr(target, "__name__", type(target).__name__)


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize(("target", "specs", "fix"), DOUBLED, ids=[name(each[0]) for each in DOUBLED])
def test_a_layer_of_one_feature_against_a_vector(target, specs, fix):
    problems = found("SF302", target, *specs)
    assert len(problems) == 1
    (problem,) = problems
    assert problem.level == "error" and at_the_marked_line(problem)
    assert problem.dims in (("B",), ("T",))
    assert problem.fix == fix


def test_the_message_names_both_shapes():
    (problem,) = found("SF302", Written(), "B 8", "B")
    assert problem.message == "sub: (B, 1) and (B) broadcast to two axes of B: each is paired with every other"


def relative(positions):
    return positions[:, None] - positions


def relative_unsqueezed(positions):
    return positions.unsqueeze(-1) - positions.unsqueeze(0)


def relative_of_views(positions):
    return positions.view(-1, 1) - positions


def distances(x):
    n = (x**2).sum(-1, keepdim=True)
    return n + n.squeeze(-1) - 2 * x @ x.T


def distances_of_new_axes(x):
    return ((x[:, None] - x) ** 2).sum(-1)


def causal(x):
    at = torch.arange(x.shape[1])
    return at.unsqueeze(1) >= at


def same_document(ids):
    return ids[:, :, None] == ids[:, None]


def equal_in_a_batch(labels):
    labels = labels.contiguous().view(-1, 1)
    return torch.eq(labels, labels.T)


def rotary(x):
    at = torch.arange(x.shape[1], dtype=torch.float32)
    angles = at[:, None] * (1.0 / 10000 ** (torch.arange(0, 8, 2) / 8))
    return torch.cat((angles, angles), -1).cos() * x


class Squeezed(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 1)

    def forward(self, x, y):
        return ((self.head(x).squeeze(-1) - y) ** 2).mean() + F.mse_loss(self.head(x).flatten(), y)


class AttentionPooling(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Linear(8, 1)

    def forward(self, x):
        return (self.score(x).softmax(1) * x).sum(1)


class Additive(nn.Module):
    """Attention of graphs: what a node sends plus what a node reads."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(8, 1), nn.Linear(8, 1)

    def forward(self, x):
        return self.left(x) + self.right(x).transpose(-1, -2)


class AdditiveOfVectors(Additive):
    def forward(self, x):
        return self.left(x) + self.right(x).squeeze(-1)


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.bias = nn.Linear(8, 1), nn.Parameter(torch.zeros(8))

    def forward(self, x):
        return x * torch.sigmoid(self.gate(x)) + self.bias


class SqueezeExcite(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool, self.conv = nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 8, 1)

    def forward(self, x):
        return x * self.conv(self.pool(x)).sigmoid()


MEANT = [
    (relative, ("T",)),
    (relative_unsqueezed, ("T",)),
    (relative_of_views, ("T",)),
    (distances, ("N 8",)),
    (distances_of_new_axes, ("N 8",)),
    (causal, ("B T 8",)),
    (same_document, ("B T",)),
    (equal_in_a_batch, ("B",)),
    (rotary, ("B T 8",)),
    (Squeezed(), ("B 8", "B")),
    (AttentionPooling(), ("B T 8",)),
    (Additive(), ("B N 8",)),
    (AdditiveOfVectors(), ("N 8",)),
    (Gate(), ("B T 8",)),
    (SqueezeExcite(), ("B 8 H W",)),
]


@pytest.mark.parametrize(("target", "specs"), MEANT, ids=[name(each[0]) for each in MEANT])
def test_a_broadcast_that_is_meant_is_no_finding(target, specs):
    assert errors(target, *specs) == []


def test_the_fix_names_the_call_of_the_layer():
    class Value(nn.Module):
        def __init__(self):
            super().__init__()
            self.value = nn.Linear(8, 1)

        def forward(self, x, reward, done):
            target = reward + 0.9 * (1 - done) * self.value(x)
            return target.mean()

    (problem,) = errors(Value(), "B 8", "B", "B")
    assert problem.rule == "SF302" and problem.fix == "self.value(x).squeeze(-1)"


@pytest.mark.filterwarnings("ignore:Using a target size")  # torch says so, and goes on
def test_no_loss_is_of_each_with_every_other():
    def declared(pred, y):
        return F.mse_loss(pred, y)  # here

    def kept(x, y):
        return F.l1_loss(x.mean(1, keepdim=True), y)  # here

    for function, spec in [(declared, "B 1"), (kept, "B T")]:
        (problem,) = errors(function, spec, "B")
        assert problem.rule == "SF302" and at_the_marked_line(problem)
    assert errors(lambda pred, y: F.mse_loss(pred, y[:, None]), "B 1", "B") == []
    assert errors(lambda a, b: (a - b).abs(), "N 1", "N") == []
