"""How a token is chosen, by section 12.1's numbers, and how the loop stops, by prepared score traces."""

import math

import pytest
import torch
from jaxtyping import TypeCheckError
from torch.testing import assert_close

from models import transformer
from models.cache import Cache
from models.decoding import Sampler, Stop, generate, greedy, next_token_probabilities
from models.embeddings import TokenEmbedding

LOGITS = torch.tensor([[3.0, 2.0, 1.0, 0.0]])
VOCAB, EOS = 7, 6


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({}, [0.643914, 0.236883, 0.087144, 0.032059]),
        ({"temperature": 2.0}, [0.455054, 0.276004, 0.167405, 0.101536]),
        ({"top_k": 2}, [0.731059, 0.268941, 0, 0]),
        ({"top_p": 0.9}, [0.665241, 0.244728, 0.090031, 0]),
    ],
)
def test_the_numbers_of_section_12_1(policy, expected):
    probabilities = next_token_probabilities(LOGITS, **policy)
    assert_close(probabilities, torch.tensor([expected]), atol=1e-6, rtol=0)
    assert greedy(LOGITS).tolist() == [0]
    assert probabilities.argmax() == 0


def test_the_candidate_that_crosses_the_threshold_is_kept():
    mass = next_token_probabilities(LOGITS).cumsum(dim=-1)[0]
    assert mass[1].item() == pytest.approx(0.880797, abs=1e-6)
    assert mass[2].item() == pytest.approx(0.967941, abs=1e-6)
    assert (next_token_probabilities(LOGITS, top_p=0.9) > 0).sum() == 3
    # A mass that is reached exactly needs no more; a mass below the first candidate's keeps that one.
    even = torch.zeros(1, 4)
    assert (next_token_probabilities(even, top_p=0.5) > 0).tolist() == [[True, True, False, False]]
    assert (next_token_probabilities(LOGITS, top_p=0.01) > 0).tolist() == [[True, False, False, False]]
    assert_close(next_token_probabilities(LOGITS, top_p=1.0), LOGITS.softmax(dim=-1))


def test_equal_logits_are_ranked_by_id():
    logits = torch.tensor([[1.0, 2.0, 2.0, 1.0, 2.0]])
    assert greedy(logits).tolist() == [1]
    assert (next_token_probabilities(logits, top_k=2) > 0).tolist() == [[False, True, True, False, False]]
    assert (next_token_probabilities(logits, top_k=4) > 0).tolist() == [[True, True, True, False, True]]
    assert (next_token_probabilities(torch.zeros(1, 5), top_p=0.35) > 0).tolist() == [[True, True, False, False, False]]


def test_equal_logits_are_ranked_by_id_in_a_vocabulary_of_any_size():
    logits = torch.randint(2, (4, 1009)).float()
    kept = next_token_probabilities(logits, top_k=5) > 0
    for row, marks in zip(logits, kept, strict=True):
        assert marks.nonzero()[:, 0].tolist() == row.nonzero()[:5, 0].tolist()


def test_the_order_is_temperature_then_top_k_then_top_p():
    # Within the top 2 the first id has 0.731 of the mass: enough for 0.7, while of the whole it has but 0.644.
    assert (next_token_probabilities(LOGITS, top_k=2, top_p=0.7) > 0).sum() == 1
    assert (next_token_probabilities(LOGITS, top_p=0.7) > 0).sum() == 2
    # A temperature of 2 comes first: it leaves the first of two ids 0.622 of their mass.
    assert (next_token_probabilities(LOGITS, temperature=2.0, top_k=2, top_p=0.7) > 0).sum() == 2


def test_temperature_sharpens_below_one_and_spreads_above_and_keeps_the_ranking():
    logits = torch.randn(3, 11)
    first = [next_token_probabilities(logits, temperature=t).amax(dim=-1) for t in (0.5, 1.0, 2.0)]
    assert (first[0] > first[1]).all()
    assert (first[1] > first[2]).all()
    assert_close(next_token_probabilities(logits, temperature=1.0), logits.softmax(dim=-1))
    ranking = next_token_probabilities(logits, temperature=3.0).argsort(dim=-1)
    assert torch.equal(ranking, logits.argsort(dim=-1))
    assert_close(next_token_probabilities(logits, temperature=1e4), torch.full((3, 11), 1 / 11), atol=1e-3, rtol=0)


def test_every_row_of_a_batch_has_its_own_candidates():
    logits = torch.randn(5, 11)
    together = next_token_probabilities(logits, temperature=0.7, top_k=4, top_p=0.8)
    alone = [next_token_probabilities(row[None], temperature=0.7, top_k=4, top_p=0.8) for row in logits]
    assert_close(together, torch.cat(alone))
    assert_close(together.sum(dim=-1), torch.ones(5))


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"temperature": 0.0}, r"temperature must be positive, got 0\.0; .*`greedy`"),
        ({"temperature": -1.0}, r"temperature must be positive, got -1\.0"),
        ({"temperature": math.nan}, r"temperature must be positive, got nan"),
        ({"top_k": 0}, r"top_k must keep at least one candidate, got 0"),
        ({"top_p": 0.0}, r"top_p must be above 0 and at most 1, got 0\.0"),
        ({"top_p": 1.5}, r"top_p must be above 0 and at most 1, got 1\.5"),
    ],
)
def test_a_policy_that_keeps_nothing_is_refused(policy, message):
    with pytest.raises(ValueError, match=message):
        next_token_probabilities(LOGITS, **policy)


def test_sampling_draws_from_the_distribution():
    sampler = Sampler(temperature=2.0, top_k=3, generator=torch.Generator().manual_seed(1))
    drawn = sampler(LOGITS.expand(20_000, -1)).bincount(minlength=4) / 20_000
    expected = next_token_probabilities(LOGITS, temperature=2.0, top_k=3)[0]
    assert_close(drawn, expected, atol=0.01, rtol=0)
    assert drawn[3] == 0


def test_a_generator_repeats_its_draws():
    draws = [Sampler(generator=torch.Generator().manual_seed(3))(LOGITS.expand(50, -1)) for _ in range(2)]
    assert torch.equal(*draws)
    assert len(draws[0].unique()) > 1


def scripted(*rows):
    """A model that scores highest the tokens of a script: position t of a row is followed by the row's t-th token."""
    script = torch.tensor(rows)

    def model(ids, *, valid, cache):
        return torch.nn.functional.one_hot(script[:, : ids.shape[1]], VOCAB).float()

    return model


def prompts(b, t=1):
    return torch.zeros(b, t, dtype=torch.int64)


def test_an_end_marker_and_the_limit_are_different_reasons_to_stop():
    model = scripted([1, 2, EOS, 3, 3], [1, 2, 3, 4, 5])
    result = generate(model, prompts(2), max_new_tokens=5, eos=EOS)
    assert result.stops == (Stop.EOS, Stop.LENGTH)
    assert result.new_tokens() == ((1, 2, EOS), (1, 2, 3, 4, 5))
    assert result.ids.shape == (2, 6)
    assert result.ids[0, 4:].tolist() == [EOS, EOS]  # filled up
    assert result.valid.tolist() == [[True, True, True, True, False, False], [True] * 6]


def test_an_end_marker_as_the_last_token_allowed_is_an_end_marker():
    result = generate(scripted([1, EOS]), prompts(1), max_new_tokens=2, eos=EOS)
    assert result.stops == (Stop.EOS,)
    assert result.new_tokens() == ((1, EOS),)


def test_the_loop_ends_with_its_last_sequence():
    calls = []
    model = scripted([1, EOS, 1, 1, 1, 1], [1, 1, EOS, 1, 1, 1])

    def counted(ids, **options):
        calls.append(ids.shape[1])
        return model(ids, **options)

    result = generate(counted, prompts(2), max_new_tokens=6, eos=EOS)
    assert calls == [1, 2, 3]
    assert result.stops == (Stop.EOS, Stop.EOS)


def test_without_an_end_marker_the_limit_stops():
    result = generate(scripted([1, EOS, 2]), prompts(1), max_new_tokens=3)
    assert result.stops == (Stop.LENGTH,)
    assert result.new_tokens() == ((1, EOS, 2),)


def test_a_filter_can_exclude_the_end_marker_at_one_step_and_not_at_the_next():
    def model(ids, *, valid, cache):
        end = 1.0 if ids.shape[1] == 1 else 5.0
        row = torch.tensor([0.0, 3.0, 2.0, 0.0, 0.0, 0.0, end])
        return row.expand(*ids.shape, -1)

    sampler = Sampler(temperature=0.1, top_k=2, generator=torch.Generator().manual_seed(0))
    result = generate(model, prompts(1), max_new_tokens=5, eos=EOS, choose=sampler)
    assert result.new_tokens()[0][0] != EOS
    assert result.new_tokens()[0][-1] == EOS


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"max_new_tokens": 0}, ValueError, r"max_new_tokens must be at least 1, got 0"),
        ({"valid": torch.tensor([[True, False]])}, ValueError, r"pad on the left"),
        ({"ids": torch.zeros(2, dtype=torch.int64)}, TypeCheckError, r"parameter 'ids'[\s\S]*B T"),
        ({"valid": torch.ones(1, 3, dtype=torch.bool)}, TypeCheckError, r"parameter 'valid'[\s\S]*B T[\s\S]*T=2"),
    ],
)
def test_bad_requests_are_refused(change, error, message):
    request = {"ids": prompts(1, 2), "max_new_tokens": 3}
    with pytest.raises(error, match=message):
        generate(scripted([1, 2, 3, 4]), **(request | change))


def decoder(b):
    """A small decoder of fixed sources, whose greedy choice varies from step to step: big entries, no dropout."""
    model = transformer.toy(d_model=12, vocab=VOCAB).eval()
    torch.nn.init.normal_(next(m for m in model.modules() if isinstance(m, TokenEmbedding)).table.weight)
    return model.reading(torch.randint(VOCAB, (1, 5)).expand(b, -1))


@pytest.mark.parametrize("choose", [greedy, "sample"])
def test_with_a_cache_the_tokens_are_the_same_and_each_is_read_once(choose):
    decode, read = decoder(3), []

    def counted(ids, **options):
        read.append(ids.shape[1])
        return decode(ids, **options)

    def run(cache):
        policy = Sampler(generator=torch.Generator().manual_seed(5)) if choose == "sample" else choose
        return generate(counted, start, max_new_tokens=9, choose=policy, cache=cache)

    start = torch.randint(VOCAB, (3, 4))
    slow = run(None)
    assert read == [4, 5, 6, 7, 8, 9, 10, 11, 12]
    read.clear()
    fast = run(Cache(2))
    assert read == [4, 1, 1, 1, 1, 1, 1, 1, 1]
    assert torch.equal(fast.ids, slow.ids)
    assert len(fast.ids.unique()) > 2


@pytest.mark.parametrize("cached", [False, True])
def test_prompts_of_unequal_length_continue_as_they_do_alone(cached):
    decode = decoder(2)
    ids = torch.randint(VOCAB, (2, 5))
    valid = torch.tensor([[False, False, True, True, True], [True] * 5])
    together = generate(decode, ids, valid=valid, max_new_tokens=8, eos=EOS, cache=Cache(2) if cached else None)
    torch.manual_seed(0)
    single = decoder(1)
    for b, row in enumerate(ids):
        alone = generate(single, row[valid[b]][None], max_new_tokens=8, eos=EOS)
        assert together.new_tokens()[b] == alone.new_tokens()[0]
        assert together.stops[b] is alone.stops[0]


def test_generating_takes_no_gradients():
    model, seen = scripted([1, 2]), []

    def watched(ids, **options):
        seen.append(torch.is_grad_enabled())
        return model(ids, **options)

    generate(watched, prompts(1), max_new_tokens=2)
    assert seen == [False, False]
    assert torch.is_grad_enabled()
