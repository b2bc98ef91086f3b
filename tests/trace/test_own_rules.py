"""Our own shape rules agree with torch: sizes, strides and dtypes, and where torch promotes, repeats or refuses."""

import pytest
import torch
from torch.nn import functional as F

import shapeflow as sf

SIZES = {"B": 5, "T": 7}


def plain(sizes):
    return tuple(size if type(size) is int else size.node.hint for size in sizes)


def traced_and_real(function, spec="B T 6"):
    """The output of a trace at SIZES beside torch's on a real tensor, both as (sizes, strides, dtype)."""
    dtype = {"int64": torch.int64, "bool": torch.bool}.get(spec.partition(":")[2], torch.float32)
    graph = sf.trace(function, spec, hints=SIZES).graph
    fake = next(node for node in graph.nodes if node.op == "output").args[0].meta["val"]
    dims = [SIZES.get(dim) or int(dim) for dim in spec.partition(":")[0].split()]
    real = function(torch.ones(dims, dtype=dtype))
    return (plain(fake.shape), plain(fake.stride()), fake.dtype), (tuple(real.shape), real.stride(), real.dtype)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * 0.5,
        lambda x: x + 1,
        lambda x: 1.0 - x,
        lambda x: x**3,
        lambda x: x > 0,
        lambda x: torch.tanh(x),
        lambda x: torch.pow(x, 2.0),
        lambda x: F.gelu(x, approximate="tanh"),
        lambda x: F.relu(x),
        lambda x: F.silu(x, inplace=False),
        lambda x: x.transpose(0, 2) * 2,
        lambda x: x.transpose(1, 2).exp(),
        lambda x: x.double().mean() + x,
        lambda x: x.sum() * x,
        lambda x: x.transpose(0, -1),
        lambda x: torch.transpose(x, 1, 2),
        lambda x: x.permute(2, 0, 1),
        lambda x: x.permute((-1, 0, 1)),
        lambda x: x.unsqueeze(0),
        lambda x: x.unsqueeze(-1),
        lambda x: torch.unsqueeze(x, 2),
        lambda x: x.transpose(0, 1).unsqueeze(1),
        lambda x: x.unsqueeze(1).expand(-1, 3, -1, -1),
        lambda x: x.unsqueeze(1).expand(4, x.shape[0], 3, -1, 6),
        lambda x: x[:, :1].expand(x.shape[0], x.shape[1], 6),
        lambda x: x.expand(x.shape),
        lambda x: x[:, 0:, None],
        lambda x: x[1:, 0:],
        lambda x: x.transpose(0, 1)[0:],
    ],
)
def test_a_float_tensor_has_the_shape_strides_and_dtype_that_torch_gives(function):
    ours, torchs = traced_and_real(function)
    assert ours == torchs


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * 2,
        lambda x: x * 0.5,
        lambda x: x + True,
        lambda x: x**2,
        lambda x: x != 1,
        lambda x: x < 0.5,
        lambda x: torch.tanh(x),
        lambda x: torch.neg(x),
        lambda x: x & 1,
        lambda x: F.embedding(x, torch.ones(11, 3)),
        lambda x: F.embedding(x.int(), torch.ones(11, 3)),
        lambda x: F.embedding(x.T, torch.ones(11, 3)),
        lambda x: F.embedding(x, torch.ones(11, 3).T.contiguous().T, padding_idx=0),
    ],
)
def test_whole_numbers_are_promoted_as_torch_does(function):
    ours, torchs = traced_and_real(function, "B T:int64")
    assert ours == torchs


def test_booleans_count_as_whole_numbers_in_sums():
    ours, torchs = traced_and_real(lambda x: x + 1, "B T:bool")
    assert ours == torchs


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x.unsqueeze(4), "Dimension out of range"),
        (lambda x: x.transpose(0, 3), "Dimension out of range"),
        (lambda x: x.permute(0, 1), "dim"),
        (lambda x: x.permute(0, 1, 1), "[Rr]epeated|duplicate|unique"),
        (lambda x: x.expand(-1, -1, -1, -1), "expand"),
        (lambda x: x.expand(5, 7, 12), "expand"),
        (lambda x: x[0:, 0:, 0:, 0:], "too many indices"),
    ],
)
def test_what_torch_refuses_is_refused_in_its_words(function, message):
    with pytest.raises(sf.TraceError, match=message):
        sf.trace(function, "5 7 6")


def test_a_copy_of_a_view_looks_into_its_own_tensor():
    """The second `transpose` is remembered from the first: what is written through it reaches the second tensor."""

    def forward(x):
        a, b = x * 2, x * 3
        a.transpose(0, 1).add_(1)
        b.transpose(0, 1).mul_(0)
        return a + b

    trace = sf.trace(forward, "B T")
    x = torch.arange(6.0).reshape(2, 3)
    assert torch.equal(trace.graph_module(x), forward(x))
