"""Training works: from a fixed seed two small models reach a stated loss, and then greedy decoding is right."""

import codecs
import contextlib
import io
import random

import torch

from models import gpt, transformer
from models.cache import Cache
from models.decoding import Stop, generate
from models.loss import mean_nll, next_token_pairs, shifted_right

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
PAD, BOS, EOS = 0, 1, 2
SYMBOLS = ["<pad>", "<bos>", "<eos>", *"0123456789", " ", *sorted(set("".join(WORDS)))]
ID = {symbol: i for i, symbol in enumerate(SYMBOLS)}


def spelled(number):
    """`307` to `three zero seven`."""
    return " ".join(WORDS[int(digit)] for digit in number)


def padded(rows):
    """Rows of ids as one tensor, padded on the right, and where its real tokens are."""
    length = max(map(len, rows))
    ids = torch.tensor([row + [PAD] * (length - len(row)) for row in rows])
    return ids, ids != PAD


def digits_to_words(numbers):
    """Sources and targets of a batch: digits, and letters with an end marker; and where each has real tokens."""
    source, source_valid = padded([[ID[digit] for digit in number] for number in numbers])
    targets, scored = padded([[ID[letter] for letter in spelled(number)] + [EOS] for number in numbers])
    return source, source_valid, targets, scored


def train(model, losses, *, steps, rate):
    """AdamW with a rate that rises for a tenth of the steps and falls to zero; gives the last loss."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps, pct_start=0.1)
    for _ in range(steps):
        loss = next(losses)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    return loss.item()


def test_the_encoder_decoder_learns_to_spell_numbers_that_it_has_not_seen():
    torch.manual_seed(0)
    rng = random.Random(0)
    numbers = [str(n).zfill(length) for length in (1, 2, 3) for n in range(10**length)]
    rng.shuffle(numbers)
    unseen, seen = numbers[:100], numbers[100:]
    model = transformer.toy(vocab=len(SYMBOLS), d_model=48, n_heads=4, d_ff=192, n_layers=1)

    def losses():
        while True:
            source, source_valid, targets, scored = digits_to_words(rng.sample(seen, 32))
            yield mean_nll(model(source, shifted_right(targets, BOS), source_valid=source_valid), targets, scored)

    untrained = next(losses()).item()
    assert untrained > 2.5  # nats; a guess among the 28 symbols costs 3.3
    assert train(model, losses(), steps=400, rate=4e-3) < 0.01

    model.eval()
    source, source_valid, targets, scored = digits_to_words(unseen)
    with torch.no_grad():
        logits = model(source, shifted_right(targets, BOS), source_valid=source_valid)
    assert mean_nll(logits, targets, scored) < 0.02
    start = torch.full((len(unseen), 1), BOS)
    decode = model.reading(source, source_valid=source_valid)
    result = generate(decode, start, max_new_tokens=25, eos=EOS, cache=Cache(1))
    words = ["".join(SYMBOLS[i] for i in row[:-1]) for row in result.new_tokens()]
    right = sum(word == spelled(number) for word, number in zip(words, unseen, strict=True))
    assert right >= 98
    assert result.stops.count(Stop.EOS) >= 98


def zen():
    """The text of the module `this`: it prints itself on its first import, and keeps itself in a simple cipher."""
    with contextlib.redirect_stdout(io.StringIO()):
        import this
    return codecs.decode(this.s, "rot13")


def test_a_small_gpt_learns_a_text_by_heart_letter_by_letter():
    torch.manual_seed(0)
    text, window, told = zen(), 48, 32
    letters = sorted(set(text))
    ids = torch.tensor([letters.index(letter) for letter in text])
    model = gpt.toy(vocab=len(letters), max_len=window, d_model=64, n_heads=4, d_ff=256, n_layers=2)

    def losses():
        while True:
            starts = torch.randint(len(ids) - window, (16,)).tolist()
            inputs, targets = next_token_pairs(torch.stack([ids[start : start + window + 1] for start in starts]))
            yield mean_nll(model(inputs), targets)

    assert train(model, losses(), steps=450, rate=5e-3) < 0.3

    starts = range(0, len(text) - window, window)
    prompts = torch.stack([ids[start : start + told] for start in starts])
    result = generate(model.eval(), prompts, max_new_tokens=window - told, cache=Cache(2))
    written = ["".join(letters[i] for i in row) for row in result.ids]
    right = sum(found == text[start : start + window] for found, start in zip(written, starts, strict=True))
    assert right >= 15, f"{right} of {len(starts)} passages are continued as they stand"
