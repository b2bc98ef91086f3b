"""The gated feed-forward layer of today's decoders: one projection opens and shuts the other (notes, section 4.3.5).

>>> import torch
>>> SwiGLU(d_model=5, d_ff=7)(torch.ones(2, 3, 5)).shape
torch.Size([2, 3, 5])
"""

import torch.nn as nn
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


class SwiGLU(nn.Module):
    """`down(silu(gate(x)) * up(x))`: three matrices, 3 * d_model * d_ff parameters, and no bias."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.d_model = d_model
        self.d_ff = d_ff
        self.gate = nn.Linear(d_model, d_ff, bias=False)
        self.up = nn.Linear(d_model, d_ff, bias=False)
        self.down = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        return self.down(F.silu(self.gates(x)) * self.hidden(x))

    def gates(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_ff"]:
        return self.gate(x)

    def hidden(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_ff"]:
        return self.up(x)
