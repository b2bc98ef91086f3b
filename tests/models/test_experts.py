"""The layer of experts: the same sum as if every expert computed every token, from real routing."""

import doctest

import pytest
import torch
import torch.nn as nn
from jaxtyping import TypeCheckError
from torch.testing import assert_close

from models import experts, llama, mixtral
from models.experts import MixtureOfExperts, SwiGLUExperts, active_parameters, recorded_routings
from models.routing import NO_EXPERT, Router, within_capacity
from models.swiglu import SwiGLU

B, T, D_MODEL, D_EXPERT, N_EXPERTS = 3, 7, 11, 13, 5


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def layer(*, top_k=2, n_experts=N_EXPERTS, shared=None, capacity=None, **options):
    made = MixtureOfExperts(
        Router(d_model=D_MODEL, n_experts=n_experts, top_k=top_k, **options),
        SwiGLUExperts(n_experts=n_experts, d_model=D_MODEL, d_expert=D_EXPERT),
        shared=shared,
        capacity=capacity,
    )
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.5)
    return made


def tokens(b=B, t=T):
    return torch.randn(b, t, D_MODEL)


def dense(made, x):
    """Every expert computes every token, and all but the chosen ones' outputs are multiplied by 0."""
    routing = made.router(x)
    weights = torch.zeros_like(routing.scores).scatter(-1, routing.chosen, routing.weights)
    outputs = [made.experts(x.flatten(0, 1), expert).view_as(x) for expert in range(made.n_experts)]
    return sum(weights[..., [expert]] * output for expert, output in enumerate(outputs))


def computed(made):
    """The numbers of tokens that the experts compute from now on, call by call."""
    counts = []
    made.experts.register_forward_hook(lambda _, args, __: counts.append(args[0].shape[0]))
    return counts


def test_the_examples_in_the_docstrings_are_true():
    result = doctest.testmod(experts)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("top_k", [1, 2, 5])
@pytest.mark.parametrize("shape", [(3, 7), (1, 1)])
def test_routing_saves_work_and_changes_neither_output_nor_gradient(top_k, shape):
    made, x = layer(top_k=top_k), tokens(*shape).requires_grad_()
    found, expected = made(x), dense(made, x)
    assert_close(found, expected)
    direction = torch.randn_like(x)
    inputs = (x, *made.parameters())
    assert_close(torch.autograd.grad(found, inputs, direction), torch.autograd.grad(expected, inputs, direction))


@pytest.mark.parametrize("top_k", [1, 2, 5])
def test_an_expert_computes_the_tokens_that_chose_it_and_no_others(top_k):
    made, x = layer(top_k=top_k), tokens()
    counts = computed(made)
    made(x)
    chosen = made.router(x).chosen
    assert counts == [(chosen == expert).sum().item() for expert in range(N_EXPERTS)]
    assert sum(counts) == B * T * top_k  # the work does not know how many experts there are


def test_an_expert_that_nobody_chose_learns_nothing_and_harms_nobody():
    made, x = layer(bias=True), tokens()
    with torch.no_grad():
        made.router.scorer.bias[3] = -100.0
    counts = computed(made)
    output = made(x)
    assert counts[3] == 0
    assert_close(output, dense(made, x))
    output.square().sum().backward()
    learns = [bool(made.experts.gate.grad[expert].abs().max() > 0) for expert in range(N_EXPERTS)]
    assert learns == [True, True, True, False, True]


def test_a_single_expert_is_the_network_without_a_router():
    made, network, x = layer(n_experts=1, top_k=1), SwiGLU(D_MODEL, D_EXPERT), tokens()
    with torch.no_grad():
        for name in ("gate", "up", "down"):
            getattr(network, name).weight.copy_(getattr(made.experts, name)[0].T)
    assert_close(made(x), network(x))


def test_shared_experts_compute_every_token():
    shared = SwiGLU(D_MODEL, 17)
    made, x = layer(shared=shared), tokens()
    assert_close(made(x), dense(made, x) + shared(x))


def test_the_output_of_a_token_depends_on_that_token_alone():
    made, x = layer(), tokens()
    order = torch.randperm(B * T)
    shuffled = x.flatten(0, 1)[order].view_as(x)
    assert_close(made(shuffled), made(x).flatten(0, 1)[order].view_as(x))


def test_what_is_over_the_capacity_is_dropped():
    made, x = layer(top_k=1, capacity=2), tokens()
    counts = computed(made)
    kept = within_capacity(made.router(x).chosen, n_experts=N_EXPERTS, capacity=2)[..., 0] != NO_EXPERT
    output = made(x)
    assert 0 < kept.sum() < B * T
    assert max(counts) <= 2 * B
    assert_close(output[kept], dense(made, x)[kept])
    assert (output[~kept] == 0).all()
    made.shared = SwiGLU(D_MODEL, 17)
    assert_close(made(x)[~kept], made.shared(x)[~kept])


def test_with_a_capacity_tokens_interact_with_those_before_them_in_their_sequence():
    made, x = layer(top_k=1, capacity=2), tokens(1, 12)
    whole = made(x)
    assert_close(made(x[:, :5]), whole[:, :5])
    assert not torch.allclose(made(x[:, 5:]), whole[:, 5:])
    assert_close(made(torch.cat([x, tokens(1, 12)])[:1]), whole)


def test_half_precision_stays_half_and_chooses_as_float32_does():
    made, x = layer(shared=SwiGLU(D_MODEL, 17)).to(torch.bfloat16), tokens().to(torch.bfloat16)
    output = made(x)
    assert output.dtype == torch.bfloat16
    assert_close(output.float(), made.float()(x.float()), atol=0.05 * output.abs().max().item(), rtol=0.0)


def test_a_routing_is_recorded_for_each_layer_and_only_within():
    made = nn.Sequential(layer(), layer(top_k=3))
    with recorded_routings(made) as routings:
        made(tokens())
        made(tokens())
    made(tokens())
    assert [routing.chosen.shape[-1] for routing in routings] == [2, 3, 2, 3]


def test_total_parameters_grow_with_the_experts_and_active_ones_with_the_choice():
    expert, router = 3 * D_MODEL * D_EXPERT, D_MODEL
    for n_experts, top_k in [(5, 2), (9, 2), (9, 4)]:
        made = layer(n_experts=n_experts, top_k=top_k)
        assert sum(p.numel() for p in made.parameters()) == n_experts * (expert + router)
        assert active_parameters(made) == top_k * expert + n_experts * router
    assert active_parameters(layer(shared=SwiGLU(D_MODEL, 17))) == 2 * expert + 5 * router + 3 * D_MODEL * 17


def test_the_input_embedding_counts_or_not_but_always_where_it_is_the_head():
    table = 97 * 42
    for toy in (llama.toy, mixtral.toy):
        free, tied = toy(), toy(tied=True)
        assert active_parameters(free) - active_parameters(free, input_embedding=False) == table
        assert active_parameters(tied) == active_parameters(tied, input_embedding=False)
    assert active_parameters(llama.toy()) == sum(p.numel() for p in llama.toy().parameters())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda made: made(torch.randn(T, D_MODEL)), r"'x'[\s\S]*f32\[7,11\][\s\S]*B T d_model"),
        (lambda made: made(torch.ones(B, T, D_MODEL) > 0), r"'x'[\s\S]*bool\[3,7,11\]"),
        (lambda made: made.experts(tokens(), 0), r"'x'[\s\S]*f32\[3,7,11\][\s\S]*n_routed d_model"),
        (lambda made: made.experts(torch.randn(T, D_MODEL), 1.0), r"'expert'"),
    ],
)
def test_wrong_shapes_and_dtypes_are_refused_by_name(call, message):
    with pytest.raises(TypeCheckError, match=message):
        call(layer())


def test_an_expert_that_is_transposed_is_refused_by_name(mutant):
    broken = mutant(experts, "self.up[expert], self.down", "self.up[expert].T, self.down")
    made = broken.SwiGLUExperts(n_experts=2, d_model=D_MODEL, d_expert=D_EXPERT)
    with pytest.raises(TypeCheckError, match=r"return value of[\s\S]*matrices[\s\S]*d_model d_expert[\s\S]*d_model=11"):
        made(torch.randn(T, D_MODEL), 0)
