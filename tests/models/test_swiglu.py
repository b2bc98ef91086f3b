"""SwiGLU as its formula, its size, and what it refuses."""

import pytest
import torch
from jaxtyping import TypeCheckError
from torch.testing import assert_close

from models.swiglu import SwiGLU


def test_the_layer_is_its_formula():
    torch.manual_seed(0)
    layer = SwiGLU(5, 7)
    x = torch.randn(2, 3, 5)
    gate, up = x @ layer.gate.weight.T, x @ layer.up.weight.T
    assert_close(layer(x), (gate / (1 + (-gate).exp()) * up) @ layer.down.weight.T)


def test_the_number_of_parameters_is_three_matrices():
    assert sum(p.numel() for p in SwiGLU(5, 7).parameters()) == 3 * 5 * 7


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda layer: layer(torch.ones(2, 3)), r"mat1 and mat2 shapes cannot be multiplied \(2x3 and 5x7\)"),
        (lambda layer: layer.hidden(torch.ones(2, 5, dtype=torch.int64)), r"'x'[\s\S]*i64\[2,5\][\s\S]*\.\.\. d_model"),
    ],
)
def test_other_inputs_are_refused(change, message):
    with pytest.raises((RuntimeError, TypeCheckError), match=message):
        change(SwiGLU(5, 7))
