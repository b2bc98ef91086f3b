"""A sublayer on the residual stream: normalised after the addition as in 2017, or before the sublayer (section 8).

>>> import torch
>>> x = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]])
>>> PostNorm(4)(x, torch.zeros_like).detach()
tensor([[[-1.3416, -0.4472,  0.4472,  1.3416]]])
>>> PreNorm(4)(x, torch.zeros_like)
tensor([[[1., 2., 3., 4.]]])

A sublayer is any function from `B T d_model` to the same. In training, dropout zeroes a part of what it gives before
that is added (section 8.4).
"""

from collections.abc import Callable
from typing import Literal

import torch.nn as nn
from jaxtyping import Float
from torch import Tensor

Sublayer = Callable[[Float[Tensor, "B T d_model"]], Float[Tensor, "B T d_model"]]
NormPlace = Literal["post", "pre"]


class PostNorm(nn.Module):
    """`norm(x + sublayer(x))`: every path to a lower layer leads through a norm."""

    def __init__(self, d_model: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.d_model = d_model
        self.norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "B T d_model"], sublayer: Sublayer) -> Float[Tensor, "B T d_model"]:
        return self.norm(x + self.dropout(sublayer(x)))


class PreNorm(nn.Module):
    """`x + sublayer(norm(x))`: x itself reaches the next layer untouched."""

    def __init__(self, d_model: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.d_model = d_model
        self.norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "B T d_model"], sublayer: Sublayer) -> Float[Tensor, "B T d_model"]:
        return x + self.dropout(sublayer(self.norm(x)))


RESIDUALS = {"post": PostNorm, "pre": PreNorm}
