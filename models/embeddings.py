"""What enters the residual stream: a vector per token and a vector per position, added (section 3).

>>> ids = torch.zeros(2, 5, dtype=torch.int64)
>>> (TokenEmbedding(100, 8)(ids) + SinusoidalPositions(8)(torch.arange(5))).shape
torch.Size([2, 5, 8])

Both kinds of positions take position numbers of any leading axes: `T` for a batch whose sequences all start at 0, `B T`
where padding on the left makes them differ.
"""

import math

import torch
import torch.nn as nn
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .masks import real_positions


class TokenEmbedding(nn.Module):
    """One learned vector per token id, on request times sqrt(d_model) as in 2017.

    A scaled table starts with small entries, as the vocabulary head that may share it wants them; what comes out here
    is of the size of a position's code all the same.
    """

    def __init__(self, vocab: int, d_model: int, *, scaled: bool = False) -> None:
        super().__init__()
        self.vocab = vocab
        self.d_model = d_model
        self.scale = math.sqrt(d_model) if scaled else None
        self.table = nn.Embedding(vocab, d_model)
        if scaled:
            nn.init.normal_(self.table.weight, std=1 / math.sqrt(d_model))

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T d_model"]:
        return self.table(ids) if self.scale is None else self.table(ids) * self.scale


class LearnedPositions(nn.Module):
    """One learned vector for each of the positions 0 to max_len - 1."""

    def __init__(self, max_len: int, d_model: int) -> None:
        super().__init__()
        self.max_len = max_len
        self.d_model = d_model
        self.table = nn.Embedding(max_len, d_model)

    def forward(self, positions: Int[Tensor, "... T"]) -> Float[Tensor, "... T d_model"]:
        return self.table(positions)


class SinusoidalPositions(nn.Module):
    """Sines at the even coordinates and cosines at the odd ones, from fast to slow; no parameters (section 3.2).

    Coordinates 2i and 2i + 1 turn by one radian every `10000 ** (2i / d_model)` positions. Any position has its code.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        if d_model % 2 != 0:
            raise ValueError(f"sines and cosines come in pairs: d_model must be even, got {d_model}")
        self.d_model = d_model
        self.n_pairs = d_model // 2

    def forward(self, positions: Int[Tensor, "... T"]) -> Float[Tensor, "... T d_model"]:
        angles = self.angles(positions)
        return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)

    def angles(self, positions: Int[Tensor, "... T"]) -> Float[Tensor, "... T n_pairs"]:
        exponents = torch.arange(self.n_pairs, device=positions.device) * 2 / self.d_model
        return positions[..., None] / 10000**exponents


class InputEmbedding(nn.Module):
    """Token plus position, then dropout: the sum that the first layer reads (sections 3 and 8.4)."""

    def __init__(
        self, tokens: TokenEmbedding, positions: LearnedPositions | SinusoidalPositions, dropout: float
    ) -> None:
        super().__init__()
        self.d_model = tokens.d_model
        self.tokens = tokens
        self.positions = positions
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, ids: Int[Tensor, "B T"], *, valid: Bool[Tensor, "B _"] | None = None, offset: int = 0
    ) -> Float[Tensor, "B T d_model"]:
        """`offset` positions were read before. `valid` covers those and `ids`; padding does not count as a position."""
        end = offset + ids.shape[1]
        if isinstance(self.positions, LearnedPositions) and end > self.positions.max_len:
            raise ValueError(f"a sequence of {end} tokens is longer than max_len = {self.positions.max_len}")
        numbers = torch.arange(offset, end, device=ids.device) if valid is None else real_positions(valid)[:, offset:]
        x = self.tokens(ids)
        return self.dropout(x + self.positions(numbers).to(x.dtype))
