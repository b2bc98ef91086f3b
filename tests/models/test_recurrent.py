"""The recurrent encoder-decoder: it learns to reverse, attention is why, its state is its cache, what it refuses."""

import pytest
import torch
import torch.nn.functional as F
from jaxtyping import TypeCheckError
from torch.testing import assert_close

from models import recurrent
from models.properties import batch_leaks, changed_positions, future_leaks
from models.recurrent import RecurrentConfig, RecurrentSeq2Seq, toy
from tests.models.checks import assert_traces, one_by_one

B, S, T, VOCAB = 2, 7, 5, 103


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def ids(t, b=B, vocab=VOCAB):
    return torch.randint(1, vocab, (b, t))


def train(*, attention, steps, length=9, symbols=11):
    """A model after `steps` batches of sequences and their reversals, and its last loss in nats per token."""
    torch.manual_seed(0)
    model = RecurrentSeq2Seq(RecurrentConfig(vocab=symbols, d_model=48, attention=attention))
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(steps):
        source = ids(length, b=64, vocab=symbols)
        target = source.flip(1)
        logits = model(source, F.pad(target, (1, 0))[:, :-1])  # 0 begins a sequence
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    return model.eval(), loss.item()


@torch.no_grad()
def write(model, source):
    """Greedy decoding, one token at a time from the state before."""
    memory, token, state = model.reader(source), torch.zeros(len(source), 1, dtype=torch.int64), None
    written = []
    for _ in range(source.shape[1]):
        logits, state = model.decode(token, memory, state=state)
        token = logits[:, -1:].argmax(dim=-1)
        written.append(token)
    return torch.cat(written, dim=1)


def test_with_attention_it_learns_to_reverse_and_without_it_does_not_in_as_many_steps():
    attentive, loss = train(attention=True, steps=400)
    forgetful, loss_without = train(attention=False, steps=400)
    assert loss < 0.05
    assert loss_without > 0.3
    source = ids(9, b=50, vocab=11)
    assert (write(attentive, source) == source.flip(1)).float().mean() > 0.98
    assert (write(forgetful, source) == source.flip(1)).float().mean() < 0.8


@pytest.mark.parametrize("attention", [True, False])
def test_one_token_at_a_time_from_the_last_state_gives_what_the_whole_target_gives(attention):
    model, source, target = toy(attention=attention), ids(S), ids(T)
    memory, state = model.reader(source), None

    def step(new, _):
        nonlocal state
        logits, state = model.decode(new, memory, state=state)
        return logits

    assert_close(one_by_one(step, target, prompt=2), model(source, target))


@pytest.mark.parametrize("attention", [True, False])
def test_padding_of_the_source_changes_nothing(attention):
    model, source, target = toy(attention=attention), ids(S), ids(T)
    valid = torch.tensor([[True] * S, [True] * 4 + [False] * 3])
    logits = model(source, target, source_valid=valid)
    assert_close(logits[:1], model(source[:1], target[:1]))
    assert_close(logits[1:], model(source[1:, :4], target[1:]))
    assert (logits - model(source, target))[1].abs().max() > 1e-3


def test_nothing_but_what_may_be_seen_is_seen():
    model, source, target = toy().eval(), ids(S), ids(T)
    assert future_leaks(lambda x: model(source, x), target) == ()
    assert changed_positions(lambda x: model(x, target), source, S - 1) == tuple(range(T))
    assert batch_leaks(lambda x: model(x, target[:1].expand(len(x), -1)), source) == ()


def test_a_state_of_the_reader_knows_nothing_of_what_follows_and_a_backward_reader_would():
    reader, source = toy().reader.eval(), ids(S)
    assert future_leaks(reader, source) == ()
    assert future_leaks(lambda x: reader(x.flip(1)).flip(1), source) == tuple(range(S - 1))


@pytest.mark.parametrize("attention", [True, False])
def test_it_traces_in_its_own_names_and_replays(attention):
    assert_traces(toy(attention=attention).eval(), ids(11, b=3), ids(4, b=3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m(torch.ones(B, S), ids(T)), r"'source'[\s\S]*f32\[2,7\][\s\S]*Int"),
        (lambda m: m(ids(S), ids(T, b=3)), r"'ids'[\s\S]*i64\[3,5\][\s\S]*B=2"),
        (lambda m: m(ids(S), ids(T), source_valid=torch.ones(B, T, dtype=torch.bool)), r"'source_valid'[\s\S]*S=7"),
        (lambda m: m.decode(ids(T), torch.ones(B, S, 29), state=torch.ones(B, 28)), r"'state'[\s\S]*d_model=29"),
    ],
)
def test_wrong_inputs_are_refused_by_name(call, message):
    with pytest.raises(TypeCheckError, match=message):
        call(toy())


def test_scores_the_wrong_way_round_are_refused_by_name(mutant):
    right, wrong = "self.matched(states) @ memory.transpose(1, 2)", "memory @ self.matched(states).transpose(1, 2)"
    broken = mutant(recurrent, right, wrong)
    with pytest.raises(TypeCheckError, match=r"return value of \S*scores[\s\S]*B T S"):
        broken.toy()(ids(S), ids(T))
