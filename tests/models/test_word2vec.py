"""Skip-gram embeddings: which pairs, which noise, what training on a made text finds, and what is refused."""

import random

import pytest
import torch
from jaxtyping import TypeCheckError
from torch.testing import assert_close

from models import word2vec
from models.bag_of_words import similarity
from models.tokenisers import word_tokeniser
from models.word2vec import SkipGram, negative_sampling_loss, noise_distribution, skip_grams, toy
from tests.models.checks import assert_traces

KINDS = {
    "animals": ("cat dog horse cow", "eats hears smells", "grass meat water"),
    "people": ("king queen duke lady", "rules visits leaves", "castle city country"),
    "rivers": ("thames rhine bank", "floods crosses", "meadow valley"),
    "money": ("lender broker bank", "owes lends", "pound dollar"),
}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def sentences(n):
    """Three words each, of one kind; `bank` is of two."""
    draw = random.Random(0)
    return [[draw.choice(words.split()) for words in draw.choice([*KINDS.values()])] for _ in range(n)]


@pytest.fixture(scope="module")
def trained():
    """Word to embedding, after training by negative sampling; and the loss before and after."""
    torch.manual_seed(0)
    text = sentences(1000)
    tokeniser = word_tokeniser(" ".join(word for sentence in text for word in sentence))
    index = {word: tokeniser.encode(word)[0] for sentence in text for word in sentence}
    rows = torch.tensor([[index[word] for word in sentence] for sentence in text])
    centres, contexts = (torch.cat(side) for side in zip(*(skip_grams(row, window=2) for row in rows), strict=True))
    model, noise = SkipGram(tokeniser.vocab, 16), noise_distribution(rows.flatten(), vocab=tokeniser.vocab)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(150):
        batch = torch.randint(len(centres), (1024,))
        wrong = torch.multinomial(noise, 1024 * 5, replacement=True).view(1024, 5)
        loss = negative_sampling_loss(model, centres[batch], contexts[batch], wrong)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return {word: model.embed(torch.tensor(i)).detach() for word, i in index.items()}, losses


def test_training_reaches_its_loss(trained):
    _, losses = trained
    assert losses[0] == pytest.approx(6 * 0.693, abs=0.01)  # all scores 0: log 2 for the true context and 5 wrong ones
    assert sum(losses[-20:]) / 20 < 2.0


def test_words_that_stand_in_the_same_places_come_to_lie_together(trained):
    embeddings, _ = trained
    for a, b, other in [("cat", "dog", "king"), ("queen", "lady", "cow"), ("eats", "smells", "rules")]:
        near, far = similarity(embeddings[a], embeddings[b]), similarity(embeddings[a], embeddings[other])
        assert near > 0.8
        assert far < 0.4


def test_a_word_of_two_meanings_has_one_embedding_between_them(trained):
    embeddings, _ = trained
    to_river = similarity(embeddings["bank"], embeddings["thames"])
    to_money = similarity(embeddings["bank"], embeddings["broker"])
    apart = similarity(embeddings["thames"], embeddings["broker"])
    assert min(to_river, to_money) > apart + 0.2
    model = toy()
    river_bank, money_bank = torch.tensor([[3, 7]]), torch.tensor([[9, 7]])
    assert torch.equal(model.embed(river_bank)[0, 1], model.embed(money_bank)[0, 1])


@pytest.mark.parametrize(
    ("window", "pairs"),
    [
        (1, [(5, 6), (6, 5), (6, 7), (7, 6), (7, 8), (8, 7)]),
        (9, [(5, 6), (5, 7), (5, 8), (6, 5), (6, 7), (6, 8), (7, 5), (7, 6), (7, 8), (8, 5), (8, 6), (8, 7)]),
    ],
)
def test_a_pair_is_of_two_places_within_the_window(window, pairs):
    centres, contexts = skip_grams(torch.tensor([5, 6, 7, 8]), window=window)
    assert list(zip(centres.tolist(), contexts.tolist(), strict=True)) == pairs


def test_noise_favours_rare_words():
    noise = noise_distribution(torch.tensor([0] * 16 + [2]), vocab=4)
    assert_close(noise, torch.tensor([8 / 9, 0, 1 / 9, 0]))  # 16 to the power of 3/4 is 8


def test_the_loss_is_that_of_the_formula():
    model, centres, contexts = toy(), torch.tensor([1, 2]), torch.tensor([3, 4])
    noise = torch.tensor([[5, 6, 7], [8, 9, 10]])
    torch.nn.init.normal_(model.contexts.weight)
    expected = 0.0
    for n in range(2):
        v = model.centres.weight[centres[n]]
        expected -= torch.log(torch.sigmoid(v @ model.contexts.weight[contexts[n]]))
        expected -= sum(torch.log(torch.sigmoid(-(v @ model.contexts.weight[word]))) for word in noise[n])
    assert_close(negative_sampling_loss(model, centres, contexts, noise), expected / 2)


def test_it_traces_in_its_own_names_and_replays():
    assert_traces(toy(), torch.randint(13, (11,)), torch.randint(13, (11, 3)))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: toy()(torch.ones(3), torch.ones(3, 2)), TypeCheckError, r"'centres'[\s\S]*f32\[3\][\s\S]*Int"),
        (
            lambda: toy()(torch.ones(3, dtype=torch.int64), torch.ones(4, 2, dtype=torch.int64)),
            TypeCheckError,
            r"'words'[\s\S]*N=3",
        ),
        (lambda: skip_grams(torch.ones(3, dtype=torch.int64), window=0), ValueError, r"at least one word .* got 0"),
    ],
)
def test_wrong_inputs_are_refused_by_name(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_scores_of_the_wrong_side_are_refused_by_name(mutant):
    broken = mutant(word2vec, "self.embed(centres)[:, :, None])[:, :, 0]", "self.embed(centres)[:, :, None])[:, 0]")
    with pytest.raises(TypeCheckError, match=r"return value of \S*forward[\s\S]*N k[\s\S]*k=2"):
        broken.toy()(torch.ones(3, dtype=torch.int64), torch.ones(3, 2, dtype=torch.int64))
