"""Bag of words: a text as the number of times that it holds each word, in no order (notes, section 1.1).

>>> BagOfWords(vocab=4)(torch.tensor([[2, 0, 2], [3, 1, 0]]))
tensor([[1., 0., 2., 0.],
        [1., 1., 0., 1.]])
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor


class BagOfWords(nn.Module):
    """Counts without parameters: a vector as long as the vocabulary, nearly all of it zeros for a short text."""

    def __init__(self, vocab: int) -> None:
        super().__init__()
        self.vocab = vocab

    def forward(self, ids: Int[Tensor, "B T"], *, valid: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B vocab"]:
        """Padding, False in `valid`, is no word."""
        words = self.one_hot(ids)
        if valid is not None:
            words = words * valid[..., None]
        return self.counted(words)

    def counted(self, words: Int[Tensor, "B T vocab"]) -> Float[Tensor, "B vocab"]:
        return words.sum(dim=1).to(torch.get_default_dtype())

    def one_hot(self, ids: Int[Tensor, "B T"]) -> Int[Tensor, "B T vocab"]:
        return F.one_hot(ids, self.vocab)


def similarity(a: Float[Tensor, "... width"], b: Float[Tensor, "... width"]) -> Float[Tensor, "..."]:
    """The cosine of the angle between two vectors: 1 for the same direction, 0 where nothing is shared."""
    return F.cosine_similarity(a, b, dim=-1)


def toy() -> BagOfWords:
    """Counts over a vocabulary of 13 words."""
    return BagOfWords(13)
