"""The loss: section 11's numbers, the shift of the targets, and what a loss mask leaves out."""

import math

import pytest
import torch
import torch.nn.functional as F
from jaxtyping import TypeCheckError
from torch.testing import assert_close

from models.loss import mean_nll, next_token_pairs, shifted_right, token_nll

B, T, VOCAB = 2, 5, 11


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def batch():
    return torch.randn(B, T, VOCAB), torch.randint(VOCAB, (B, T))


def test_the_numbers_of_section_11_2():
    logits = torch.tensor([[[1.2, 0.3, -0.4, 2.0]]])
    probabilities = torch.tensor([[[0.2608, 0.1060, 0.0527, 0.5805]]])
    assert_close(logits.softmax(dim=-1), probabilities, atol=5e-5, rtol=0)
    loss = token_nll(logits, torch.tensor([[3]])).item()
    assert loss == pytest.approx(0.5439, abs=5e-5)
    assert loss == pytest.approx(-math.log(probabilities[0, 0, 3]), abs=1e-4)  # the natural logarithm: nats


def test_the_loss_of_a_sequence_is_the_sum_over_its_positions():
    logits, targets = batch()
    by_hand = [-sum(logits[b, t].softmax(0)[targets[b, t]].log() for t in range(T)) for b in range(B)]
    assert_close(token_nll(logits, targets).sum(dim=1), torch.stack(by_hand))


def test_values_and_gradients_equal_the_cross_entropy_of_torch():
    logits, targets = batch()
    logits.requires_grad_()
    ours, theirs = mean_nll(logits, targets), F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    assert_close(ours, theirs)
    assert_close(torch.autograd.grad(ours, logits), torch.autograd.grad(theirs, logits))


def test_a_uniform_guess_costs_the_logarithm_of_the_vocabulary():
    assert mean_nll(torch.zeros(B, T, VOCAB), batch()[1]).item() == pytest.approx(math.log(VOCAB))


def test_large_logits_do_not_overflow():
    assert_close(token_nll(torch.tensor([[[1e4, 0.0]]]), torch.tensor([[1]])), torch.tensor([[1e4]]))


def test_a_loss_mask_divides_by_what_it_scores():
    logits, targets = batch()
    mask = torch.tensor([[True, True, False, False, False], [True, False, True, False, True]])
    losses = token_nll(logits, targets)
    assert_close(mean_nll(logits, targets, mask), (losses * mask).sum() / mask.sum())
    assert_close(mean_nll(logits, targets, torch.ones_like(mask)), mean_nll(logits, targets))


def test_targets_that_are_not_scored_change_neither_loss_nor_gradient():
    logits, targets = batch()
    logits.requires_grad_()
    mask = torch.ones(B, T, dtype=torch.bool)
    mask[:, 3] = False
    loss = mean_nll(logits, targets, mask)
    (gradient,) = torch.autograd.grad(loss, logits)
    other = targets.clone()
    other[:, 3] = (other[:, 3] + 1) % VOCAB
    assert_close(mean_nll(logits, other, mask), loss)
    assert not gradient[:, 3].any()
    assert gradient[:, 2].any()


def test_an_empty_loss_mask_is_an_error():
    logits, targets = batch()
    with pytest.raises(ValueError, match=r"loss mask is empty.* no mean loss"):
        mean_nll(logits, targets, torch.zeros(B, T, dtype=torch.bool))


def test_the_decoder_reads_the_targets_one_place_later():
    bos, i, love, models, eos = range(5)
    targets = torch.tensor([[i, love, models, eos]])
    assert shifted_right(targets, bos).tolist() == [[bos, i, love, models]]


def test_a_decoder_only_model_predicts_the_next_token_at_each():
    inputs, targets = next_token_pairs(torch.tensor([[7, 3, 9, 1]]))
    assert inputs.tolist() == [[7, 3, 9]]
    assert targets.tolist() == [[3, 9, 1]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"targets": torch.zeros(B, T + 1, dtype=torch.int64)}, r"parameter 'targets'[\s\S]*B T[\s\S]*T=5"),
        ({"targets": torch.zeros(B, T)}, r"parameter 'targets'[\s\S]*Int\[Tensor"),
        ({"loss_mask": torch.ones(B, T)}, r"parameter 'loss_mask'[\s\S]*Bool\[Tensor"),
        ({"loss_mask": torch.ones(T, dtype=torch.bool)}, r"parameter 'loss_mask'[\s\S]*B T"),
        ({"logits": torch.zeros(B, VOCAB)}, r"parameter 'logits'[\s\S]*B T vocab"),
    ],
)
def test_wrong_shapes_and_dtypes_are_refused_by_name(change, message):
    logits, targets = batch()
    with pytest.raises(TypeCheckError, match=message):
        mean_nll(**({"logits": logits, "targets": targets} | change))
