"""Numbers in English and in German: a translation that can be made without end, and judged right or wrong.

>>> english(4321), german(4321)
('four thousand three hundred twenty-one', 'viertausenddreihunderteinundzwanzig')

The languages differ as real ones do: German writes one word, and its ones before its tens.
"""

import random
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from models.cache import Cache
from models.decoding import generate
from models.loss import shifted_right, token_nll
from models.transformer import Transformer

from .batch import Logits
from .settings import RunError

ENGLISH = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen".split()
ENGLISH += "sixteen seventeen eighteen nineteen".split()
ENGLISH_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
GERMAN = "null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn".split()
GERMAN += "sechzehn siebzehn achtzehn neunzehn".split()
GERMAN_TENS = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()
LIMIT = 1_000_000  # both stop at thousands


def english(number: int) -> str:
    """A number below a million: `three hundred seven`."""
    if number < 20:
        return ENGLISH[number]
    if number < 100:
        return ENGLISH_TENS[number // 10 - 2] + (f"-{ENGLISH[number % 10]}" if number % 10 else "")
    unit, name = (100, "hundred") if number < 1000 else (1000, "thousand")
    rest = f" {english(number % unit)}" if number % unit else ""
    return f"{english(number // unit)} {name}{rest}"


def german(number: int) -> str:
    """The same: `dreihundertsieben`. A one that ends the word is `eins`."""
    return _german_inside(number) + ("s" if number % 100 == 1 else "")


def _german_inside(number: int) -> str:
    """A number as it stands inside of a longer word."""
    if number < 20:
        return GERMAN[number]
    if number < 100:
        ones = f"{GERMAN[number % 10]}und" if number % 10 else ""
        return ones + GERMAN_TENS[number // 10 - 2]
    unit, name = (100, "hundert") if number < 1000 else (1000, "tausend")
    return _german_inside(number // unit) + name + (_german_inside(number % unit) if number % unit else "")


PAD, BOS, EOS = range(3)
SYMBOLS = ("<pad>", "<bos>", "<eos>", *sorted({*" -abcdefghijklmnopqrstuvwxyzßöü"}))
ID = {symbol: number for number, symbol in enumerate(SYMBOLS)}


@dataclass(frozen=True, slots=True)
class Pairs:
    """Letters of English, and of the German that they should become, with an end; padding is False in the masks."""

    source: Int[Tensor, "B S"]
    source_valid: Bool[Tensor, "B S"]
    targets: Int[Tensor, "B T"]
    scored: Bool[Tensor, "B T"]

    @property
    def n_scored(self) -> int:
        return int(self.scored.sum())


class Numerals:
    """The numbers below `limit`, of which a tenth is held out; a seed says which."""

    def __init__(self, limit: int, *, seed: int) -> None:
        if not 20 <= limit <= LIMIT:
            raise RunError(f"limit = {limit} must be 20 to {LIMIT:,}: numbers below it have names here")
        self.vocab = len(SYMBOLS)
        numbers = list(range(limit))
        random.Random(seed).shuffle(numbers)
        self.unseen, self.seen = numbers[: limit // 10], numbers[limit // 10 :]
        self.n_items, self.n_held_out = len(self.seen), len(self.unseen)
        self.data = f"the numbers below {limit:,}"

    def batch(self, items: list[int], *, held_out: bool = False) -> Pairs:
        numbers = [(self.unseen if held_out else self.seen)[item] for item in items]
        source = padded([[ID[letter] for letter in english(number)] for number in numbers])
        targets = padded([[ID[letter] for letter in german(number)] + [EOS] for number in numbers])
        return Pairs(source, source != PAD, targets, targets != PAD)

    def nll_sum(self, model: Logits, batch: Pairs) -> Float[Tensor, ""]:
        logits = model(batch.source, shifted_right(batch.targets, BOS), source_valid=batch.source_valid)
        return token_nll(logits, batch.targets)[batch.scored].sum()

    def sample(self, model: Transformer, *, n_layers: int) -> str:
        """Three translations of numbers held out, and how many of the first hundred are right to the letter."""
        numbers = self.unseen[:100]
        words = translated(model, self.batch(list(range(len(numbers))), held_out=True), n_layers=n_layers)
        right = sum(word == german(number) for word, number in zip(words, numbers, strict=True))
        shown = [f"{english(number)} -> {word}" for number, word in zip(numbers[:3], words[:3], strict=True)]
        return "\n".join([*shown, f"right: {right} of {len(numbers)}"])


def padded(rows: list[list[int]]) -> Int[Tensor, "B L"]:
    """Rows of ids as one tensor, filled up on the right."""
    length = max(map(len, rows))
    return torch.tensor([row + [PAD] * (length - len(row)) for row in rows])


def translated(model: Transformer, batch: Pairs, *, n_layers: int) -> list[str]:
    """Greedy translations; one that found no end is cut where the longest right one ends."""
    start = torch.full((len(batch.source), 1), BOS)
    with torch.no_grad():
        decode = model.reading(batch.source, source_valid=batch.source_valid)
    told = generate(decode, start, max_new_tokens=batch.targets.shape[1], eos=EOS, cache=Cache(n_layers))
    return ["".join(SYMBOLS[number] for number in row if number != EOS) for row in told.new_tokens()]
