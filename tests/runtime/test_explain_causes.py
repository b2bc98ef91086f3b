"""Where the line that raised is not the one at fault, and causes that no operator's arguments tell."""

import re

import pytest
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

import shapeflow as sf


class SqueezedBatch(nn.Module):
    def forward(self, x: Float[Tensor, "B T 1"], y: Float[Tensor, "B T"]):
        flat = x.squeeze()
        return torch.cat([flat, y], dim=1)


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.head = nn.Linear(1, 1), nn.Linear(1, 3)

    def forward(self, x: Float[Tensor, "B 1"], weights: Float[Tensor, " B"]):
        h = self.scale(x) * weights
        return self.head(h.relu())


class Joined(nn.Module):
    """`along` is the axis of a cat whose result goes into a layer that reads another one."""

    def __init__(self, along, layer):
        super().__init__()
        self.along, self.layer = along, layer

    def forward(self, x: Float[Tensor, "B C H W"], skip: Float[Tensor, "B C H W"]):
        both = torch.cat([x, skip], dim=self.along)
        return self.layer(both.relu())


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Sequential(nn.Conv2d(16, 4, 3)))

    def forward(self, x):
        return self.net(x)


class Padded(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)

    def forward(self, x: Float[Tensor, "B T 6"], mask: Bool[Tensor, "B T"]):
        return self.attention(x, x, x, attn_mask=mask)[0]


class Elsewhere(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.zeros(3, device="meta")

    def forward(self, x):
        return x + self.table


def unpacks(x: Float[Tensor, "B T d"]):
    b, t = x.shape
    return x.view(b * t, -1)


def chunks(x: Float[Tensor, "B T d"]):
    q, k, v = x.chunk(2, -1)
    return q @ k @ v


def loss(logits: Float[Tensor, "B C"], target):
    return F.cross_entropy(logits, target)


@pytest.mark.parametrize(
    ("target", "inputs", "expected"),
    [
        (
            SqueezedBatch(),
            [torch.zeros(1, 5, 1), torch.zeros(1, 5)],
            r"cause: squeeze\(\) of B T 1 drops its batch, B = 1, too: 5 is left\n"
            r"  fix: \.squeeze\(-1\)\n  fault: .*flat = x.squeeze\(\)",
        ),
        (
            Outer(),
            [torch.zeros(7, 1), torch.zeros(7)],
            r"cause: Linear 'head' takes 1, gets B=7: it is B 1 and B, which broadcast to B B: the axes of B stand 1 "
            r"too far right\n  fix: \.unsqueeze\(-1\)\n  fault: .*h = self.scale\(x\) \* weights",
        ),
        (
            Joined(2, nn.Conv2d(8, 3, 1)),
            [torch.zeros(2, 4, 5, 7)] * 2,
            r"cause: Conv2d 'layer' takes 8, gets C=4: it is a cat along axis 2 of B C H W and B C H W; along axis 1 "
            r"they add up to 8\n  fix: dim=1\n  fault: .*torch.cat",
        ),
        (Joined(1, nn.Linear(14, 3)), [torch.zeros(2, 4, 5, 7)] * 2, r"along axis 3 they add up to 14\n  fix: dim=-1"),
        (Joined(2, nn.BatchNorm2d(8)), [torch.zeros(2, 4, 5, 7)] * 2, r"along axis 1 they add up to 8\n  fix: dim=1"),
        (
            Joined(1, nn.Conv2d(9, 3, 1)),  # no axis would do
            [torch.zeros(2, 4, 5, 7)] * 2,
            r"cause: Conv2d 'layer' takes 9 channels, gets 2\*C=8, axis 1 of .*: in_channels is wrong",
        ),
        (
            Inner(),
            [torch.zeros(2, 3, 9, 9)],
            r"axis: axis 1 of input of net.1.0 is 8, net.1.0.weight is for 16 channels",
        ),
        (
            Padded(),
            [torch.zeros(2, 5, 6), torch.zeros(2, 5, dtype=torch.bool)],
            r"takes attn_mask of 5 5, gets 2 5: one row for each sample is a key_padding_mask\n"
            r"  fix: key_padding_mask=mask",
        ),
        (
            Elsewhere(),
            [torch.zeros(2, 3)],
            r"cause: x is on cpu, self.table is on meta\n"
            r"  fix: self.table.to\(x.device\), or register_buffer, which moves with the module",
        ),
        (unpacks, [torch.zeros(2, 3, 5)], r"cause: x.shape has 3 items, 2 3 5, and 2 names are given"),
        (chunks, [torch.zeros(2, 3, 6)], r"cause: x.chunk\(2, -1\) has 2 items, and 3 names are given"),
        (
            loss,
            [torch.zeros(3, 7), torch.tensor([1, 7, 2])],
            r"cause: cross_entropy: logits \(B C\) has the classes 0 to 6, the greatest class number in target is 7",
        ),
    ],
)
def test_the_cause_in_the_note(target, inputs, expected):
    with pytest.raises(Exception) as caught, sf.explain():
        target(*inputs)
    (note,) = caught.value.__notes__
    assert re.search(expected, note), note
    assert "fault of shapeflow's own" not in note
