"""What the tests of traces share: models in one line, and the comparison of a replayed graph with the model itself."""

import copy

import torch
from torch import nn
from torch.testing import assert_close

import shapeflow as sf


class Forward(nn.Module):
    """`Forward(lambda self, x: self.a(x), a=nn.Linear(4, 3))`: a model of one input, its attributes by keyword."""

    def __init__(self, body, **attributes):
        super().__init__()
        self.body = body
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x):
        return self.body(self, x)


def follow(target, *inputs, **named):
    """The trace of a function or a model in eval mode."""
    return sf.trace(target.eval() if isinstance(target, nn.Module) else target, *inputs, **named)


def outputs(trace):
    """The shapes of the outputs, as text."""
    return [str(edge.shape) for edge in trace.outputs]


def operators(trace):
    """The names of the operators in order."""
    return [node.operator for node in trace.nodes if node.kind == "operator"]


def conditions(trace):
    return [str(condition) for condition in trace.conditions]


def real(*shape, high=None):
    """A real input: floats, or integers below `high`."""
    return torch.randn(shape) if high is None else torch.randint(high, shape)


def assert_replays(trace, target, *inputs, **named):
    """The graph gives what the model gives, and leaves the inputs as the model leaves them."""
    sizes = {tuple(node.outputs[0].at(**trace.sizes)) for node in trace.inputs}
    given = {tuple(value.shape) for value in [*inputs, *named.values()] if isinstance(value, torch.Tensor)}
    assert not (trace.free and given & sizes), "replayed at the very sizes of the trace: no proof"
    ours, theirs = copy.deepcopy((inputs, named)), copy.deepcopy((inputs, named))
    with torch.no_grad():
        found = trace.graph_module(*ours[0], **ours[1])
        expected = target(*theirs[0], **theirs[1])
    same(found, expected)
    same(ours, theirs)


def same(found, expected):
    """Equal values of equal types, through structures of any class; a `torch.Size` is the tuple that it is."""
    if isinstance(expected, torch.Size):
        expected = tuple(expected)
    assert type(found) is type(expected), f"{type(found).__name__} in place of {type(expected).__name__}"
    if isinstance(expected, tuple | list):
        assert len(found) == len(expected)
        for ours, theirs in zip(found, expected, strict=True):
            same(ours, theirs)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for name in expected:
            same(found[name], expected[name])
    elif isinstance(expected, torch.Tensor):
        assert_close(found, expected, equal_nan=True)
    elif hasattr(expected, "__dict__") and not isinstance(expected, type):
        same(vars(found), vars(expected))
    else:
        assert found == expected
