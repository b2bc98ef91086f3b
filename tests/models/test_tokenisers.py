"""Four grains of tokens: round trips, unknown pieces, and what a larger vocabulary buys."""

from itertools import pairwise
from pydoc_data.topics import topics

import pytest

from models.tokenisers import UNKNOWN, ByteTokeniser, character_tokeniser, subword_tokeniser, word_tokeniser

TEXT = "\n".join(topics[name] for name in ("assignment", "class", "for", "function", "import", "try", "while", "with"))
STRANGE = 'Σ naïve 🙂\n\tzwölf  "x" \u200b'
GRAINS = {
    "bytes": ByteTokeniser(),
    "characters": character_tokeniser(TEXT),
    "subwords": subword_tokeniser(TEXT, vocab=600),
    "words": word_tokeniser(TEXT),
}


@pytest.mark.parametrize("grain", GRAINS)
def test_the_training_text_comes_back(grain):
    tokeniser = GRAINS[grain]
    ids = tokeniser.encode(TEXT)
    assert tokeniser.decode(ids) == TEXT
    assert all(0 <= token < tokeniser.vocab for token in ids)
    assert tokeniser.encode("") == []
    assert tokeniser.decode([]) == ""


@pytest.mark.parametrize("grain", ["bytes", "subwords"])
def test_every_text_comes_back_where_bytes_are_the_last_resort(grain):
    tokeniser = GRAINS[grain]
    assert tokeniser.decode(tokeniser.encode(STRANGE)) == STRANGE


@pytest.mark.parametrize("grain", ["characters", "words"])
def test_what_training_did_not_see_is_unknown(grain):
    tokeniser = GRAINS[grain]
    decoded = tokeniser.decode(tokeniser.encode("while 🙂:"))
    assert decoded == f"while {UNKNOWN}:"
    assert tokeniser.encode("🙂") == [0]


def test_half_a_character_is_unknown():
    tokeniser = ByteTokeniser()
    assert tokeniser.encode("é") == [0xC3, 0xA9]
    assert tokeniser.decode([0x61, 0xC3]) == f"a{UNKNOWN}"
    with pytest.raises(ValueError, match=r"range\(0, 256\)"):
        tokeniser.decode([256])


def test_a_coarser_grain_has_fewer_tokens():
    lengths = [len(GRAINS[grain].encode(TEXT)) for grain in ("bytes", "characters", "subwords", "words")]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[1] > 2 * lengths[2] > 2 * lengths[3]


def test_a_larger_vocabulary_takes_fewer_tokens_and_a_larger_table():
    sizes = [256, 300, 600, 1000]
    trained = [subword_tokeniser(TEXT, vocab=size) for size in sizes]
    lengths = [len(tokeniser.encode(TEXT)) for tokeniser in trained]
    assert [tokeniser.vocab for tokeniser in trained] == sizes
    assert lengths[0] == len(TEXT.encode())
    assert all(more > fewer for more, fewer in pairwise(lengths))


def test_a_frequent_word_is_one_subword_and_a_rare_one_is_several():
    tokeniser = GRAINS["subwords"]
    assert len(tokeniser.encode(" statement")) == 1
    assert len(tokeniser.encode(" Transformers")) > 1


def test_training_gives_the_same_pieces_every_time():
    again = subword_tokeniser(TEXT, vocab=600)
    assert again.encode(TEXT) == GRAINS["subwords"].encode(TEXT)


def test_a_vocabulary_smaller_than_the_bytes_is_refused():
    with pytest.raises(ValueError, match=r"vocab must be at least 256, got 255"):
        subword_tokeniser(TEXT, vocab=255)
