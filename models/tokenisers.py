"""Text to token ids and back, at four grains behind one interface (notes, section 3.1).

>>> tokeniser = word_tokeniser("Transformers are useful, are they?")
>>> tokeniser.encode("they are useful")
[6, 1, 5, 1, 7]
>>> tokeniser.decode([6, 1, 5])
'they are'

Each has `encode`, `decode` and `vocab`, the number of ids. Bytes need no training and know every text with 256 ids.
Characters and words know what they were trained on, and write `UNKNOWN` for the rest. Subwords are pieces that are
frequent in their training text; they spell out what is rare, and so know every text again.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

UNKNOWN = "\N{REPLACEMENT CHARACTER}"  # what an id that stands for an unknown piece is decoded to

CHARACTERS = re.compile(r".", re.DOTALL)
WORDS = re.compile(r"\w+|\s+|[^\w\s]")  # and runs of white space, and single marks


class Tokeniser(Protocol):
    """What the models' texts go through."""

    @property
    def vocab(self) -> int:
        """Ids run from 0 to vocab - 1: the rows of the embedding table that the model needs."""
        ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Iterable[int]) -> str: ...


@dataclass(frozen=True)
class ByteTokeniser:
    """One id per byte of the text in UTF-8: nothing is unknown, and every text is long."""

    @property
    def vocab(self) -> int:
        return 256

    def encode(self, text: str) -> list[int]:
        return list(text.encode("utf-8"))

    def decode(self, ids: Iterable[int]) -> str:
        """Ids that break a character in two give `UNKNOWN` there."""
        return bytes(ids).decode("utf-8", errors="replace")


@dataclass(frozen=True)
class PieceTokeniser:
    """One id per different piece that a pattern cuts the training text into; the first stands for all others."""

    pattern: re.Pattern[str]
    pieces: tuple[str, ...]

    @cached_property
    def ids(self) -> dict[str, int]:
        return {piece: i for i, piece in enumerate(self.pieces)}

    @property
    def vocab(self) -> int:
        return len(self.pieces)

    def encode(self, text: str) -> list[int]:
        return [self.ids.get(piece, 0) for piece in self.pattern.findall(text)]

    def decode(self, ids: Iterable[int]) -> str:
        return "".join(self.pieces[i] for i in ids)


def character_tokeniser(text: str) -> PieceTokeniser:
    """One id per character of the training text."""
    return piece_tokeniser(CHARACTERS, text)


def word_tokeniser(text: str) -> PieceTokeniser:
    """One id per word, run of white space, and mark of the training text."""
    return piece_tokeniser(WORDS, text)


def piece_tokeniser(pattern: re.Pattern[str], text: str) -> PieceTokeniser:
    """`UNKNOWN` and each piece of the text, in order. The pattern must leave no character out: decoding is joining."""
    return PieceTokeniser(pattern, (UNKNOWN, *sorted(set(pattern.findall(text)) - {UNKNOWN})))


@dataclass(frozen=True)
class SubwordTokeniser:
    """Byte-pair encoding by the `tokenizers` library: bytes, and the pairs of pieces that were most frequent."""

    library: Any  # a `tokenizers.Tokenizer`

    @property
    def vocab(self) -> int:
        return self.library.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        return self.library.encode(text).ids

    def decode(self, ids: Iterable[int]) -> str:
        return self.library.decode(list(ids))


def subword_tokeniser(text: str, *, vocab: int) -> SubwordTokeniser:
    """Merges pairs until there are `vocab` pieces, or no pair stands twice; 256 of them are the bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # only this grain needs it

    if vocab < 256:
        raise ValueError(f"the 256 bytes are pieces themselves: vocab must be at least 256, got {vocab}")
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocab, initial_alphabet=alphabet, min_frequency=2, show_progress=False)
    library.train_from_iterator([text], trainer)
    return SubwordTokeniser(library)
