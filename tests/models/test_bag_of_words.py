"""Counts of words: what they keep, what they lose, and what is refused."""

import pytest
import torch
from jaxtyping import TypeCheckError
from torch.testing import assert_close

from models import bag_of_words
from models.bag_of_words import BagOfWords, similarity, toy
from models.tokenisers import word_tokeniser
from tests.models.checks import assert_traces

B, T, VOCAB = 2, 7, 13


def bags(*texts):
    """The counts of each text, over the words of all of them; spaces are left out."""
    tokeniser = word_tokeniser(" ".join(texts))
    space = tokeniser.encode(" ")[0]
    model = BagOfWords(tokeniser.vocab)
    rows = [[token for token in tokeniser.encode(text) if token != space] for text in texts]
    return torch.cat([model(torch.tensor([row])) for row in rows])


def test_a_word_counts_as_often_as_it_stands_there():
    ids = torch.tensor([[3, 3, 3, 0, 12]])
    counts = toy()(ids)[0]
    assert counts.tolist() == [1, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    assert counts.sum() == ids.numel()


def test_padding_is_no_word():
    ids = torch.tensor([[3, 5, 0, 0]])
    valid = torch.tensor([[True, True, False, False]])
    assert_close(toy()(ids, valid=valid), toy()(ids[:, :2]))


def test_order_is_lost():
    a, b = bags("the dog bites the man", "the man bites the dog")
    assert torch.equal(a, b)
    ids = torch.randint(VOCAB, (B, T))
    assert torch.equal(toy()(ids), toy()(ids[:, torch.randperm(T)]))


def test_words_of_one_meaning_have_nothing_in_common_but_texts_that_share_words_do():
    glad, happy, glad_dog = bags("glad", "happy", "glad dog")
    assert_close(similarity(glad, happy), torch.tensor(0.0))
    assert_close(similarity(glad, glad_dog), torch.tensor(2**-0.5))


def test_it_traces_in_its_own_names_and_replays():
    assert_traces(toy(), torch.randint(VOCAB, (3, 11)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: toy()(torch.ones(B, T)), r"'ids'[\s\S]*f32\[2,7\][\s\S]*Int"),
        (lambda: toy()(torch.ones(T, dtype=torch.int64)), r"'ids'[\s\S]*i64\[7\][\s\S]*'B T'"),
        (
            lambda: toy()(torch.ones(B, T, dtype=torch.int64), valid=torch.ones(T, B, dtype=torch.bool)),
            r"'valid'[\s\S]*B T",
        ),
        (lambda: similarity(torch.ones(3), torch.ones(4)), r"'b'[\s\S]*width=3"),
    ],
)
def test_wrong_inputs_are_refused_by_name(call, message):
    with pytest.raises(TypeCheckError, match=message):
        call()


def test_a_sum_over_the_wrong_axis_is_refused_by_name(mutant):
    broken = mutant(bag_of_words, "words.sum(dim=1)", "words.sum(dim=2)")
    with pytest.raises(TypeCheckError, match=r"return value of \S*counted[\s\S]*B vocab[\s\S]*vocab=13"):
        broken.toy()(torch.ones(B, T, dtype=torch.int64))
