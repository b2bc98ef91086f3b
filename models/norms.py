"""Root-mean-square normalisation: LayerNorm without the mean and without the bias (notes, section 4.2 and 4.3.5).

>>> RMSNorm(2)(torch.tensor([3.0, 4.0]))
tensor([0.8485, 1.1314], grad_fn=<MulBackward0>)
"""

import torch
import torch.nn as nn
from jaxtyping import Float
from torch import Tensor


class RMSNorm(nn.Module):
    """Each vector divided by the root of the mean of its squares, then scaled axis by axis: `weight * x / rms(x)`.

    The width has no name of its own here: the norm stands in the residual stream (d_model) and in heads (d_head) alike.
    The statistics are taken in float32 at least, as half precision cannot hold a sum of squares; the result has the
    dtype of the input.
    """

    def __init__(self, width: int, *, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Float[Tensor, "... _"]) -> Float[Tensor, "... _"]:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        scaled = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + self.eps)
        return self.weight * scaled.to(x.dtype)
