"""SF309 and SF310: tables read along the batch, squeezes that drop a batch of one."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.check.rules.found import at_the_marked_line, errors, found


class Positions(nn.Module):
    """A table (max_len, 1, d), as in torch's tutorial, whose inputs are (T, B, d)."""

    def __init__(self):
        super().__init__()
        self.register_buffer("pe", torch.zeros(50, 1, 8))
        self.register_buffer("flat", torch.zeros(50, 8))
        self.register_buffer("wide", torch.zeros(1, 50, 8))
        self.table = nn.Embedding(50, 8)
        self.learned = nn.Parameter(torch.zeros(50, 8))


class Tutorial(Positions):
    def forward(self, x):
        x = x + self.pe[: x.size(0)]  # here
        return F.dropout(x, 0.1, self.training)


class OfAllAxes(Positions):
    def forward(self, x):
        return x + self.pe[: x.size(0), :]  # here


class Added(Positions):
    def forward(self, x):
        b = x.shape[0]
        return torch.add(x, self.pe[:b])  # here


class Learned(Positions):
    def forward(self, x):
        b, _, _ = x.shape
        return x + self.learned[:b].unsqueeze(1)  # here


class Narrowed(Positions):
    def forward(self, x):
        return x + self.pe.narrow(0, 0, x.shape[0])  # here


class Embedded(Positions):
    def forward(self, x):
        positions = torch.arange(x.shape[0])
        return x + self.table(positions)[:, None]  # here


class EmbeddedExpanded(Positions):
    def forward(self, x):
        b, t, _ = x.shape
        positions = torch.arange(b).unsqueeze(1).expand(b, t)
        return x + self.table(positions)  # here


class OfLength(Positions):
    def forward(self, x):
        n = len(x)
        return x + self.flat[:n].view(n, 1, 8)  # here


class TurnedRound(Positions):
    def forward(self, x):
        return x + self.wide[:, : x.shape[0]].transpose(0, 1)  # here


class Counted(Positions):
    def forward(self, x):
        index = torch.arange(x.size(0))
        return x + self.flat[index].unsqueeze(1)  # here


class Selected(Positions):
    def forward(self, x):
        index = torch.arange(x.size(0))
        return x + self.pe.index_select(0, index)  # here


WRONG = [
    Tutorial,
    OfAllAxes,
    Added,
    Learned,
    Narrowed,
    Embedded,
    EmbeddedExpanded,
    OfLength,
    Counted,
    Selected,
    TurnedRound,
]


@pytest.mark.parametrize("kind", WRONG)
def test_a_table_read_up_to_the_batch_size(kind):
    problems = found("SF309", kind(), "B T 8")
    assert len(problems) == 1
    (problem,) = problems
    assert problem.level == "error" and at_the_marked_line(problem)
    assert problem.dims == ("B",) and problem.fix


@pytest.mark.parametrize(
    ("kind", "fix"),
    [
        (Tutorial, "self.pe[: x.size(1)].transpose(0, 1)"),
        (Added, "self.pe[: x.shape[1]].transpose(0, 1)"),
        (Narrowed, "self.pe.narrow(0, 0, x.shape[1]).transpose(0, 1)"),
        (TurnedRound, "self.wide[:, : x.shape[1]]"),
        (Embedded, "torch.arange(x.shape[1])"),
    ],
)
def test_the_fix_reads_up_to_the_length(kind, fix):
    (problem,) = found("SF309", kind(), "B T 8")
    assert problem.fix == fix


class UpToTheLength(Positions):
    def forward(self, x):
        return x + self.pe[: x.shape[1]].transpose(0, 1) + self.flat[: x.size(1)] + self.wide[:, : x.size(1)]


class TimeFirst(Positions):
    def forward(self, x):
        return x + self.pe[: x.size(0)]


class Rows(nn.Module):
    """One row for each example, kept on purpose: a state, a memory bank."""

    def __init__(self):
        super().__init__()
        self.register_buffer("state", torch.zeros(1, 8))

    def forward(self, x):
        return x + self.state.expand(x.shape[0], 8)


class CacheOfABatch(nn.Module):
    """The cache of the first Llama: (max_batch, max_len, d), read along both."""

    def __init__(self):
        super().__init__()
        self.register_buffer("held", torch.zeros(4, 50, 8))

    def forward(self, x):
        b, t, _ = x.shape
        keys = self.held[:b, :t]
        return (x @ keys.transpose(1, 2)).softmax(-1) @ keys + x


class StateOfABatch(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(8, 8)
        self.register_buffer("start", torch.zeros(50, 8))
        self.register_buffer("layers", torch.zeros(3, 50, 8))

    def forward(self, x):
        first, *_ = self.layers[:, : x.shape[0]] + x
        return self.cell(x, self.start[: x.shape[0]]) + self.start[: x.shape[0]] + first


class Queries(nn.Module):
    def __init__(self):
        super().__init__()
        self.queries = nn.Embedding(7, 8)

    def forward(self, x):
        return x.mean(1, keepdim=True) + self.queries.weight.unsqueeze(0).repeat(x.shape[0], 1, 1)


class Chosen(nn.Module):
    """The last real token of each example."""

    def forward(self, x, length):
        return x[torch.arange(x.shape[0]), length]


class PositionIds(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("ids", torch.arange(50).expand(1, -1))
        self.table = nn.Embedding(50, 8)

    def forward(self, x):
        return x + self.table(self.ids[:, : x.shape[1]])


class TypeIds(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("zeros", torch.zeros(1, 50, dtype=torch.long))
        self.table = nn.Embedding(2, 8)

    def forward(self, x):
        kinds = self.zeros[:, : x.shape[1]].expand(x.shape[0], x.shape[1])
        return x + self.table(kinds)


class CausalTable(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.ones(50, 50).tril())

    def forward(self, x):
        t = x.shape[1]
        return (x @ x.transpose(1, 2)).masked_fill(self.mask[:t, :t] == 0, -1e9).softmax(-1) @ x


RIGHT = [
    (UpToTheLength, ("B T 8",)),
    (TimeFirst, ("T B 8",)),
    (Rows, ("B 8",)),
    (CacheOfABatch, ("B<=4 T<=50 8",)),
    (StateOfABatch, ("B 8",)),
    (Queries, ("B T 8",)),
    (Chosen, ("B T 8", "B:int64")),
    (PositionIds, ("B T 8",)),
    (TypeIds, ("B T 8",)),
    (CausalTable, ("B T 8",)),
]


@pytest.mark.parametrize(("kind", "specs"), RIGHT)
def test_a_table_read_along_its_own_axis_is_no_finding(kind, specs):
    assert errors(kind(), *specs) == []


# SF310


class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.pool = nn.Conv2d(3, 8, 3, padding=1), nn.AdaptiveAvgPool2d(1)
        self.head, self.one = nn.Linear(8, 5), nn.Linear(8, 1)


class PooledBare(Pooled):
    def forward(self, x):
        f = torch.squeeze(self.pool(self.conv(x)))  # here
        return self.head(f)


class PooledMethod(Pooled):
    def forward(self, x):
        x = self.pool(self.conv(x))
        return self.head(x.squeeze())  # here


class Scores(Pooled):
    def forward(self, x):
        logits = self.one(x.mean((2, 3)) @ torch.ones(3, 8))
        return logits.squeeze()  # here


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(1, keepdim=True).squeeze()  # here


class LastToken(nn.Module):
    def forward(self, x):
        return x[:, -1:, :].squeeze()  # here


class Gathered(nn.Module):
    def forward(self, logits, y):
        return logits.log_softmax(-1).gather(-1, y[..., None]).squeeze()  # here


class InOrder(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Linear(8, 1)

    def forward(self, x):
        weights = torch.softmax(self.score(x).squeeze(), -1)  # here
        return weights.sum(-1)


SQUEEZED = [
    (PooledBare, ("B 3 H W",), ("B",), "self.pool(self.conv(x)).flatten(1)"),
    (PooledMethod, ("B 3 H W",), ("B",), "x.flatten(1)"),
    (Scores, ("B 3 H W",), ("B",), "logits.squeeze(-1)"),
    (Mean, ("B T 8",), ("B",), "x.mean(1, keepdim=True).squeeze(1)"),
    (LastToken, ("B T 8",), ("B",), "x[:, -1:, :].squeeze(1)"),
    (Gathered, ("B T 9", "B T:int64"), ("B", "T"), "logits.log_softmax(-1).gather(-1, y[..., None]).squeeze(-1)"),
    (InOrder, ("B T 8",), ("B", "T"), "self.score(x).squeeze(-1)"),
]


@pytest.mark.parametrize(("kind", "specs", "dims", "fix"), SQUEEZED)
def test_a_bare_squeeze_that_can_drop_a_free_axis(kind, specs, dims, fix):
    problems = found("SF310", kind(), *specs)
    assert len(problems) == 1
    (problem,) = problems
    assert problem.level == "error" and at_the_marked_line(problem)
    assert problem.dims == dims
    assert problem.fix == fix


class Flat(Pooled):
    def forward(self, x):
        x = self.pool(self.conv(x))
        return self.head(x.flatten(1)) + self.head(x.squeeze(-1).squeeze(-1)) + self.head(x[..., 0, 0])


class OfNamedAxes(nn.Module):
    def forward(self, x):
        return x.mean(1, keepdim=True).squeeze(1) + x.amax((1,), keepdim=True).squeeze(dim=1)


class OfAParameter(nn.Module):
    """All its sizes are known."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(1, 8, 1))

    def forward(self, x):
        return x * self.scale.squeeze()


class OfOneImage(nn.Module):
    def forward(self, x):
        return x.squeeze()


class OfFewBounded(nn.Module):
    def forward(self, x):
        return x.mean(1, keepdim=True).squeeze()


KEPT = [
    (Flat, ("B 3 H W",)),
    (OfNamedAxes, ("B T 8",)),
    (OfAParameter, ("B 8",)),
    (OfOneImage, ("1 3 5",)),
    (OfFewBounded, ("B>=2 T 8",)),
]


@pytest.mark.parametrize(("kind", "specs"), KEPT)
def test_a_squeeze_that_drops_what_is_meant_is_no_finding(kind, specs):
    assert errors(kind(), *specs) == []
