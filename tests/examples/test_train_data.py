"""What the training examples learn from, in which order, and how a batch is shared."""

import doctest
import importlib
import pkgutil

import pytest
import torch

import training
from training.batch import share
from training.numerals import EOS, SYMBOLS, Numerals, Pairs, english, german
from training.order import Order
from training.settings import RunError, Settings
from training.text import Texts, reference, zen


@pytest.mark.parametrize("name", [each.name for each in pkgutil.iter_modules(training.__path__, "training.")])
def test_docstrings(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


NUMERALS = {
    0: ("zero", "null"),
    1: ("one", "eins"),
    12: ("twelve", "zwölf"),
    16: ("sixteen", "sechzehn"),
    21: ("twenty-one", "einundzwanzig"),
    30: ("thirty", "dreißig"),
    67: ("sixty-seven", "siebenundsechzig"),
    100: ("one hundred", "einhundert"),
    101: ("one hundred one", "einhunderteins"),
    111: ("one hundred eleven", "einhundertelf"),
    342: ("three hundred forty-two", "dreihundertzweiundvierzig"),
    1001: ("one thousand one", "eintausendeins"),
    1100: ("one thousand one hundred", "eintausendeinhundert"),
    21_000: ("twenty-one thousand", "einundzwanzigtausend"),
    101_101: ("one hundred one thousand one hundred one", "einhunderteintausendeinhunderteins"),
    999_999: (
        "nine hundred ninety-nine thousand nine hundred ninety-nine",
        "neunhundertneunundneunzigtausendneunhundertneunundneunzig",
    ),
}


@pytest.mark.parametrize("number", NUMERALS)
def test_numerals(number):
    assert (english(number), german(number)) == NUMERALS[number]


def test_no_two_numbers_have_one_name_and_no_letter_is_unknown():
    numbers = range(0, 1_000_000, 97)
    for name in (english, german):
        names = [name(number) for number in numbers]
        assert len(set(names)) == len(names)
        assert set("".join(names)) <= set(SYMBOLS)


def test_a_batch_of_pairs_says_what_is_real_and_what_is_scored():
    task = Numerals(100, seed=3)
    batch = task.batch(list(range(7)))
    lengths = [len(german(number)) + 1 for number in task.seen[:7]]
    assert batch.scored.sum(dim=1).tolist() == lengths
    assert batch.n_scored == sum(lengths)
    assert batch.source_valid.sum(dim=1).tolist() == [len(english(number)) for number in task.seen[:7]]
    ends = batch.targets[torch.arange(7), torch.tensor(lengths) - 1]
    assert ends.tolist() == [EOS] * 7
    assert set(task.seen).isdisjoint(task.unseen)
    assert sorted(task.seen + task.unseen) == list(range(100))


def test_passages_overlap_in_no_byte_with_those_held_out():
    task = Texts("abcdefghij" * 10, window=7)
    assert (task.n_items, task.n_held_out) == (73, 2)
    last = task.batch([task.n_items - 1])
    assert bytes(last.targets[0].tolist()).decode() == "defghij"
    first, second = task.batch([0, 1], held_out=True).ids.tolist()
    assert bytes(first).decode() + "h" == "abcdefgh"
    assert bytes(second).decode() == "ijabcde"


def test_the_texts_are_there():
    assert zen().startswith("The Zen of Python") and len(zen()) == 856
    assert 300_000 < len(reference()) < 1_000_000


@pytest.mark.parametrize(("n_items", "count"), [(5, 3), (7, 7), (3, 11)])
def test_every_epoch_holds_every_item_once(n_items, count):
    order = Order(n_items, seed=2)
    taken = [item for _ in range(n_items) for item in order.take(count)]
    epochs = [taken[start : start + n_items] for start in range(0, len(taken), n_items)]
    assert all(sorted(epoch) == list(range(n_items)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1


def test_an_order_goes_on_from_its_position():
    order = Order(11, seed=5)
    order.take(8)
    assert Order(11, seed=5, position=order.position).take(9) == order.take(9)
    assert Order(11, seed=6).take(11) != Order(11, seed=5).take(11)


def test_the_shares_of_a_batch_are_the_batch():
    whole = Numerals(100, seed=3).batch(list(range(6)))
    parts = [share(whole, rank, 3) for rank in range(3)]
    assert all(isinstance(part, Pairs) for part in parts)
    assert sum(part.n_scored for part in parts) == whole.n_scored
    assert torch.equal(torch.stack([part.targets for part in parts], dim=1).flatten(0, 1), whole.targets)


def test_the_rate_rises_in_a_line_and_falls_along_a_cosine():
    settings = Settings(steps=110, warmup=10, rate=2.0)
    rates = [settings.rate_at(step) for step in range(110)]
    assert rates[:10] == pytest.approx([0.2 * step for step in range(1, 11)])
    assert rates[10] == 2.0
    assert rates[60] == pytest.approx(2.0 * 0.55)
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert 0.2 < rates[-1] < 0.201


@pytest.mark.parametrize(("name", "value"), [("clip", float("inf")), ("decay", -0.1), ("eval_every", 0), ("seed", -1)])
def test_a_setting_that_cannot_be(name, value):
    with pytest.raises(RunError, match=rf"^{name} = {value} must be (positive|0 or more)$"):
        Settings(**{name: value}).check(world=1)
