"""Routing: which experts are chosen and with what weight, capacity, and what keeps the balance (notes, section 5.1)."""

import pytest
import torch
import torch.nn as nn
from jaxtyping import TypeCheckError
from torch.testing import assert_close

from models import routing
from models.routing import (
    NO_EXPERT,
    Groups,
    Router,
    Routing,
    balancing_loss,
    expert_capacity,
    loads,
    within_capacity,
)

B, T, D_MODEL, N_EXPERTS, TOP_K = 2, 7, 11, 5, 3


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def router(**options):
    return Router(**({"d_model": D_MODEL, "n_experts": N_EXPERTS, "top_k": TOP_K} | options))


def tokens(b=B, t=T):
    return torch.randn(b, t, D_MODEL)


def with_scores(made, scores):
    """The choice that a router makes of given scores, written as a list per token."""
    return made.choice(torch.tensor(scores)[None]).sort(dim=-1).values[0].tolist()


def routed(chosen, n_experts, scores=None):
    """A routing with these choices, and even scores unless some are given."""
    chosen = torch.tensor(chosen)
    even = torch.full((*chosen.shape[:2], n_experts), 1 / n_experts)
    return Routing(even if scores is None else scores, chosen, torch.ones_like(chosen, dtype=torch.float32))


def test_a_softmax_of_all_that_is_renormalised_is_the_softmax_of_the_chosen():
    made, x = router(bias=True), tokens()
    nn.init.normal_(made.scorer.bias)
    logits, chosen = made.scorer(x).topk(TOP_K, dim=-1)
    found = made(x)
    assert torch.equal(found.chosen, chosen)
    assert_close(found.weights, logits.softmax(dim=-1))
    assert_close(found.scores, made.scorer(x).softmax(dim=-1))


def test_weights_that_are_not_renormalised_are_probabilities_among_all_experts():
    found = router(renormalised=False)(tokens())
    assert_close(found.weights, found.scores.topk(TOP_K, dim=-1).values)
    assert (found.weights.sum(dim=-1) < 1).all()
    every = router(renormalised=False, top_k=N_EXPERTS)(tokens())
    assert_close(every.weights.sum(dim=-1), torch.ones(B, T))


@pytest.mark.parametrize("scoring", ["softmax", "sigmoid"])
def test_the_scale_multiplies_weights_that_sum_to_one(scoring):
    found = router(scoring=scoring, scale=2.5)(tokens())
    assert_close(found.weights.sum(dim=-1), torch.full((B, T), 2.5))


def test_sigmoid_scores_do_not_compete():
    made, x = router(scoring="sigmoid", renormalised=False), tokens()
    before = made(x).scores
    with torch.no_grad():
        made.scorer.weight[0] += 1.0
    after = made(x).scores
    assert_close(after[..., 1:], before[..., 1:])
    assert (after[..., 0] - before[..., 0]).abs().max() > 1e-2
    assert_close(after, made.scorer(x).sigmoid())


def test_one_weight_per_token_still_teaches_the_router():
    """Top-1 without renormalising (Switch); with it the weight would always be 1, and its gradient 0."""
    for renormalised in (False, True):
        made = router(top_k=1, renormalised=renormalised)
        (made(tokens()).weights * torch.randn(B, T, 1)).sum().backward()
        assert (made.scorer.weight.grad.abs().max() > 1e-3) is not renormalised


def test_scores_of_half_precision_are_float32():
    found = router().bfloat16()(tokens().bfloat16())
    assert found.scores.dtype is found.weights.dtype is torch.float32
    assert router().double()(tokens().double()).scores.dtype is torch.float64


def test_a_bias_changes_the_choice_and_not_the_weights():
    made, x = router(scoring="sigmoid", balanced=True, renormalised=False), tokens()
    free = made(x)
    made.choice_bias[2] = 10.0
    biased = made(x)
    assert (biased.chosen == 2).any(dim=-1).all()
    assert not (free.chosen == 2).any(dim=-1).all()
    assert_close(biased.scores, free.scores)
    assert_close(biased.weights, free.scores.gather(-1, biased.chosen))
    assert (biased.weights < 1).all()


def test_the_bias_is_no_parameter_and_has_no_gradient():
    made = router(balanced=True)
    assert [name for name, _ in made.named_parameters()] == ["scorer.weight"]
    assert "choice_bias" in made.state_dict()
    assert "choice_bias" not in router().state_dict()


def test_the_bias_rises_where_tokens_are_few_and_falls_where_they_are_many():
    made = router(balanced=True, n_experts=4, top_k=2)
    made.rebalance(torch.tensor([[[0, 1], [0, 2], [0, 3], [0, 1]]]), rate=0.25)
    assert made.choice_bias.tolist() == [-0.25, 0.0, 0.25, 0.25]  # 4, 2, 1 and 1 tokens, 2 on average


def test_with_the_bias_a_lopsided_router_becomes_even():
    made, x = router(scoring="sigmoid", balanced=True, n_experts=8, top_k=2, bias=True), tokens(8, 64)
    with torch.no_grad():
        made.scorer.bias.copy_(torch.linspace(-1, 1, 8))
    fullest = []
    for _ in range(200):
        chosen = made(x).chosen
        load = loads(chosen, 8)
        fullest.append(load.max() / load.mean())
        made.rebalance(chosen, rate=0.005)
    assert fullest[0] > 2
    assert fullest[-1] < 1.15


def test_groups_limit_a_token_to_few_of_them():
    made = router(n_experts=12, top_k=4, groups=Groups(n_groups=4, top_groups=2, n_best=1))
    chosen = made(tokens(5, 50)).chosen
    assert max(len(set(row)) for row in (chosen // 3).flatten(0, 1).tolist()) == 2
    free = router(n_experts=12, top_k=4)(tokens(5, 50)).chosen
    assert max(len(set(row)) for row in (free // 3).flatten(0, 1).tolist()) > 2


# Two groups of three: the first has the best expert, the second the best two.
SCORES = [[0.9, 0.1, 0.2, 0.6, 0.0, 0.7]]


@pytest.mark.parametrize(
    ("groups", "chosen"),
    [
        (None, [0, 5]),
        (Groups(n_groups=2, top_groups=1, n_best=1), [0, 2]),
        (Groups(n_groups=2, top_groups=1, n_best=2), [3, 5]),
        (Groups(n_groups=2, top_groups=2, n_best=2), [0, 5]),
        (Groups(n_groups=3, top_groups=2, n_best=1), [0, 5]),
    ],
)
def test_a_group_counts_by_its_best_expert_or_by_its_best_two(groups, chosen):
    assert with_scores(router(n_experts=6, top_k=2, groups=groups), SCORES) == [chosen]


def test_the_bias_also_decides_on_groups():
    made = router(n_experts=6, top_k=2, balanced=True, groups=Groups(n_groups=2, top_groups=1, n_best=1))
    made.choice_bias[4] = 1.0
    assert with_scores(made, SCORES) == [[4, 5]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_k": 0}, r"at least one expert and at most all 5, got top_k = 0"),
        ({"top_k": 6}, r"at most all 5, got top_k = 6"),
        ({"groups": Groups(2, 1, 1)}, r"n_experts must be divisible by n_groups, got 5 and 2"),
        ({"n_experts": 6, "groups": Groups(3, 1, 1)}, r"1 of 3 groups of 2 do not hold top_k = 3"),
        ({"n_experts": 6, "groups": Groups(3, 4, 1)}, r"4 of 3 groups"),
        ({"n_experts": 6, "groups": Groups(3, 2, 3)}, r"a group of 2 experts has no 3 best ones"),
    ],
)
def test_a_choice_that_cannot_be_made_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        router(**options)


def test_the_loss_is_one_when_all_experts_get_the_same():
    assert_close(balancing_loss(routed([[[0], [1], [2], [3]]], 4)), torch.tensor(1.0))
    assert_close(balancing_loss(routed([[[0, 1], [2, 3]]], 4)), torch.tensor(1.0))


@pytest.mark.parametrize("n_experts", [2, 5, 64])
def test_the_loss_is_the_number_of_experts_when_one_gets_everything(n_experts):
    scores = torch.zeros(1, 3, n_experts)
    scores[..., 1] = 1.0
    assert_close(balancing_loss(routed([[[1], [1], [1]]], n_experts, scores)), torch.tensor(float(n_experts)))


def test_the_loss_worked_by_hand():
    """Three of four tokens go to expert 0, which has a mean probability of 0.7: 2 * (0.75 * 0.7 + 0.25 * 0.3)."""
    first = torch.tensor([0.9, 0.8, 0.7, 0.4])
    scores = torch.stack([first, 1 - first], dim=-1)[None]
    loss = balancing_loss(routed([[[0], [0], [0], [1]]], 2, scores))
    assert_close(loss, torch.tensor(2 * (0.75 * 0.7 + 0.25 * 0.3)))


def test_sigmoid_scores_count_as_parts_of_their_sum():
    chosen, scores = [[[0], [0], [1]]], torch.rand(1, 3, 4)
    parts = scores / scores.sum(dim=-1, keepdim=True)
    assert_close(balancing_loss(routed(chosen, 4, scores)), balancing_loss(routed(chosen, 4, parts)))


def test_padding_is_left_out_of_the_loss():
    found = router()(tokens())
    valid = torch.arange(T).expand(B, -1) >= torch.tensor([[2], [2]])
    short = Routing(found.scores[:, 2:], found.chosen[:, 2:], found.weights[:, 2:])
    assert_close(balancing_loss(found, valid), balancing_loss(short))
    assert (balancing_loss(found, valid) - balancing_loss(found)).abs() > 1e-3


def test_the_loss_lowers_the_score_of_the_expert_with_most_tokens():
    logits = torch.zeros(1, 4, 3, requires_grad=True)
    balancing_loss(routed([[[1], [1], [1], [2]]], 3, logits.softmax(dim=-1))).backward()
    step = -logits.grad.sum(dim=(0, 1))
    assert step[1] < 0 < step[0]
    assert step[0] > step[2]


def test_the_loss_undoes_a_collapse():
    made, x = router(n_experts=8, top_k=1, bias=True), tokens(8, 32)
    with torch.no_grad():
        made.scorer.bias[3] = 4.0
    optimizer = torch.optim.Adam(made.parameters(), lr=0.05)
    losses = []
    for _ in range(200):
        losses.append(balancing_loss(made(x)))
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    assert losses[0] > 5
    assert losses[-1] < 1.15
    assert loads(made(x).chosen, 8).min() > 0


@pytest.mark.parametrize(
    ("n_tokens", "n_experts", "factor", "capacity"),
    [(6, 3, 1.0, 2), (6, 3, 1.5, 3), (512, 8, 1.25, 80), (7, 3, 1.0, 3), (8192, 64, 1.0, 128)],
)
def test_the_capacity_is_an_even_share_times_a_factor(n_tokens, n_experts, factor, capacity):
    assert expert_capacity(n_tokens, n_experts, factor=factor) == capacity


def test_the_first_tokens_of_a_sequence_are_served_and_sequences_do_not_compete():
    chosen = torch.tensor([[0, 1, 0, 0, 1], [0, 0, 0, 1, 1]])[..., None]
    kept = within_capacity(chosen, n_experts=2, capacity=2)
    assert kept[..., 0].tolist() == [[0, 1, 0, NO_EXPERT, 1], [0, 0, NO_EXPERT, 1, 1]]


def test_each_of_a_tokens_choices_takes_a_place():
    chosen = torch.tensor([[[0, 1], [0, 2], [2, 0], [1, 2]]])
    kept = within_capacity(chosen, n_experts=3, capacity=2)
    assert kept.tolist() == [[[0, 1], [0, 2], [2, NO_EXPERT], [1, NO_EXPERT]]]


@pytest.mark.parametrize("capacity", [1, 2, 3, 100])
def test_no_expert_takes_more_and_none_refuses_while_it_has_places(capacity):
    chosen = router(top_k=2)(tokens(1, 40)).chosen
    wanted, taken = (loads(c, N_EXPERTS) for c in (chosen, within_capacity(chosen, n_experts=5, capacity=capacity)))
    assert_close(taken, wanted.clamp(max=capacity))
    assert wanted.max() > 3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: router()(torch.ones(B, D_MODEL)), r"'x'[\s\S]*f32\[2,11\][\s\S]*'B T d_model'"),
        (lambda: router()(torch.ones(B, T, D_MODEL, dtype=torch.int64)), r"'x'[\s\S]*Float\[Tensor"),
        (lambda: router(scoring="relu"), r"'scoring'[\s\S]*'relu'"),
        (lambda: router().choice(torch.ones(B, N_EXPERTS)), r"'scores'[\s\S]*'B T n_experts'"),
        (lambda: loads(torch.ones(B, T, 2), 5), r"'chosen'[\s\S]*Int\[Tensor, 'B T top_k'\]"),
        (lambda: balancing_loss(routed([[[0], [1]]], 2), torch.ones(1, 2)), r"'valid'[\s\S]*Bool"),
        (lambda: Routing(torch.ones(1, 2, 3), torch.ones(1, 1, 1).long(), torch.ones(1, 2, 1)), r"'chosen'[\s\S]*T=2"),
    ],
)
def test_wrong_shapes_and_dtypes_are_refused_by_name(call, message):
    with pytest.raises(TypeCheckError, match=message):
        call()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("topk(self.top_k, dim=-1)", "topk(self.top_k, dim=1)", r"return value of \S*choice[\s\S]*T=7"),
        ("places(chosen, n_experts)", "places(chosen.transpose(1, 2), n_experts)", None),
        ("return logits if", "return logits.mT if", r"return value of \S*logits[\s\S]*B T n_experts[\s\S]*T=7"),
    ],
)
def test_an_axis_in_the_wrong_place_is_caught(mutant, old, new, message):
    broken = mutant(routing, old, new)
    if message is None:  # two axes that are both flattened: no shape tells, the number of tokens served does
        chosen = torch.tensor([[[0, 1], [0, 2], [2, 0], [1, 2]]])
        taken = [module.within_capacity(chosen, n_experts=3, capacity=2) for module in (routing, broken)]
        assert not torch.equal(*taken)
        return
    with pytest.raises(TypeCheckError, match=message):
        broken.Router(d_model=D_MODEL, n_experts=N_EXPERTS, top_k=TOP_K)(tokens())


def test_infinite_scores_of_closed_groups_leave_no_trace_in_the_weights():
    found = router(n_experts=12, top_k=3, groups=Groups(4, 1, 1))(tokens())
    assert found.weights.isfinite().all()
    assert found.scores.isfinite().all()
