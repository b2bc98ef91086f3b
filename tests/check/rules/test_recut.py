"""SF301: views that splice axes, in many styles, and the views of real models that look like them."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.check.rules.found import at_the_marked_line, errors, found

X = "B T 24"
HEADS = "B 3 T 8"
IMAGE = "B 3 H W"


def merged(y):
    b, _, t, _ = y.shape
    return y.reshape(b, t, 24)  # here


def merged_behind_contiguous(y):
    y = y.contiguous()
    return y.view(y.size(0), y.size(2), -1)  # here


def merged_by_flatten_of_the_wrong_two(y):
    return torch.reshape(y, (y.shape[0], -1, 24))  # here


def split_into_heads(x):
    b, t, d = x.shape
    return x.view(b, 3, t, d // 3)  # here


def split_by_the_module(x):
    return x.reshape(x.shape[0], 4, -1, 6).softmax(-1)  # here


def time_first(x):
    return x.view(x.shape[1], x.shape[0], x.shape[2])  # here


def features_first(x):
    b, t, d = x.size()
    return x.reshape(b, d, t)  # here


def features_first_of_a_linear(x):
    h = F.relu(x)
    return h.view(h.size(0), h.size(2), h.size(1)).mean(-1)  # here


def tokens_of_an_image(x):
    b, c, h, w = x.shape
    return x.view(b, h * w, c)  # here


def tokens_without_the_width(x):
    return x.reshape(x.shape[0], -1, 3)  # here


def channels_last(x):
    b, c, h, w = x.shape
    return x.reshape(b, h, w, c)  # here


def image_of_tokens(x):
    b, n, c = x.shape
    return x.view(b, c, n)  # here


def patches_without_a_permutation(x):
    b, c, h, w = x.shape
    x = x.view(b, c, h // 4, 4, w // 4, 4)
    return x.reshape(b, (h // 4) * (w // 4), c * 16)  # here


def merged_axis_the_other_way(x):
    t = x.shape[1]
    return x.flatten(1, 2).unflatten(1, (3, t))  # here


def layers_into_features(h):
    return h.view(-1, 2 * 16)  # here


def layers_into_features_by_size(h):
    return h.reshape(h.shape[1], -1)  # here


def batch_and_heads_the_other_way(x):
    b, t, _ = x.shape
    y = x.view(b, t, 3, 8).transpose(1, 2).reshape(b * 3, t, 8)
    return y.view(3, b, t, 8)  # here


class Hidden(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(8, 16, bidirectional=True, batch_first=True)
        self.head = nn.Linear(32, 5)

    def forward(self, x):
        _, (h, _) = self.rnn(x)
        return self.head(h.reshape(x.size(0), -1))  # here


class Merged(nn.Module):
    def __init__(self):
        super().__init__()
        self.packed, self.out = nn.Linear(24, 72), nn.Linear(24, 24)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (part.unflatten(-1, (3, 8)).transpose(1, 2) for part in self.packed(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.reshape(b, t, d))  # here


class MergedEinsum(nn.Module):
    def forward(self, x):
        b, t, d = x.shape
        h = x.view(b, t, 3, 8)
        w = torch.einsum("bthd,bshd->bhts", h, h).softmax(-1)
        y = torch.einsum("bhts,bshd->bhtd", w, h)
        return y.reshape(b, t, d)  # here


class TokensOfAConvolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 4, 4)

    def forward(self, x):
        y = self.conv(x)
        b, c, h, w = y.shape
        return y.reshape(b, h * w, c)  # here


WRONG = [
    (merged, HEADS, ("T", "8"), "(3, T", "y.transpose(1, 2).reshape(b, t, 24)"),
    (merged_behind_contiguous, HEADS, ("T",), "", "y.transpose(1, 2).reshape("),
    (merged_by_flatten_of_the_wrong_two, HEADS, ("T",), "", "y.transpose(1, 2).reshape("),
    (split_into_heads, X, ("T",), "", ""),
    (split_by_the_module, X, ("T",), "", ""),
    (time_first, X, ("B", "T"), "", "x.transpose(0, 1)"),
    (features_first, X, ("T",), "", "x.transpose(1, 2)"),
    (features_first_of_a_linear, X, ("T",), "", "h.transpose(1, 2)"),
    (tokens_of_an_image, IMAGE, ("H", "W"), "", "x.flatten(2).transpose(1, 2)"),
    (tokens_without_the_width, IMAGE, ("H", "W"), "", "x.flatten(2).transpose(1, 2)"),
    (channels_last, IMAGE, ("H", "W"), "", "x.permute(0, 2, 3, 1)"),
    (image_of_tokens, "B N 7", ("N",), "", "x.transpose(1, 2)"),
    (patches_without_a_permutation, "B 3 32 32", ("3",), "", ""),
    (patches_without_a_permutation, "B 3 4*h 4*w", ("h",), "", ""),
    (merged_axis_the_other_way, "B T 3 8", ("T",), "", ""),
    (layers_into_features, "2 B 16", ("B",), "", "h.transpose(0, 1).reshape(-1, 2 * 16)"),
    (layers_into_features_by_size, "2 B 16", ("B",), "", "h.transpose(0, 1).reshape("),
    (batch_and_heads_the_other_way, X, ("B",), "", ""),
    (Hidden(), "B T 8", ("B",), "", "torch.cat((h[0], h[1]), 1)"),
    (Merged(), X, ("T",), "", "y.transpose(1, 2).reshape(b, t, d)"),
    (MergedEinsum(), X, ("T",), "", "y.transpose(1, 2).reshape(b, t, d)"),
    (TokensOfAConvolution(), "B 3 H W", (), "", "y.flatten(2).transpose(1, 2)"),
]


def name(target):
    return getattr(target, "__name__", type(target).__name__)


@pytest.mark.parametrize(("target", "spec", "dims", "message", "fix"), WRONG, ids=[name(each[0]) for each in WRONG])
def test_a_view_that_splices_is_an_error_at_its_line(target, spec, dims, message, fix):
    problems = found("SF301", target, spec)
    assert len(problems) == 1
    (problem,) = problems
    assert problem.level == "error" and at_the_marked_line(problem)
    assert set(dims) <= set(problem.dims)
    assert message in problem.message
    assert fix in problem.fix and problem.fix


# Right


def heads_merged(y):
    b, _, t, _ = y.shape
    return y.transpose(1, 2).reshape(b, t, 24)


def heads_flattened(y):
    return y.transpose(1, 2).contiguous().flatten(2)


def heads_split(x):
    b, t, d = x.shape
    return x.view(b, t, 3, d // 3).transpose(1, 2)


def packed_three(x):
    b, t, d = x.shape
    q, k, v = x.view(b, t, 3, 2, d // 6).permute(2, 0, 3, 1, 4)
    return (q @ k.transpose(-1, -2)) @ v


def tokens(x):
    return x.flatten(2).transpose(1, 2)


def flat(x):
    return x.view(x.size(0), -1)


def loss_of_all_tokens(x):
    return x.reshape(-1, x.shape[-1])


def image_again(x):
    b, _, c = x.shape
    h = w = 7
    return x.transpose(1, 2).reshape(b, c, h, w)


def patches(x):
    b, c, h, w = x.shape
    p = 4
    x = x.reshape(b, c, h // p, p, w // p, p)
    return x.permute(0, 2, 4, 3, 5, 1).reshape(b, (h // p) * (w // p), p * p * c)


def windows_and_back(x):
    b, h, w, c = x.shape
    s = 7
    y = x.view(b, h // s, s, w // s, s, c).permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, s, s, c)
    y = y.view(-1, s * s, c) * 2
    y = y.view(-1, s, s, c)
    n = int(y.shape[0] / (h * w / s / s))
    y = y.view(n, h // s, w // s, s, s, c)
    return y.permute(0, 1, 3, 2, 4, 5).contiguous().view(n, h, w, -1)


def channel_shuffle(x):
    b, c, h, w = x.shape
    return x.view(b, 2, c // 2, h, w).transpose(1, 2).contiguous().view(b, -1, h, w)


def space_to_depth(x):
    b, c, h, w = x.size()
    x = x.view(b, c, h // 4, 4, w // 4, 4).permute(0, 3, 5, 1, 2, 4).contiguous()
    return x.view(b, c * 16, h // 4, w // 4)


def shifted(x):
    b, h, t, _ = x.shape
    x = torch.cat((x.new_zeros(b, h, t, 1), x), -1)
    return x.view(b, h, t + 1, t)[:, :, 1:]


def shifted_by_pad(x):
    b, h, q, m = x.shape
    x = F.pad(x, (1, 0)).reshape(b, h, m + 1, q)
    return x[:, :, 1:].reshape(b, h, q, m)


def shifted_by_a_lost_row(x):
    b, h, q, m = x.shape
    x = x.reshape(b, h, m, q)[:, :, 1:]
    return x.reshape(b, h, q, m - 1)[..., :q]


def grouped_heads(k):
    b, h, t, d = k.shape
    return k[:, :, None].expand(b, h, 4, t, d).reshape(b, h * 4, t, d)


def batch_in_heads(x):
    b, t, _ = x.shape
    y = x.view(b, t, 3, 8).transpose(1, 2).reshape(b * 3, t, 8)
    y = y @ y.transpose(1, 2) @ y
    return y.view(b, 3, t, 8).transpose(1, 2).reshape(b, t, 24)


def directions(h):
    return h.view(3, 2, h.shape[1], 16)[-1].transpose(0, 1).flatten(1)


def of_a_square(x):
    return x.reshape(x.shape[0], 8, 8).transpose(1, 2).reshape(x.shape[0], 64)


def chunked_time(x):
    b, t, d = x.shape
    return x.view(b, t // 4, 4, d).mean(2)


def stacked_frames(x):
    b, t, d = x.shape
    return x.reshape(b, t // 4, 4 * d)


def groups_of_channels(x):
    b, c, h, w = x.shape
    y = x.reshape(b, 4, -1)
    y = (y - y.mean(-1, keepdim=True)) / y.std(-1, keepdim=True)
    return y.view(b, c, h, w)


def batch_in_channels(x):
    b, c, h, w = x.shape
    weight = torch.ones(c * 1, 1, 3, 3)
    return F.conv2d(x.reshape(1, b * c, h, w), weight.repeat(b, 1, 1, 1), groups=b * c, padding=1).view(b, c, h, w)


def gates(x):
    b, t, _ = x.shape
    return x.view(b, t, 2, -1).unbind(2)[0]


def spread(x):
    b, t, d = x.shape
    return x.unsqueeze(2).repeat(1, 1, 5, 1).view(b, t * 5, d)


def table_for_windows(table):
    index = torch.arange(49 * 49).view(49, 49) % 169
    return table[index.view(-1)].view(49, 49, -1).permute(2, 0, 1)


def interpolated(table):
    side = table.reshape(1, 7, 7, 24).permute(0, 3, 1, 2)
    side = F.interpolate(side, size=(9, 9), mode="bilinear", align_corners=False)
    return side.permute(0, 2, 3, 1).view(1, -1, 24)


def unfolded(x):
    b, c, h, w = x.shape
    return F.unfold(x, 3, padding=1).view(b, c, 9, h, w).sum(2)


def rotated_pairs(x):
    one, other = x.reshape(*x.shape[:-1], -1, 2).unbind(-1)
    return torch.stack((-other, one), -1).flatten(-2)


class BlocksThenGrid(nn.Module):
    """MaxViT: windows of neighbours, and then of tokens that stand far apart."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(49, 49)

    def forward(self, x):
        b, h, c = x.shape
        y = self.mix(x.transpose(1, 2).reshape(b, c, h // 49, 49)).reshape(b, c, h)
        return y.view(b, c, 49, h // 49).transpose(2, 3)


RIGHT = [
    (BlocksThenGrid(), "B 147 4"),
    (BlocksThenGrid(), "B 49*n 4"),
    (heads_merged, HEADS),
    (heads_flattened, HEADS),
    (heads_split, X),
    (packed_three, X),
    (tokens, IMAGE),
    (flat, IMAGE),
    (loss_of_all_tokens, X),
    (image_again, "B 49 16"),
    (patches, "B 3 32 48"),
    (patches, "B 3 4*h 4*w"),
    (windows_and_back, "B 14 21 6"),
    (windows_and_back, "B 7*h 7*w 6"),
    (channel_shuffle, "B 8 H W"),
    (space_to_depth, "B 3 16 24"),
    (shifted, "B 3 T T"),
    (shifted_by_pad, "B 3 T S"),
    (shifted_by_a_lost_row, "B 3 T S"),
    (shifted_by_a_lost_row, "B 3 T 2*T"),  # the first view alone could be a split and a merge
    (grouped_heads, "B 2 T 8"),
    (batch_in_heads, X),
    (directions, "6 B 16"),
    (of_a_square, "B 64"),
    (chunked_time, "B 4*n 6"),
    (stacked_frames, "B 4*n 6"),
    (groups_of_channels, "B 8 H W"),
    (batch_in_channels, IMAGE),
    (gates, X),
    (spread, X),
    (table_for_windows, "169 3"),
    (interpolated, "49 24"),
    (unfolded, IMAGE),
    (rotated_pairs, HEADS),
]


@pytest.mark.parametrize(("target", "spec"), RIGHT, ids=[f"{name(each[0])} {each[1]}" for each in RIGHT])
def test_a_view_that_is_meant_so_is_no_finding(target, spec):
    assert errors(target, spec) == []
