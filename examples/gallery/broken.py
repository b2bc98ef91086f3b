"""Attention whose heads are merged without being turned back: it runs and trains, and reads the future."""

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, d_model: int = 64, n_heads: int = 4) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, d_model = x.shape
        q, k, v = (z.view(b, t, self.n_heads, -1).transpose(1, 2) for z in self.qkv(x).chunk(3, dim=-1))
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(z.reshape(b, t, d_model))
