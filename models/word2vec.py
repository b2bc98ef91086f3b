"""Skip-gram Word2Vec: a vector per word, learned from which words stand near it (notes, section 1.2).

>>> centres, contexts = skip_grams(torch.tensor([7, 8, 9]), window=1)
>>> centres, contexts
(tensor([7, 8, 8, 9]), tensor([8, 7, 9, 8]))
>>> toy()(centres, contexts[:, None]).shape
torch.Size([4, 1])

Each word has two vectors, one as the centre and one as the context of others. The centre's is the embedding: it is the
same in every sentence, for each meaning that the word may have.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor


def skip_grams(ids: Int[Tensor, " T"], *, window: int) -> tuple[Int[Tensor, " N"], Int[Tensor, " N"]]:
    """All N pairs (centre, context) of words that stand at most `window` places apart."""
    if window < 1:
        raise ValueError(f"a window reaches at least one word to each side, got {window}")
    places = torch.arange(len(ids), device=ids.device)
    apart = (places[:, None] - places).abs()
    centres, contexts = ((apart > 0) & (apart <= window)).nonzero(as_tuple=True)
    return ids[centres], ids[contexts]


def noise_distribution(ids: Int[Tensor, " T"], *, vocab: int) -> Float[Tensor, " vocab"]:
    """How often each word is drawn as a wrong context: its frequency to the power of 3/4, which favours rare words."""
    weights = torch.bincount(ids, minlength=vocab).float() ** 0.75
    return weights / weights.sum()


class SkipGram(nn.Module):
    """Scores of words as contexts of a centre: dot products of one vector from each of two tables."""

    def __init__(self, vocab: int, d_model: int) -> None:
        super().__init__()
        self.vocab = vocab
        self.d_model = d_model
        self.centres = nn.Embedding(vocab, d_model)
        self.contexts = nn.Embedding(vocab, d_model)
        nn.init.normal_(self.centres.weight, std=1 / d_model)
        nn.init.zeros_(self.contexts.weight)

    def forward(self, centres: Int[Tensor, " N"], words: Int[Tensor, "N k"]) -> Float[Tensor, "N k"]:
        """The score of each of k words as a context of its row's centre."""
        return (self.as_contexts(words) @ self.embed(centres)[:, :, None])[:, :, 0]

    def embed(self, words: Int[Tensor, "..."]) -> Float[Tensor, "... d_model"]:
        """The embedding of each word, wherever it stands."""
        return self.centres(words)

    def as_contexts(self, words: Int[Tensor, "N k"]) -> Float[Tensor, "N k d_model"]:
        return self.contexts(words)


def negative_sampling_loss(
    model: SkipGram, centres: Int[Tensor, " N"], contexts: Int[Tensor, " N"], noise: Int[Tensor, "N k"]
) -> Float[Tensor, ""]:
    """Nats per pair for telling the true context from k words drawn at random: `-log s(true) - sum of log s(-false)`.

    s is the logistic function of a score: how sure the model is that the word is a context of the centre.
    """
    true = F.logsigmoid(model(centres, contexts[:, None])).sum(dim=1)
    false = F.logsigmoid(-model(centres, noise)).sum(dim=1)
    return -(true + false).mean()


def toy() -> SkipGram:
    """Vectors of 5 numbers for 13 words."""
    return SkipGram(vocab=13, d_model=5)
