"""From logits to text: how the next token is chosen, and the loop that goes on until it stops (section 12).

>>> next_token_probabilities(torch.tensor([[3.0, 2.0, 1.0, 0.0]]), top_k=2)
tensor([[0.7311, 0.2689, 0.0000, 0.0000]])

The model is any function `(ids, *, valid, cache) -> logits`: a decoder-only model, or `Transformer.reading(source)`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .cache import Cache

Choice = Callable[[Float[Tensor, "B vocab"]], Int[Tensor, " B"]]


class Stop(Enum):
    """Why a sequence ended."""

    EOS = "eos"  # the model gave the end-of-sequence token
    LENGTH = "length"  # the limit of new tokens was reached first


@dataclass(frozen=True, slots=True)
class Generated:
    """What came of a batch of prompts: prompt and continuation in `ids`, an early end filled up with its EOS."""

    ids: Int[Tensor, "B T"]
    valid: Bool[Tensor, "B T"]  # True = a token of prompt or continuation, its EOS included
    prompt_length: int  # columns of the prompts, their padding on the left included
    stops: tuple[Stop, ...]  # one per sequence

    def new_tokens(self) -> tuple[tuple[int, ...], ...]:
        """The continuation of each prompt alone, with its EOS if it has one."""
        new, kept = self.ids[:, self.prompt_length :], self.valid[:, self.prompt_length :]
        return tuple(tuple(row[mask].tolist()) for row, mask in zip(new, kept, strict=True))


def greedy(logits: Float[Tensor, "B vocab"]) -> Int[Tensor, " B"]:
    """The largest logit; of equal ones that of the lowest id."""
    return logits.argmax(dim=-1)


@dataclass(frozen=True, slots=True)
class Sampler:
    """A token drawn from the distribution that temperature, top-k and top-p, in this order, make of the logits."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    generator: torch.Generator | None = None

    def __call__(self, logits: Float[Tensor, "B vocab"]) -> Int[Tensor, " B"]:
        probabilities = next_token_probabilities(
            logits, temperature=self.temperature, top_k=self.top_k, top_p=self.top_p
        )
        return torch.multinomial(probabilities, 1, generator=self.generator)[:, 0]


def next_token_probabilities(
    logits: Float[Tensor, "B vocab"], *, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> Float[Tensor, "B vocab"]:
    """Softmax at a temperature, cut to the `top_k` most probable ids, then to the nucleus of mass `top_p` of those.

    What is left is divided by its sum after each cut, so `top_p` measures within the top-k distribution. Equal logits
    are ranked by id. Raises ValueError for a temperature that is not positive (greedy decoding is a rule of its own),
    for `top_k` below 1 and for `top_p` outside of (0, 1].
    """
    if not temperature > 0:
        raise ValueError(f"temperature must be positive, got {temperature}; take the largest logit with `greedy`")
    ranked, ids = (logits / temperature).sort(dim=-1, descending=True, stable=True)
    probabilities = ranked.softmax(dim=-1)
    if top_k is not None:
        probabilities = renormalised(probabilities, inside_top_k(probabilities, top_k))
    if top_p is not None:
        probabilities = renormalised(probabilities, inside_top_p(probabilities, top_p))
    return torch.zeros_like(probabilities).scatter(-1, ids, probabilities)


def inside_top_k(ranked: Float[Tensor, "B vocab"], top_k: int) -> Bool[Tensor, "B vocab"]:
    """Which of the probabilities, sorted from large to small, are the first `top_k`."""
    if top_k < 1:
        raise ValueError(f"top_k must keep at least one candidate, got {top_k}")
    return (torch.arange(ranked.shape[-1], device=ranked.device) < top_k).expand(ranked.shape)


def inside_top_p(ranked: Float[Tensor, "B vocab"], top_p: float) -> Bool[Tensor, "B vocab"]:
    """Which of the sorted probabilities make the shortest prefix whose mass reaches `top_p`: the crossing one does."""
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p must be above 0 and at most 1, got {top_p}")
    mass_before = F.pad(ranked.cumsum(dim=-1)[:, :-1], (1, 0))
    return mass_before < top_p


def renormalised(probabilities: Float[Tensor, "B vocab"], kept: Bool[Tensor, "B vocab"]) -> Float[Tensor, "B vocab"]:
    """Zero outside of what is kept, and a sum of 1 again."""
    probabilities = probabilities.masked_fill(~kept, 0.0)
    return probabilities / probabilities.sum(dim=-1, keepdim=True)


@torch.no_grad()
def generate(
    model: Callable[..., Float[Tensor, "B T vocab"]],
    ids: Int[Tensor, "B T"],
    *,
    max_new_tokens: int,
    eos: int | None = None,
    valid: Bool[Tensor, "B T"] | None = None,
    choose: Choice = greedy,
    cache: Cache | None = None,
) -> Generated:
    """Continue each prompt until its EOS or for `max_new_tokens` tokens; the batch runs until its last row ends.

    Prompts of unequal length are padded on the left, False in `valid`. With a cache the model is given the new tokens
    alone, without one the whole prefix every time; the result is the same. Put the model in eval mode: dropout would
    not let old keys and values stay as they are.
    """
    if max_new_tokens < 1:
        raise ValueError(f"max_new_tokens must be at least 1, got {max_new_tokens}")
    valid = torch.ones_like(ids, dtype=torch.bool) if valid is None else valid
    if not valid[:, -1].all():
        raise ValueError("a prompt ends in padding: pad on the left, so that every next token follows a real one")
    prompt_length = ids.shape[1]
    running = torch.ones_like(valid[:, 0])
    for _ in range(max_new_tokens):
        unread = ids if cache is None else ids[:, cache.length :]
        token = choose(model(unread, valid=valid, cache=cache)[:, -1])
        ids = torch.cat([ids, torch.where(running, token, ids[:, -1])[:, None]], dim=1)
        valid = torch.cat([valid, running[:, None]], dim=1)
        if eos is not None:
            running = running & (token != eos)
        if not running.any():
            break
    stops = tuple(Stop.LENGTH if still else Stop.EOS for still in running.tolist())
    return Generated(ids, valid, prompt_length, stops)
