"""Where axes come from: what operators keep, move, merge, split, copy; and what is not known."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import shapeflow as sf
from shapeflow.check.axes import Axes
from shapeflow.check.axis import Factor
from shapeflow.check.nodes import operator_of
from shapeflow.check.regroup import groups, nested, reordered
from shapeflow.dims.expr import Expr

B, T, H, W, C = (Expr.symbol(name) for name in "BTHWC")


def traced(function, *specs):
    trace = sf.trace(function, *specs)
    return trace, Axes(trace, trace._attempt.env)


def shapes(function, *specs):
    """The axes of the inputs and those of the output."""
    trace, axes = traced(function, *specs)
    *_, output = trace.graph.nodes
    inputs = [axes.of(node) for node in trace.graph.nodes if node.op == "placeholder"]
    return inputs, axes.of(output.args[0])


def kinship(function, *specs):
    """For each axis of the output where it stems from: `0.1` is axis 1 of the first input, `?` is new, `1` a size."""
    inputs, output = shapes(function, *specs)
    known = {f.id: f"{n}.{at}" for n, shape in enumerate(inputs) for at, axis in enumerate(shape) for f in axis.factors}
    return ["*".join(_origin(known, factor) for factor in axis.factors) or "1" for axis in output]


def _origin(known, factor):
    if factor.id in known:
        return known[factor.id]
    return f"{known[factor.id[:1]]}/{factor.id[1]}" if factor.id[:1] in known else "?"


MOVES = [
    (lambda x: x.transpose(1, 2), "B T 8", ["0.0", "0.2", "0.1"]),
    (lambda x: x.mT, "B T 8", ["0.0", "0.2", "0.1"]),
    (lambda x: x.T, "T 8", ["0.1", "0.0"]),
    (lambda x: torch.swapaxes(x, 0, -1), "B T 8", ["0.2", "0.1", "0.0"]),
    (lambda x: x.permute(2, 0, 1), "B T 8", ["0.2", "0.0", "0.1"]),
    (lambda x: torch.permute(x, (1, 0, 2)), "B T 8", ["0.1", "0.0", "0.2"]),
    (lambda x: x.movedim(1, 0), "B T 8", ["0.1", "0.0", "0.2"]),
    (lambda x: x.movedim((0, 1), (-1, -2)), "B T 8", ["0.2", "0.1", "0.0"]),
]
VIEWS = [
    (lambda x: x.flatten(0, 1), "B T 8", ["0.0*0.1", "0.2"]),
    (lambda x: x.view(-1, 2, 4), "B T 8", ["0.0*0.1", "0.2/0", "0.2/1"]),
    (lambda x: x.flatten(0, 1).unflatten(0, x.shape[:2]), "B T 8", ["0.0", "0.1", "0.2"]),
    (lambda x: x.view(*x.shape[:2], 2, 4).flatten(2), "B T 8", ["0.0", "0.1", "0.2"]),
    (lambda x: x.view(*x.shape[:2], 2, 4).transpose(2, 3).flatten(2), "B T 8", ["0.0", "0.1", "0.2/1*0.2/0"]),
    (lambda x: x.reshape(x.shape[0], -1, 16), "B 6 8", ["0.0", "0.1/0", "0.1/1*0.2"]),
    (lambda x: x[:, None].squeeze(1), "B T 8", ["0.0", "0.1", "0.2"]),
    (lambda x: x.unsqueeze(-1), "B T", ["0.0", "0.1", "1"]),
]
PARTS = [
    (lambda x: x[:, 0], "B T 8", ["0.0", "0.2"]),
    (lambda x: x[..., None, :], "B T 8", ["0.0", "0.1", "1", "0.2"]),
    (lambda x: x[:, 1:], "B T 8", ["0.0", "?", "0.2"]),
    (lambda x: x[:, : x.shape[1]], "B T 8", ["0.0", "0.1", "0.2"]),
    (lambda x: x.select(1, 0), "B T 8", ["0.0", "0.2"]),
    (lambda x: x.chunk(2, -1)[0], "B T 8", ["0.0", "0.1", "?"]),
    (lambda x: x.unbind(1)[0], "B 3 8", ["0.0", "0.2"]),
    (lambda x: torch.cat([x[:, :1], x], 1), "B T 8", ["0.0", "?", "0.2"]),
    (lambda x: torch.stack([x, x], 1), "B T 8", ["0.0", "?", "0.1", "0.2"]),
    (lambda x: F.pad(x, (1, 0)), "B T 8", ["0.0", "0.1", "?"]),
]
PRODUCTS = [
    (lambda x: F.relu(x) + x.mean(1, keepdim=True), "B T 8", ["0.0", "0.1", "0.2"]),
    (lambda x: x.sum((1, 2)), "B T 8", ["0.0"]),
    (lambda x: x.amax(-1, keepdim=True), "B T 8", ["0.0", "0.1", "1"]),
    (lambda x: x @ torch.zeros(8, 5), "B T 8", ["0.0", "0.1", "?"]),
    (lambda x: torch.einsum("...td,de->...et", x, torch.zeros(8, 5)), "B T 8", ["0.0", "?", "0.1"]),
    (lambda x: torch.einsum("btd->bd", x), "B T 8", ["0.0", "0.2"]),
    (lambda x: torch.baddbmm(torch.zeros(1), x, x.mT[:, :, :3]), "B T 8", ["0.0", "0.1", "?"]),
    (nn.Linear(8, 5), "B T 8", ["0.0", "0.1", "?"]),
    (nn.Embedding(9, 5), "B T:int64", ["0.0", "0.1", "?"]),
    (nn.Conv1d(8, 5, 1), "B 8 T", ["0.0", "?", "0.2"]),
    (nn.Conv1d(8, 5, 3), "B 8 T", ["0.0", "?", "?"]),
    (lambda x: F.scaled_dot_product_attention(x, x, x), "B T 8", ["0.0", "0.1", "0.2"]),
    (lambda x: F.interpolate(x, scale_factor=2.0), "B 8 T", ["0.0", "0.1", "?"]),
]
COPIES = [
    (lambda x: x.repeat(2, 1, 1), "B T 8", ["?*0.0", "0.1", "0.2"]),
    (lambda x: x.repeat_interleave(2, dim=1), "B T 8", ["0.0", "0.1*?", "0.2"]),
    (lambda x: x[:, None].expand(-1, 3, -1, -1).flatten(0, 1), "B T 8", ["0.0*?", "0.1", "0.2"]),
]


@pytest.mark.parametrize(("function", "spec", "expected"), [*MOVES, *VIEWS, *PARTS, *PRODUCTS, *COPIES])
def test_where_axes_come_from(function, spec, expected):
    assert kinship(function, spec) == expected


def test_the_layers_of_a_state_are_not_the_batch():
    assert kinship(lambda x: nn.GRU(8, 5, 2, batch_first=True)(x)[1], "B T 8") == ["?", "0.0", "?"]
    assert kinship(lambda x: nn.GRU(8, 5, 2)(x)[0], "T B 8") == ["0.0", "0.1", "?"]


def test_two_axes_that_stem_from_one_are_two():
    _, (rows, columns) = shapes(lambda x: x @ x.T, "T 8")
    assert str(rows) == str(columns) == "T"
    assert rows.factors != columns.factors


def test_what_is_summed_away_leaves_the_other():
    trace, axes = traced(lambda x: (scores := x @ x.T) / scores.sum(1), "T 8")
    scores, sums = (axes.of(node) for node in trace.graph.nodes if operator_of(node) in ("matmul", "sum"))
    assert sums == scores[:1]


def test_an_axis_that_is_expanded_is_constant():
    _, (rows, columns) = shapes(lambda x: x[:, None].expand(-1, x.shape[0]), "T")
    assert columns.constant and not rows.constant


def test_a_size_of_one_tells_whether_somebody_asked_for_it():
    made = [
        (lambda x: x[..., None], False),
        (lambda x: x.sum(-1, keepdim=True), False),
        (nn.Linear(8, 1), True),
        (nn.Sequential(nn.Linear(8, 1), nn.Sigmoid()), True),
        (lambda x: nn.Linear(8, 2)(x).chunk(2, -1)[1], True),
    ]
    for function, implicit in made:
        _, output = shapes(function, "B 8")
        assert output[-1].factors == () and output[-1].implicit is implicit


def test_what_is_not_known_has_axes_of_its_own():
    assert kinship(lambda x: torch.cdist(x, x), "B T 8") == ["?", "?", "?"]


# Views, without a tensor


@pytest.fixture(scope="module")
def axes():
    """Any trace in which the five sizes occur."""
    return traced(lambda x: x * 1, "B T H W C")[1]


def row(*sizes):
    return [Factor((f"f{at}",), _size(size)) for at, size in enumerate(sizes)]


def _size(size):
    return size if isinstance(size, Expr) else Expr.const(size)


def regrouped(axes, source, target):
    found = groups(axes, row(*source), [_size(size) for size in target])
    return [([str(factor) for factor in left], [str(size) for size in right]) for left, right in found]


def test_groups_are_as_short_as_may_be(axes):
    assert regrouped(axes, [B, T, 12], [B * T, 3, 4]) == [(["B", "T"], ["B*T"]), (["12"], ["3", "4"])]
    assert regrouped(axes, [B, 4, T, 8], [B, T, 32]) == [(["B"], ["B"]), (["4", "T", "8"], ["T", "32"])]


def test_what_is_not_known_to_be_equal_stands_between_what_is(axes):
    unknown = (B * T) // 7
    assert regrouped(axes, [B, T, C], [B, unknown, C]) == [(["B"], ["B"]), (["T"], [str(unknown)]), (["C"], ["C"])]


@pytest.mark.parametrize(
    ("source", "target", "nests"),
    [
        ([T, C], [T // 2, 2 * C], False),  # an odd T has a rest
        ([2 * T, C], [T, 2 * C], True),
        ([B, T], [T, B], False),
        ([4, T, 8], [T, 32], False),
        ([H, 7, W, 7], [7 * H, 7 * W], True),
        ([6, 8], [3, 16], True),
    ],
)
def test_nesting(axes, source, target, nests):
    assert (nested(axes, row(*source), [_size(size) for size in target]) is not None) is nests


@pytest.mark.parametrize(
    ("source", "target", "rows"),
    [
        ([B, T], [T, B], [[1], [0]]),
        ([4, T, 8], [T, 32], [[1], [0, 2]]),
        ([C, H, W], [H * W, C], [[1, 2], [0]]),
        ([B, T], [B, C], None),
    ],
)
def test_the_order_that_was_meant(axes, source, target, rows):
    assert reordered(axes, row(*source), [_size(size) for size in target]) == rows
