"""The feed-forward layer: the same two-layer network at every position, no position sees another (section 7).

>>> FeedForward(d_model=8, d_ff=32)(torch.zeros(2, 5, 8)).shape
torch.Size([2, 5, 8])
"""

from functools import partial
from typing import Literal

import torch
import torch.nn as nn
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

Activation = Literal["relu", "gelu", "gelu_tanh"]

# GELU is x * Phi(x), Phi the normal distribution function; its tanh form is the approximation that GPT-2 learned with.
ACTIVATIONS = {"relu": torch.relu, "gelu": F.gelu, "gelu_tanh": partial(F.gelu, approximate="tanh")}


class FeedForward(nn.Module):
    """`activation(x W1 + b1) W2 + b2`: 2 d_model d_ff weights, twice those of attention where d_ff = 4 d_model."""

    def __init__(self, d_model: int, d_ff: int, *, activation: Activation = "relu", bias: bool = True) -> None:
        super().__init__()
        self.d_model = d_model
        self.d_ff = d_ff
        self.up = nn.Linear(d_model, d_ff, bias=bias)
        self.activation = ACTIVATIONS[activation]
        self.down = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_model"]:
        return self.down(self.activation(self.hidden(x)))

    def hidden(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_ff"]:
        return self.up(x)
