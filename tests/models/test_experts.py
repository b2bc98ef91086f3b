"""The layer of experts: real routing gives what computing everything would, for less (notes, section 5)."""

import pytest
import torch
import torch.nn as nn
from jaxtyping import TypeCheckError
from torch.testing import assert_close

import shapeflow as sf
from models import experts, llama, mixtral
from models.experts import MixtureOfExperts, SwiGLUExperts, active_parameters, packed, recorded_routings
from models.gpt_oss import ClampedExperts
from models.routing import NO_EXPERT, Router, within_capacity
from models.swiglu import SwiGLU
from models.switch import ReLUExperts
from tests.models.checks import unnamed_axes

B, T, D_MODEL, D_EXPERT, N_EXPERTS, TOP_K = 2, 7, 11, 13, 5, 2


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def swiglu_experts(n_experts=N_EXPERTS):
    return SwiGLUExperts(n_experts=n_experts, d_model=D_MODEL, d_expert=D_EXPERT)


def layer(*, top_k=TOP_K, n_experts=N_EXPERTS, shared=None, capacity=None, **options):
    router = Router(d_model=D_MODEL, n_experts=n_experts, top_k=top_k, **options)
    return MixtureOfExperts(router, swiglu_experts(n_experts), shared=shared, capacity=capacity)


def tokens(b=B, t=T):
    return torch.randn(b, t, D_MODEL)


def dense(made, x):
    """The same sum the wasteful way: every expert computes every token, and a weight of 0 hides what was not chosen."""
    routing = made.router(x)
    chosen = routing.chosen
    if made.capacity is not None:
        chosen = within_capacity(chosen, n_experts=made.n_experts, capacity=made.capacity)
    total = 0
    for expert in range(made.n_experts):
        weight = (routing.weights * (chosen == expert)).sum(dim=-1, keepdim=True)
        total = total + weight * made.experts(x.flatten(0, 1), expert).view_as(x)
    return total


@pytest.mark.parametrize("top_k", [1, 2, 5])
@pytest.mark.parametrize("capacity", [None, 1, 3])
def test_routing_gives_what_computing_everything_would_in_output_and_gradient(top_k, capacity):
    made, x = layer(top_k=top_k, capacity=capacity), tokens()
    x.requires_grad_()
    results = []
    for forward in (made, lambda x: dense(made, x)):
        output = forward(x)
        gradients = torch.autograd.grad(output.square().sum(), (x, *made.parameters()))
        results.append((output, gradients))
    assert_close(*results)
    assert results[0][0].abs().max() > 0.01


def test_an_expert_computes_the_tokens_that_chose_it_and_no_others():
    made, x = layer(), tokens()
    batches = []
    made.experts.register_forward_pre_hook(lambda _, args: batches.append(args))
    made(x)
    chosen = made.router(x).chosen
    for rows, expert in batches:
        assert_close(rows, x[(chosen == expert).any(dim=-1)])
    assert [expert for _, expert in batches] == list(range(N_EXPERTS))
    assert sum(len(rows) for rows, _ in batches) == B * T * TOP_K


def test_experts_without_tokens_change_nothing_and_learn_nothing():
    made, x = layer(n_experts=31, top_k=1, bias=True), tokens()
    with torch.no_grad():
        made.router.scorer.bias[[4, 6]] += 10.0
    made(x).sum().backward()
    for parameter in made.experts.parameters():
        busy = parameter.grad.abs().amax(dim=(1, 2)) > 0
        assert busy.nonzero()[:, 0].tolist() == [4, 6]


def test_a_token_that_no_expert_takes_is_zero_and_the_shared_network_still_sees_it():
    made, x = layer(top_k=1, capacity=1), tokens()
    taken = within_capacity(made.router(x).chosen, n_experts=N_EXPERTS, capacity=1)
    dropped = (taken == NO_EXPERT).all(dim=-1)
    assert 0 < dropped.sum() < B * T
    assert not made(x)[dropped].any()
    assert made(x)[~dropped].abs().amax(dim=-1).min() > 0
    made.shared = SwiGLU(D_MODEL, D_EXPERT)
    assert_close(made(x)[dropped], made.shared(x)[dropped])


def test_shared_experts_are_added_with_weight_one():
    made, x = layer(), tokens()
    before = made(x)
    made.shared = SwiGLU(D_MODEL, 3 * D_EXPERT)
    assert_close(made(x), before + made.shared(x))


def test_an_expert_is_a_swiglu_network():
    all_of_them, one = swiglu_experts(), SwiGLU(D_MODEL, D_EXPERT)
    for name in ("gate", "up", "down"):
        one.get_submodule(name).weight = nn.Parameter(getattr(all_of_them, name)[3].T)
    x = torch.randn(T, D_MODEL)
    assert_close(all_of_them(x, 3), one(x))


def test_equal_experts_are_one_network_whatever_the_router_says():
    made, x = layer(), tokens()
    with torch.no_grad():
        for parameter in made.experts.parameters():
            parameter.copy_(parameter[:1].expand_as(parameter))
    assert_close(made(x), made.experts(x.flatten(0, 1), 0).view_as(x))


def test_the_numbers_of_the_experts_mean_nothing():
    made, x = layer(), tokens()
    before, order = made(x), torch.tensor([3, 0, 4, 1, 2])
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(parameter[order])
    assert_close(made(x), before)


def test_packed_matrices_start_as_those_of_linear_layers():
    matrices = packed(N_EXPERTS, 100, 50)
    linear = nn.Linear(100, 50).weight
    assert matrices.shape == (N_EXPERTS, 100, 50)
    assert_close(matrices.std(), linear.std(), rtol=0.05, atol=0)
    assert matrices.abs().max() <= 0.1


def test_without_capacity_no_token_sees_another_and_with_one_no_sequence_does():
    free, full = layer(), layer(capacity=1)
    x = tokens()
    changed = x.clone()
    changed[0, 0] = -x[0, 0]
    assert_close(free(changed)[:, 1:], free(x)[:, 1:])
    assert_close(full(changed)[1], full(x)[1])
    assert not torch.allclose(full(changed)[0, 1:], full(x)[0, 1:])  # other tokens get, or lose, the place of the first
    later = x.clone()
    later[0, 4] = -x[0, 4]
    assert_close(full(later)[:, :4], full(x)[:, :4])


def test_the_dtype_is_that_of_the_input_and_the_choice_that_of_float32():
    made, x = layer(shared=SwiGLU(D_MODEL, 17)).bfloat16(), tokens().bfloat16()
    half = made(x)
    assert half.dtype is torch.bfloat16
    assert_close(half.float(), made.float()(x.float()), atol=0.05 * half.abs().max().item(), rtol=0)
    assert layer().double()(tokens().double()).dtype is torch.float64


class TwoLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = layer(), layer(n_experts=3)

    def forward(self, x):
        return self.second(self.first(x))


def test_the_routings_of_a_forward_pass_are_recorded_in_its_order():
    model, x = TwoLayers(), tokens()
    with recorded_routings(model) as routings:
        model(x)
    assert [routing.scores.shape[-1] for routing in routings] == [N_EXPERTS, 3]
    assert torch.equal(routings[0].chosen, model.first.router(x).chosen)
    assert len(routings) == 2
    with pytest.raises(TypeCheckError), recorded_routings(model):
        model(x[0])
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("top_k", [1, 2, 5])
def test_the_active_parameters_are_those_of_the_chosen_the_router_and_the_shared(top_k):
    made = layer(top_k=top_k, shared=SwiGLU(D_MODEL, 17))
    shared, router, expert = 3 * D_MODEL * 17, N_EXPERTS * D_MODEL, 3 * D_MODEL * D_EXPERT
    assert active_parameters(made) == shared + router + top_k * expert
    assert sum(p.numel() for p in made.parameters()) == shared + router + N_EXPERTS * expert


def test_the_input_embedding_counts_or_not_but_always_where_it_is_the_head():
    for toy in (llama.toy, mixtral.toy):
        free, tied = toy(), toy(tied=True)
        assert active_parameters(free) - active_parameters(free, input_embedding=False) == 97 * 42
        assert active_parameters(tied) == active_parameters(tied, input_embedding=False)


@pytest.mark.parametrize(
    "kind",
    [
        swiglu_experts,
        lambda: ReLUExperts(n_experts=N_EXPERTS, d_model=D_MODEL, d_ff=D_EXPERT),
        lambda: ClampedExperts(n_experts=N_EXPERTS, d_model=D_MODEL, d_expert=D_EXPERT, sharpness=1.7, limit=0.5),
    ],
)
def test_each_expert_has_a_number_of_tokens_of_its_own_in_the_trace(kind):
    made = MixtureOfExperts(Router(d_model=D_MODEL, n_experts=N_EXPERTS, top_k=TOP_K, bias=True), kind())
    trace = sf.trace(made)
    assert unnamed_axes(trace) == []
    assert [str(edge.shape) for edge in trace.outputs] == ["B T d_model"]
    assert list(trace.fresh.values()) == ["nonzero"] * N_EXPERTS
    assert {f"{name} d_model" for name in trace.fresh} <= {str(edge.shape) for edge in trace.edges}
    for b, t in ((1, 1), (B, T), (3, 17)):
        x = tokens(b, t)
        assert_close(trace.graph_module(x), made(x))


def test_the_graph_replays_where_an_expert_gets_all_tokens_and_others_none():
    made = layer(bias=True, capacity=4)
    graph, x = sf.trace(made).graph_module, tokens()
    with torch.no_grad():
        made.router.scorer.bias[[1, 3]] += 20.0
    assert set(made.router(x).chosen.flatten().tolist()) == {1, 3}
    assert_close(graph(x), made(x))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: layer()(torch.ones(B, D_MODEL)), r"'x'[\s\S]*f32\[2,11\][\s\S]*'B T d_model'"),
        (lambda: layer()(torch.ones(B, T, D_MODEL, dtype=torch.int32)), r"'x'[\s\S]*i32\[2,7,11\]"),
        (lambda: layer().experts(tokens(), 0), r"'x'[\s\S]*'n_routed d_model'"),
        (lambda: layer().experts(torch.ones(3, D_MODEL), 0.0), r"'expert'[\s\S]*int"),
        (lambda: MixtureOfExperts(nn.Linear(3, 3), swiglu_experts()), r"'router'[\s\S]*Router"),
    ],
)
def test_wrong_shapes_and_dtypes_are_refused_by_name(call, message):
    with pytest.raises(TypeCheckError, match=message):
        call()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "return self.gate[expert],",
            "return self.gate[expert].T,",
            r"return value of \S*matrices[\s\S]*'d_model d_expert'[\s\S]*d_model=13",
        ),
        ("(x @ up)) @ down", "(x @ up)) @ down.T", None),
        ("return mixture if", "return mixture.mT if", r"return value of \S*forward[\s\S]*B T d_model[\s\S]*T=7"),
    ],
)
def test_a_transpose_too_many_is_caught(mutant, old, new, message):
    broken = mutant(experts, old, new)
    router = Router(d_model=D_MODEL, n_experts=N_EXPERTS, top_k=TOP_K)
    made = broken.MixtureOfExperts(
        router, broken.SwiGLUExperts(n_experts=N_EXPERTS, d_model=D_MODEL, d_expert=D_EXPERT)
    )
    if message is None:  # torch is there first
        with pytest.raises(RuntimeError, match=r"mat1 and mat2 shapes cannot be multiplied"):
            made(tokens())
        return
    with pytest.raises(TypeCheckError, match=message):
        made(tokens())
