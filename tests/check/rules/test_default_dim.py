"""SF314: functions that take axis 1, or axis 0, when nobody says which."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.check.rules.found import at_the_marked_line, errors

pytestmark = pytest.mark.filterwarnings("ignore:Implicit dimension")


def normalized(x, y):
    return F.normalize(x) @ y.mT  # here


def of_order_one(x, y):
    return F.normalize(x, p=1) + y  # here


def similar(x, y):
    return F.cosine_similarity(x, y)  # here


def all_pairs(x, y):
    x, y = x.mean(1), y.mean(1)
    return torch.cosine_similarity(x[:, None], y[None])  # here


class Similar(nn.Module):
    def __init__(self):
        super().__init__()
        self.similarity = nn.CosineSimilarity()  # here

    def forward(self, x, y):
        return self.similarity(x, y)


def soft(x, y):
    return F.softmax(x * y)  # here


class Soft(nn.Module):
    def __init__(self):
        super().__init__()
        self.softmax = nn.Softmax()  # here

    def forward(self, x, y):
        return self.softmax(x @ y.mT) @ y


@pytest.mark.parametrize("target", [normalized, of_order_one, similar, all_pairs, Similar()])
def test_the_second_axis_by_default(target):
    (problem,) = errors(target, "B T 8", "B T 8")
    assert problem.rule == "SF314" and at_the_marked_line(problem)
    assert problem.dims == (("B",) if target is all_pairs else ("T",)) and "dim=-1" in problem.fix


@pytest.mark.parametrize("target", [soft, Soft()])
def test_the_first_axis_by_default(target):
    (problem,) = errors(target, "B T 8", "B T 8")
    assert problem.rule == "SF314" and at_the_marked_line(problem)
    assert problem.dims == ("B",) and "dim=-1" in problem.fix


def said(x, y):
    return F.normalize(x, dim=1), F.normalize(x, 2, -1), F.cosine_similarity(x, y, dim=1), F.softmax(x, -1)


def of_channels(x, y):
    return F.normalize(x.mT), F.cosine_similarity(x.mT, y.mT)


def of_matrices(x, y):
    return F.normalize(x.mean(1)), F.cosine_similarity(x.mean(1), y.mean(1)), F.softmax(x.mean(1))


def of_maps(x, y):
    return F.normalize(x.mT.unsqueeze(-1)), F.normalize(y[..., None])


@pytest.mark.parametrize("target", [said, of_channels, of_matrices, of_maps])
def test_an_axis_that_is_said_or_right(target):
    assert errors(target, "B T 8", "B T 8") == []


def test_of_two_free_sizes_their_names_tell():
    def unit(x):
        return F.normalize(x)  # here

    (problem,) = errors(unit, "B T D")
    assert problem.rule == "SF314" and at_the_marked_line(problem)
    assert errors(unit, "B C L") == errors(unit, "B C H") == errors(unit, "B 8 T") == []
