"""SF304, SF305, SF306: what softmax goes over, and the look-alikes that are meant so."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.check.rules.found import at_the_marked_line, errors, found

Q, C = "B T 8", "B N 8"


def over_rows(q, c):
    scores = q @ c.transpose(1, 2)
    b, t, n = scores.shape
    weights = torch.softmax(scores.view(b * t, n), dim=0)  # here
    return weights.view(b, t, n) @ c


def as_a_method(q, c):
    weights = (q @ c.mT / 8**0.5).softmax(0)  # here
    return weights @ c


def of_logits(q, c):
    return F.log_softmax(q.mean(1), dim=0)  # here


def over_an_axis_beside_the_score(q):
    weights = F.softmax(nn.Linear(8, 1)(q), dim=0)  # here
    return (weights * q).sum(1)


def of_unit_length(q, c):
    return F.normalize(q, dim=0) @ c.mT  # here


class AsALayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.choose = nn.Softmax(dim=0)  # here

    def forward(self, q, c):
        return torch.bmm(self.choose(torch.bmm(q, c.mT)), c)


@pytest.mark.parametrize("target", [over_rows, as_a_method, of_logits, of_unit_length, AsALayer()])
def test_softmax_over_the_batch(target):
    (problem,) = errors(target, Q, C)
    assert problem.rule == "SF304" and at_the_marked_line(problem)
    assert "B" in problem.dims and "dim=-1" in problem.fix


def test_the_axis_that_is_left_is_none_of_size_one():
    (problem,) = errors(over_an_axis_beside_the_score, Q)
    assert problem.rule == "SF304" and problem.fix == "dim=1"


def test_the_message_names_the_axis():
    (problem,) = found("SF304", over_rows, Q, C)
    assert (
        problem.message
        == "softmax goes over axis 0 (B*T), which holds the batch: one example's result depends on the others"
    )


def contrastive(q, c):
    one, other = F.normalize(q.mean(1), dim=-1), F.normalize(c.mean(1), dim=-1)
    scores = one @ other.T
    return F.log_softmax(scores, dim=0).diagonal().mean() + F.log_softmax(scores, dim=1).diagonal().mean()


def over_the_keys(q, c):
    return torch.softmax(q @ c.mT, dim=-1) @ c


def time_first(q, c):
    q, c = q.transpose(0, 1), c.transpose(0, 1)
    return F.normalize(q, dim=0), F.softmax(c.mean(-1), dim=0)


def batch_normalised(q, c):
    return (q - q.mean(0)) / q.std(0)


@pytest.mark.parametrize("target", [contrastive, over_the_keys, time_first, batch_normalised])
def test_softmax_that_leaves_the_batch_alone(target):
    assert errors(target, Q, C) == []


def test_a_bag_of_instances_is_no_batch():
    def pooled(h):
        weights = torch.softmax(h.mean(1, keepdim=True).T, dim=1)
        return weights @ h

    assert errors(pooled, "N 8") == []


# SF305


class OfOneScore(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Linear(8, 1)

    def forward(self, h):
        weights = torch.softmax(self.score(torch.tanh(h)), dim=-1)  # here
        return (weights * h).sum(1)


class OfOneQuery(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Linear(8, 1)

    def forward(self, h):
        weights = self.score(h).transpose(1, 2).softmax(dim=1)  # here
        return torch.bmm(weights, h).squeeze(1)


class Classifier(nn.Module):
    """One score, and nothing to choose from."""

    def __init__(self, last):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 1), last)

    def forward(self, x):
        return self.net(x)


class Choice(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Linear(8, 1)
        self.choose = nn.Softmax(dim=1)  # here

    def forward(self, x):
        return self.choose(self.score(x))


def unsqueezed_first(h):
    scores = h.sum(-1)
    weights = scores.unsqueeze(1).softmax(1)  # here
    return weights @ h


@pytest.mark.parametrize(
    ("target", "fix"), [(OfOneScore(), "dim=1"), (OfOneQuery(), "dim=2"), (unsqueezed_first, "dim=2")]
)
def test_softmax_of_one_number(target, fix):
    (problem,) = errors(target, "B T 8")
    assert problem.rule == "SF305" and at_the_marked_line(problem)
    assert problem.dims == ("T",) and problem.fix == fix
    assert "which has size 1: every result is 1" in problem.message


@pytest.mark.parametrize(
    ("last", "word"),
    [(nn.Softmax(dim=1), "sigmoid"), (nn.Softmax(-1), "sigmoid"), (nn.LogSoftmax(dim=1), "logsigmoid")],
)
def test_a_classifier_with_one_score(last, word):
    (problem,) = errors(Classifier(last), "B 8")
    assert problem.rule == "SF305" and problem.dims == ("1",)
    assert problem.fix == f"{word} of the one score, or a layer of two features"


def test_a_layer_is_wrong_where_its_dim_is_written():
    (problem,) = errors(Choice(), "B 8")
    assert at_the_marked_line(problem)
    assert problem.details[-1].endswith("return self.choose(self.score(x))")


def test_a_layer_that_is_called_twice_is_wrong_in_one_call():
    choose = nn.Softmax(dim=1)

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.score, self.many, self.choose = nn.Linear(8, 1), nn.Linear(8, 3), choose

        def forward(self, x):
            kinds = self.choose(self.many(x))
            return kinds, self.choose(self.score(x))  # here

    (problem,) = errors(Twice(), "B 8")
    assert at_the_marked_line(problem)


class OverTime(OfOneScore):
    def forward(self, h):
        return (self.score(h).softmax(dim=1) * h).sum(1)


class Heads(nn.Module):
    """One group, as a configuration may say."""

    def __init__(self, groups=1):
        super().__init__()
        self.groups = groups
        self.score = nn.Conv2d(8, 8 * groups, 1)

    def forward(self, h):
        x = h.mT.unsqueeze(-1)
        split = self.score(x).view(x.shape[0], self.groups, 8, x.shape[2], 1)
        return (split.softmax(dim=1) * x.unsqueeze(1)).sum(1)


@pytest.mark.parametrize("target", [OverTime(), Heads()])
def test_softmax_over_more_or_over_a_configured_one(target):
    assert errors(target, "B T 8") == []


# SF306


def over_queries(q, c):
    scores = q @ c.transpose(1, 2)
    weights = F.dropout(F.softmax(scores, dim=1), 0.1)  # here
    return weights @ c


def with_einsum(q, c):
    weights = torch.einsum("btd,bnd->btn", q, c).softmax(-2)  # here
    return torch.einsum("btn,bnd->btd", weights, c)


def with_heads(q, c):
    b, t, _ = q.shape
    q, k = q.view(b, t, 2, 4).transpose(1, 2), c.view(b, -1, 2, 4).transpose(1, 2)
    weights = (q @ k.mT).softmax(dim=1)  # here
    return (weights @ k).transpose(1, 2).reshape(b, t, 8)


def with_a_mask(q, c):
    scores = torch.bmm(q, c.transpose(1, 2)) / 8**0.5
    hidden = torch.ones(q.shape[1], c.shape[1], dtype=torch.bool).triu(1)
    weights = scores.masked_fill(hidden, float("-inf")).softmax(1)  # here
    return torch.bmm(weights.to(c.dtype), c)


def moved_on(q, c):
    scores = c @ q.mT
    weights = scores.softmax(dim=-1)  # here
    return weights.transpose(1, 2) @ c


class Scored(nn.Module):
    """Additive attention: no product makes the scores."""

    def __init__(self):
        super().__init__()
        self.score = nn.Linear(8, 1)

    def forward(self, q, c):
        scores = self.score(torch.tanh(q[:, :, None] + c[:, None])).squeeze(-1)
        weights = scores.softmax(1)  # here
        return weights @ c


@pytest.mark.parametrize("target", [over_queries, with_einsum, with_heads, with_a_mask, moved_on, Scored()])
def test_softmax_over_another_axis_than_the_product(target):
    (problem,) = errors(target, Q, C)
    assert problem.rule == "SF306" and at_the_marked_line(problem)
    assert "N" in problem.dims and problem.fix == ("dim=-2" if target is moved_on else "dim=-1")


def test_the_message_names_both_axes():
    (problem,) = found("SF306", over_queries, Q, C)
    assert problem.message == "softmax goes over axis 1 (T), the product behind it sums over axis 2 (N)"
    assert problem.dims == ("T", "N")


def slots(q, c):
    weights = (q @ c.mT).softmax(dim=1) + 1e-8
    return (weights / weights.sum(-1, keepdim=True)) @ c


def efficient(q, c):
    """Queries over features, keys over positions."""
    context = c.softmax(dim=1).mT @ c
    return q.softmax(dim=-1) @ context


def coattention(q, c):
    scores = q @ c.mT
    rows, columns = scores.softmax(2), scores.softmax(1)
    return rows @ c, torch.bmm(torch.bmm(rows, columns.mT), q)


class Assigned(nn.Module):
    """DiffPool: nodes share themselves out to clusters."""

    def __init__(self):
        super().__init__()
        self.assign = nn.Linear(8, 3)

    def forward(self, q, c):
        return self.assign(c).softmax(dim=-1).mT @ c


class SoftAssigned(nn.Module):
    def __init__(self):
        super().__init__()
        self.centres = nn.Parameter(torch.randn(3, 8))

    def forward(self, q, c):
        weights = (c @ self.centres.T).softmax(-1)
        return weights.mT @ c


def both_ways(q, c):
    weights = (q @ c.mT).softmax(-1)
    return weights @ c, weights.mT @ q


@pytest.mark.parametrize(
    "target", [over_the_keys, slots, efficient, coattention, Assigned(), SoftAssigned(), both_ways]
)
def test_softmax_that_belongs_where_it_is(target):
    assert errors(target, Q, C) == []


class HeadsOfOneLinear(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, 2, 4).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1)).softmax(dim=1)  # here
        return (weights @ v).transpose(1, 2).reshape(b, t, d)


def test_softmax_over_the_heads():
    (problem,) = errors(HeadsOfOneLinear(), "B T 8")
    assert problem.rule == "SF306" and at_the_marked_line(problem)
    assert problem.dims == ("2", "T") and problem.fix == "dim=-1"


def test_blocks_that_are_built_alike_are_told_once():
    assert len(errors(nn.Sequential(*[HeadsOfOneLinear() for _ in range(3)]), "B T 8")) == 1


def test_a_score_with_an_axis_that_was_only_needed_for_the_product():
    def pooled(q, memory):
        scores = memory @ q.unsqueeze(-1)
        weights = scores.softmax(dim=-1)  # here
        return (weights * memory).sum(1)

    (problem,) = errors(pooled, "B 8", "B N 8")
    assert problem.rule == "SF305" and at_the_marked_line(problem)
    assert problem.dims == ("N",) and problem.fix == "dim=1"
