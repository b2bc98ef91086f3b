"""One attention head, as the notes introduce it in section 4, and what is inside of its scores.

>>> import torch
>>> attention = MaskedSelfAttention(d_model=2)
>>> blocked = torch.ones(3, 3, dtype=torch.bool).triu(1)
>>> attention(torch.randn(3, 2), blocked).shape
torch.Size([3, 2])

The mask here follows the notes, not the rest of the folder: True hides a key. A hidden score becomes -1e9 and not
minus infinity, so that a query that may read nothing reads everything alike, where `attention.py` calls it an error.
"""

import math
from dataclasses import dataclass

import torch.nn as nn
from jaxtyping import Bool, Float
from torch import Tensor

HIDDEN = -1e9  # e to this power is 0 in any float


class MaskedSelfAttention(nn.Module):
    """Queries, keys and values of one head as wide as the model, and their mixture; no output projection.

    `row_dim` and `col_dim` say which axes of the input hold the positions and the features: 0 and 1 for one sequence,
    1 and 2 for a batch, -2 and -1 for both.
    """

    def __init__(self, d_model: int = 2, row_dim: int = 0, col_dim: int = 1) -> None:
        super().__init__()
        self.d_model = d_model
        self.row_dim = row_dim
        self.col_dim = col_dim
        self.q = nn.Linear(d_model, d_model, bias=False)
        self.k = nn.Linear(d_model, d_model, bias=False)
        self.v = nn.Linear(d_model, d_model, bias=False)

    def forward(
        self, x: Float[Tensor, "... T d_model"], blocked: Bool[Tensor, "... #T #T"] | None = None
    ) -> Float[Tensor, "... T d_model"]:
        scores = self.scores(x)
        if blocked is not None:
            scores = scores.masked_fill(blocked, HIDDEN)
        return scores.softmax(dim=self.col_dim) @ self.projected(self.v, x)

    def scores(self, x: Float[Tensor, "... T d_model"]) -> Float[Tensor, "... T T"]:
        q, k = self.projected(self.q, x), self.projected(self.k, x)
        return q @ k.transpose(self.row_dim, self.col_dim) / math.sqrt(k.shape[self.col_dim])

    def projected(self, projection: nn.Linear, x: Float[Tensor, "... T d_model"]) -> Float[Tensor, "... T d_model"]:
        return projection(x)


@dataclass(frozen=True, slots=True)
class ScoreTerms:
    """The raw score of query i and key j, where row i of the input is a token's content plus its position (4.1)."""

    content_content: Float[Tensor, "T T"]
    content_position: Float[Tensor, "T T"]  # what the query is, against where the key stands
    position_content: Float[Tensor, "T T"]  # where the query stands, against what the key is
    position_position: Float[Tensor, "T T"]

    def total(self) -> Float[Tensor, "T T"]:
        """`q_i k_j^T`, not yet divided by sqrt(d_head)."""
        return self.content_content + self.content_position + self.position_content + self.position_position


def score_terms(
    content: Float[Tensor, "T d_model"],
    position: Float[Tensor, "T d_model"],
    w_q: Float[Tensor, "d_model d_head"],
    w_k: Float[Tensor, "d_model d_head"],
) -> ScoreTerms:
    """Split the scores of `(content + position) @ w_q` with `(content + position) @ w_k` into their four terms."""
    form = w_q @ w_k.T
    return ScoreTerms(
        content_content=content @ form @ content.T,
        content_position=content @ form @ position.T,
        position_content=position @ form @ content.T,
        position_position=position @ form @ position.T,
    )


def toy() -> MaskedSelfAttention:
    """A head of width 5 that takes a batch."""
    return MaskedSelfAttention(d_model=5, row_dim=-2, col_dim=-1)
