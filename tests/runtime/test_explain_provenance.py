"""Names for tensors that no annotation names: by where they come from, without running anything again."""

import re

import pytest
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

import shapeflow as sf


def note_of(target, *inputs):
    with pytest.raises(Exception) as caught, sf.explain():
        target(*inputs)
    (note,) = caught.value.__notes__
    assert "fault of shapeflow's own" not in note
    return note


def shape_of(name, target, *inputs):
    """The shape that a row of the note gives a name."""
    found = re.search(rf"^ +{re.escape(name)}  +(.*?)(  |$)", note_of(target, *inputs), flags=re.MULTILINE)
    return found[1]


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.n = nn.Linear(16, 16), 4
        self.layers = nn.ModuleList([nn.Linear(16, 16), nn.Linear(16, 16)])
        self.net = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 16))
        self.calls = []


class Scores(Base):
    def forward(self, x: Float[Tensor, "B T 16"]):
        q, k = self.lin(x), self.lin(x)
        s = q @ k.transpose(1, 2)
        return s + x


class Loops(Base):
    def forward(self, x: Float[Tensor, "B T 16"]):
        h = x
        for layer in self.layers:
            h = layer(h) + h
        return h @ h


class Stops(Base):
    """Fails at the second turn of its loop."""

    def forward(self, x: Float[Tensor, "B T 16"]):
        h = x
        for layer, cut in zip(self.layers, (0, 1), strict=True):
            g = layer(h)[:, cut:]
            h = h + g
        return h


class Splits(Base):
    def forward(self, x: Float[Tensor, "B T 16"]):
        b, t, d = x.shape
        y = x.view(b, t, self.n, d // self.n).transpose(1, 2)
        z = y.reshape(b * self.n, t, -1)
        return z + torch.zeros(7, 7, 7)


class Branches(Base):
    def forward(self, x: Float[Tensor, "B T 16"], flip: bool = False):
        y = x.transpose(1, 2) if flip else x
        if x.shape[1] > 3:
            z = torch.cat([y, y], dim=-1)
            y = z.contiguous()
        else:
            y = y[:, :1]
        return y.view(3)


class Helper(Base):
    def twice(self, h):
        self.calls.append(1)
        return torch.cat([h, h], dim=1)

    def forward(self, x: Float[Tensor, "B T 16"]):
        y = self.twice(self.net(x))
        return y @ y


class Inner(Base):
    def forward(self, h, *, scale=1.0):
        g = self.lin(h) * scale
        return g @ g


class Outer(Base):
    def __init__(self):
        super().__init__()
        self.inner, self.tok = Inner(), nn.Embedding(5, 16)

    def forward(self, ids: Int[Tensor, "B T"]):
        h = self.net(self.tok(ids))
        return self.inner(h, scale=2.0)


class Opaque(Base):
    def forward(self, x: Float[Tensor, "B T 16"]):
        y = torch.from_numpy(x.numpy())  # leaves what can be followed
        z = self.net(y)
        return z @ z


class Halves(Base):
    def forward(self, x: Float[Tensor, "B C H W"]):
        y = F.max_pool2d(x, 2)
        z = F.pad(x, (1, 1))
        return y + z


class Depends(Base):
    def forward(self, x: Float[Tensor, "B T 16"]):
        y = x + 1
        if x.sum() > 1e9:
            y = x[:, 1:]
        return y @ x


@pytest.mark.parametrize(
    ("model", "name", "shape"),
    [
        (Scores(), "s", "B T T = 2 5 5"),
        (Loops(), "h", "B T 16 = 2 5 16"),
        (Stops(), "g", "B (T - 1) 16 = 2 4 16"),
        (Splits(), "z", "4*B T 4 = 8 5 4"),
        (Branches(), "y", "B T 32 = 2 5 32"),
        (Helper(), "y", "B 2*T 16 = 2 10 16"),
        (Opaque(), "z", "2 5 16"),
        (Depends(), "y", "2 5 16"),
    ],
)
def test_names_by_origin(model, name, shape):
    assert shape_of(name, model, torch.randn(2, 5, 16)) == shape
    assert len(model.calls) == (name == "y" and isinstance(model, Helper))


def test_equal_sizes_are_told_apart():
    assert shape_of("s", Scores(), torch.randn(5, 5, 16)) == "B T T = 5 5 5"
    assert shape_of("s", Scores(), torch.randn(16, 16, 16)[:, :5]) == "B T T = 16 5 5"


def test_a_rounded_half_is_no_name():
    assert shape_of("y", Halves(), torch.randn(2, 3, 8, 10)) == "B C 4 5 = 2 3 4 5"
    assert shape_of("z", Halves(), torch.randn(2, 3, 8, 10)) == "B C H (W + 2) = 2 3 8 12"


def test_names_reach_the_modules_below():
    note = note_of(Outer(), torch.zeros(2, 7, dtype=torch.int64))
    assert "shapeflow: in inner (Inner of Outer)" in note
    assert "g  B T 16 = 2 7 16" in note
    assert "axis: axis 2 of g is 16, axis 1 of g is T = 7" in note
