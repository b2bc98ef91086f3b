"""SF307 and SF313: masks along the wrong axis and masks that come too late, beside those that are right."""

import pytest
import torch
import torch.nn.functional as F

from tests.check.rules.found import at_the_marked_line, errors, found

Q, C, PAD = "B T 8", "B N 8", "B N:bool"
LOW = float("-inf")


def of_queries(q, c, pad):
    scores = q @ q.mT
    scores = scores.masked_fill(q[..., :1] > 0, LOW)  # here
    return scores.softmax(-1) @ q


def of_padding(q, c, pad):
    scores = c @ c.mT / 8**0.5
    scores = scores.masked_fill(pad[:, :, None], LOW)  # here
    return F.softmax(scores, dim=-1) @ c


def chosen(q, c, pad):
    scores = torch.where(pad.unsqueeze(-1), c @ c.mT, torch.full((), -1e9))  # here
    return scores.softmax(dim=-1) @ c


def added(q, c, pad):
    bias = (1.0 - pad[:, :, None].float()) * -1e9
    return torch.softmax(c @ c.mT + bias, dim=-1) @ c  # here


def of_torch(q, c, pad):
    return F.scaled_dot_product_attention(c, c, c, attn_mask=pad[:, :, None])  # here


@pytest.mark.parametrize("target", [of_queries, of_padding, chosen, added, of_torch])
def test_a_mask_along_the_queries(target):
    (problem,) = errors(target, Q, C, PAD)
    assert problem.rule == "SF307" and at_the_marked_line(problem)
    assert problem.dims == (("T",) if target is of_queries else ("N",))


def test_the_message_tells_the_mask_that_is_meant():
    (problem,) = found("SF307", of_padding, Q, C, PAD)
    assert problem.message.startswith("the mask (B, N, 1) is the same for all of N")
    assert problem.fix == "mask N: (B, 1, N)"


def of_keys(q, c, pad):
    return (q @ c.mT).masked_fill(pad[:, None, :], LOW).softmax(-1) @ c


def of_both(q, c, pad):
    scores = (c @ c.mT).masked_fill(pad[:, None, :], LOW)
    return scores.masked_fill(pad[:, :, None], -1e9).softmax(-1) @ c


def of_a_bias(q, c, pad):
    """A bias of each query changes nothing, and hurts nobody."""
    return (q @ c.mT + q.sum(-1, keepdim=True)).softmax(-1) @ c


def of_pooling(q, c, pad):
    return (c.sum(-1, keepdim=True).masked_fill(pad[..., None], LOW).softmax(1) * c).sum(1)


def of_torch_right(q, c, pad):
    return F.scaled_dot_product_attention(q, c, c, attn_mask=pad[:, None, :])


@pytest.mark.parametrize("target", [of_keys, of_both, of_a_bias, of_pooling, of_torch_right])
def test_a_mask_along_the_keys(target):
    assert errors(target, Q, C, PAD) == []


# SF313


def filled_after(q, c, pad):
    weights = (q @ c.mT).softmax(-1)
    weights = weights.masked_fill(pad[:, None], 0.0)  # here
    return weights @ c


def times_a_triangle(q, c, pad):
    t = c.shape[1]
    weights = torch.softmax(c @ c.transpose(1, 2), dim=-1)
    weights = F.dropout(weights, 0.1) * torch.tril(torch.ones(t, t))  # here
    return torch.bmm(weights, c)


def chosen_after(q, c, pad):
    weights = torch.einsum("btd,bnd->btn", q, c).softmax(-1)
    weights = torch.where(pad[:, None], weights, torch.zeros_like(weights))  # here
    return torch.einsum("btn,bnd->btd", weights, c)


def times_the_tokens(q, c, pad):
    return ((q @ c.mT).softmax(-1) * (~pad)[:, None].float()) @ c  # here


@pytest.mark.parametrize("target", [filled_after, times_a_triangle, chosen_after, times_the_tokens])
def test_weights_that_are_masked(target):
    (problem,) = errors(target, Q, C, PAD)
    assert problem.rule == "SF313" and at_the_marked_line(problem)
    assert problem.dims == ("N",) and "before the softmax" in problem.fix


def rows_emptied(q, c, pad):
    weights = (c @ c.mT).softmax(-1)
    return weights.masked_fill(pad[:, :, None], 0.0) @ c


def masked_before_and_after(q, c, pad):
    weights = (q @ c.mT).masked_fill(pad[:, None], LOW).softmax(-1)
    return weights.masked_fill(pad[:, None], 0.0) @ c


def normalised_again(q, c, pad):
    weights = (q @ c.mT).softmax(-1) * (~pad)[:, None]
    return (weights / weights.sum(-1, keepdim=True)) @ c


def dropped_by_hand(q, c, pad):
    weights = (q @ c.mT).softmax(-1)
    return (weights * torch.rand(c.shape[1]).gt(0.1)) @ c


def gated(q, c, pad):
    weights = (q @ c.mT).softmax(-1)
    return (weights * torch.sigmoid(c.sum(-1))[:, None]) @ c


@pytest.mark.parametrize("target", [rows_emptied, masked_before_and_after, normalised_again, dropped_by_hand, gated])
def test_weights_that_are_left_or_mended(target):
    assert errors(target, Q, C, PAD) == []


def test_a_mask_of_ones_and_zeros_is_a_mask():
    def added_by_number(x, mask):
        bias = (1.0 - mask[:, :, None].float()) * -10000.0
        scores = x @ x.mT + bias  # here
        return scores.softmax(-1) @ x

    def along_the_keys(x, mask):
        return (x @ x.mT + (1.0 - mask[:, None, :].float()) * -10000.0).softmax(-1) @ x

    (problem,) = errors(added_by_number, "B T 8", "B T:int64")
    assert problem.rule == "SF307" and at_the_marked_line(problem)
    assert errors(along_the_keys, "B T 8", "B T:int64") == []


def test_a_triangle_of_weights():
    def cut_after(x):
        weights = torch.softmax(x @ x.mT, -1)
        weights = torch.tril(weights)  # here
        return weights @ x

    def of_scores(x):
        return torch.tril(x @ x.mT) @ x

    (problem,) = errors(cut_after, "B T 8")
    assert problem.rule == "SF313" and at_the_marked_line(problem)
    assert errors(of_scores, "B T 8") == []
