"""A model of transformers with the same weights gives the same numbers, forward and backward."""

from types import SimpleNamespace

import torch
from torch.testing import assert_close

from models.pretrained import from_transformers

CLOSE = {"atol": 1e-5, "rtol": 1e-5}


def randomised(theirs):
    """In eval mode, with every parameter drawn anew: biases that start at 0 and norms at 1 would hide a mistake."""
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return theirs.eval()


def assert_same(ours, theirs, our_outputs, their_outputs):
    """Equal outputs, and equal gradients of every parameter for one random weighting of the outputs."""
    for our, their in zip(our_outputs, their_outputs, strict=True):
        assert_close(our, their, **CLOSE)
        direction = torch.randn_like(our) / our.numel() ** 0.5
        (our * direction).sum().backward(retain_graph=True)
        (their * direction).sum().backward(retain_graph=True)
    expected = dict(gradients(theirs).named_parameters())
    assert expected.keys() == dict(ours.named_parameters()).keys()
    for name, parameter in ours.named_parameters():
        found = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        assert_close(found, expected[name].detach(), **CLOSE, msg=lambda text, name=name: f"gradient of {name}: {text}")
    assert any(parameter.grad.abs().max() > 1e-2 for parameter in ours.parameters() if parameter.grad is not None)


def gradients(theirs):
    """Their gradients under our names: a model whose weights they are."""
    tensors = theirs.state_dict(keep_vars=True)
    found = {name: torch.zeros_like(t) if t.grad is None else t.grad for name, t in tensors.items()}
    return from_transformers(SimpleNamespace(config=theirs.config, state_dict=lambda: found))
