"""What every architecture is asked: own names in its trace, and a cache that changes nothing."""

import re

import torch
from torch.testing import assert_close

import shapeflow as sf


def unnamed_axes(trace):
    """The printed edges that hold an axis of a bare number; 1 is no size that needs a name."""
    axes = (axis for edge in trace.edges for axis in str(edge.shape).split(":")[0].split())
    return sorted({axis for axis in axes if re.search(r"(?<![\w*])\d+(?!\w|\*)", axis) and axis != "1"})


def assert_traces(model, *args):
    """Every edge has the model's own names, and the graph gives what the model gives for `args`."""
    trace = sf.trace(model)
    assert len(trace.edges) > 0
    assert unnamed_axes(trace) == []
    with torch.no_grad():
        assert_close(trace.graph_module(*args), model(*args))


def one_by_one(step, ids, valid=None, *, prompt=1):
    """The logits of a decoder that reads the first `prompt` tokens at once and the others one at a time.

    `step(ids, valid)` reads more tokens, with `valid` for all of those read so far.
    """
    ends = [prompt, *range(prompt + 1, ids.shape[1] + 1)]
    starts = [0, *ends[:-1]]
    parts = [
        step(ids[:, start:end], None if valid is None else valid[:, :end])
        for start, end in zip(starts, ends, strict=True)
    ]
    return torch.cat(parts, dim=1)
