"""SF311: losses that normalise by themselves."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.check.rules.found import at_the_marked_line, errors


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 5)


class Twice(Net):
    def forward(self, x, y):
        return F.cross_entropy(torch.softmax(self.head(x), -1), y)  # here


class InALayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(8, 5),
            nn.Softmax(dim=-1),  # here
        )
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x, y):
        return self.loss(self.net(x), y)


class Moved(Net):
    def forward(self, x, y):
        probabilities = self.head(x[:, None]).softmax(dim=-1)  # here
        return F.cross_entropy(probabilities.transpose(1, 2), y[:, None])


class ReadTwice(Net):
    def forward(self, x, y):
        probabilities = self.head(x).softmax(dim=-1)
        return probabilities, F.cross_entropy(probabilities, y)  # here


class NoLogarithm(Net):
    def forward(self, x, y):
        return F.nll_loss(F.softmax(self.head(x), dim=1), y)  # here


@pytest.mark.parametrize("target", [Twice(), InALayer(), Moved(), ReadTwice(), NoLogarithm()])
def test_a_loss_of_probabilities(target):
    (problem,) = errors(target, "B 8", "B:int64")
    assert problem.rule == "SF311" and at_the_marked_line(problem)
    assert problem.dims == ("5",) and problem.fix


def test_sigmoid_twice():
    def loss(x, y):
        return F.binary_cross_entropy_with_logits(x.sigmoid(), y)  # here

    (problem,) = errors(loss, "B 8", "B 8")
    assert at_the_marked_line(problem)
    assert (
        problem.message
        == "binary_cross_entropy_with_logits takes logits and does the sigmoid itself, and gets the result of sigmoid"
    )


def test_divergence_of_probabilities():
    def loss(x, y):
        return F.kl_div(x.softmax(-1), y.softmax(-1), reduction="batchmean")  # here

    (problem,) = errors(loss, "B 8", "B 8")
    assert at_the_marked_line(problem) and problem.fix == "log_softmax(...)"


class Logits(Net):
    def forward(self, x, y):
        logits = self.head(x)
        return logits.softmax(-1), F.cross_entropy(logits, y)


class Logarithms(Net):
    def forward(self, x, y):
        return F.nll_loss(F.log_softmax(self.head(x), -1), y) + F.nll_loss(self.head(x).softmax(-1).log(), y)


class LogarithmsTwice(Net):
    """Superfluous, and right: a log-softmax is its own log-softmax."""

    def forward(self, x, y):
        return F.cross_entropy(F.log_softmax(self.head(x), -1), y)


class Distilled(Net):
    def forward(self, x, y):
        student = F.log_softmax(self.head(x), -1)
        return F.kl_div(student, self.head(x * 2).softmax(-1)) + F.cross_entropy(self.head(x), student.exp())


@pytest.mark.parametrize("target", [Logits(), Logarithms(), LogarithmsTwice(), Distilled()])
@pytest.mark.filterwarnings("ignore:reduction")
def test_a_loss_of_what_it_takes(target):
    assert errors(target, "B 8", "B:int64") == []
