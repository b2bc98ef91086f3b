"""Active parameters: routers of all kinds are found in the graph, and nothing else is taken for one."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import shapeflow as sf
from models import deepseek, gpt, gpt_oss, mixtral, qwen3_moe, switch
from models.experts import active_parameters
from shapeflow.cost import params
from shapeflow.cost.active import LARGE
from shapeflow.errors import InputError

D, E, K = 6, 5, 2
ONE = 2 * D * D  # parameters of one expert
ROUTER = D * E


class Experts(nn.Module):
    """Small networks in a list and in two parameters, a router, and a shared part; `forward` is each test's own."""

    def __init__(self, forward):
        super().__init__()
        self.router = nn.Linear(D, E, bias=False)
        self.body = forward

    def forward(self, x):
        return x + self.body(self, x)


class Listed(Experts):
    def __init__(self, forward):
        super().__init__(forward)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(D, D, bias=False), nn.ReLU(), nn.Linear(D, D, bias=False)) for _ in range(E)
        )


class Fused(Experts):
    def __init__(self, forward):
        super().__init__(forward)
        self.up = nn.Parameter(torch.zeros(E, D, D))
        self.down = nn.Parameter(torch.zeros(E, D, D))


def rows_of_each(self, x):
    """As Mixtral did: the rows that chose an expert are taken out, computed, and added back."""
    flat = x.reshape(-1, D)
    weights, chosen = self.router(flat).softmax(-1).topk(K, dim=-1)
    total = torch.zeros_like(flat)
    mask = F.one_hot(chosen, E).permute(2, 1, 0)
    for number, expert in enumerate(self.experts):
        place, row = torch.where(mask[number])
        total.index_add_(0, row, expert(flat[row]) * weights[row, place, None])
    return total.view_as(x)


def boolean_rows(self, x):
    """As tutorials do: a softmax over the chosen logits, and boolean masks."""
    logits = self.router(x)
    best, chosen = logits.topk(K, dim=-1)
    gates = F.softmax(torch.full_like(logits, -torch.inf).scatter(-1, chosen, best), dim=-1)
    flat, total = x.view(-1, D), torch.zeros_like(x).view(-1, D)
    for number, expert in enumerate(self.experts):
        mask = (chosen == number).any(dim=-1).view(-1)
        total[mask] += expert(flat[mask]) * gates.view(-1, E)[mask, number, None]
    return total.view_as(x)


def all_of_them_weighted(self, x):
    """Every expert computes every token, and the weights of those that were not chosen are zero."""
    scores = self.router(x).softmax(-1)
    best, chosen = scores.topk(K, dim=-1)
    gates = torch.zeros_like(scores).scatter(-1, chosen, best)
    return sum(gates[..., number : number + 1] * expert(x) for number, expert in enumerate(self.experts))


def all_of_them_stacked(self, x):
    outputs = torch.stack([expert(x) for expert in self.experts], dim=-2)
    weights, chosen = self.router(x).softmax(-1).topk(K, dim=-1)
    picked = outputs.gather(-2, chosen.unsqueeze(-1).expand(-1, -1, -1, D))
    return (picked * weights.unsqueeze(-1)).sum(-2)


def two_times_the_best(self, x):
    """GShard's top 2: the best, and the best of the rest."""
    scores = self.router(x).softmax(-1)
    first = F.one_hot(scores.argmax(-1), E)
    second = F.one_hot(scores.masked_fill(first.bool(), 0.0).argmax(-1), E)
    gates = (first + second) * scores
    return sum(gates[..., number, None] * expert(x) for number, expert in enumerate(self.experts))


def sorted_scores(self, x):
    order = self.router(x).argsort(dim=-1, descending=True)[..., :K]
    total = torch.zeros_like(x)
    for number, expert in enumerate(self.experts):
        total = torch.where((order == number).any(-1, keepdim=True), total + expert(x), total)
    return total


def matrices_by_index(self, x):
    weights, chosen = self.router(x).topk(K, dim=-1)
    hidden = torch.einsum("btd,btkdf->btkf", x, self.up[chosen]).relu()
    return (torch.einsum("btkf,btkfd->btkd", hidden, self.down[chosen]) * weights.unsqueeze(-1)).sum(-2)


def dense_einsum(self, x):
    scores = self.router(x).softmax(-1)
    best, chosen = scores.topk(K, dim=-1)
    gates = torch.zeros_like(scores).scatter(-1, chosen, best)
    hidden = torch.einsum("btd,edf->btef", x, self.up).relu()
    return torch.einsum("btef,efd,bte->btd", hidden, self.down, gates)


def dispatched(self, x):
    """Mesh-TensorFlow's way: masks carry tokens to experts and back as products."""
    flat = x.reshape(-1, D)
    scores = self.router(flat).softmax(-1)
    _, chosen = scores.topk(K, dim=-1)
    mask = F.one_hot(chosen, E).sum(1).to(x.dtype)
    inside = torch.einsum("ne,nd->end", mask, flat)
    hidden = torch.bmm(torch.bmm(inside, self.up).relu(), self.down)
    return torch.einsum("ne,end->nd", mask * scores, hidden).view_as(x)


def slices(self, x):
    _, chosen = self.router(x).topk(K, dim=-1)
    total = torch.zeros_like(x)
    for number in range(E):
        b, t, _ = torch.where(chosen == number)
        total = total.index_put((b, t), (x[b, t] @ self.up[number]).relu() @ self.down[number], accumulate=True)
    return total


def those_that_were_hit(self, x):
    flat = x.reshape(-1, D)
    _, chosen = self.router(flat).topk(K, dim=-1)
    mask = F.one_hot(chosen, E).permute(2, 1, 0)
    total = torch.zeros_like(flat)
    for hit in mask.sum((-1, -2)).gt(0).nonzero():
        _, row = torch.where(mask[hit[0]])
        total.index_add_(0, row, F.linear(F.linear(flat[row], self.up[hit[0]]).relu(), self.down[hit[0]]))
    return total.view_as(x)


WAYS = [
    (Listed, rows_of_each),
    (Listed, boolean_rows),
    (Listed, all_of_them_weighted),
    (Listed, all_of_them_stacked),
    (Listed, two_times_the_best),
    (Listed, sorted_scores),
    (Fused, matrices_by_index),
    (Fused, dense_einsum),
    (Fused, dispatched),
    (Fused, slices),
    (Fused, those_that_were_hit),
]


@pytest.mark.parametrize(("kind", "way"), WAYS, ids=[way.__name__ for _, way in WAYS])
def test_a_token_touches_k_of_n_experts_and_the_router(kind, way):
    report = params(kind(way), f"B T {D}")
    assert report.total == ROUTER + E * ONE
    assert report.active == ROUTER + K * ONE, report.activity
    assert set(report.activity.routed) == {each.path for each in report.parameters if "router" not in each.path}


def test_what_every_token_meets_is_counted_whole():
    class Shared(Listed):
        def __init__(self):
            super().__init__(rows_of_each)
            self.shared = nn.Linear(D, D)  # an expert for all
            self.project = nn.Linear(D, D, bias=False)  # one matrix in all experts
            for expert in self.experts:
                expert[2] = self.project

        def forward(self, x):
            return super().forward(x) + self.shared(x)

    report = params(Shared(), f"B T {D}")
    assert report.active == ROUTER + K * D * D + D * D + (D * D + D)


def test_experts_within_experts():
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.router = nn.Linear(D, 3, bias=False)
            self.leaves = nn.ModuleList(nn.Linear(D, D, bias=False) for _ in range(3))

        def forward(self, x):
            gates = F.one_hot(self.router(x).argmax(-1), 3).to(x.dtype)
            return sum(gates[..., number, None] * leaf(x) for number, leaf in enumerate(self.leaves))

    model = Listed(rows_of_each)
    model.experts = nn.ModuleList(Inner() for _ in range(E))
    assert params(model, f"B T {D}").active == ROUTER + K * (3 * D + D * D)


# What only looks like a router


class Nearest(nn.Module):
    """The best keys for each query are no experts, nor are the tokens that are kept."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.out = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, D)

    def forward(self, x):
        scores = self.q(x) @ self.k(x).transpose(1, 2)
        best, chosen = scores.topk(3, dim=-1)
        kept = torch.full_like(scores, -torch.inf).scatter(-1, chosen, best).softmax(-1) @ x
        return self.out(kept.gather(1, chosen[..., :1].expand(-1, -1, D)))


class Argmax(nn.Module):
    """The likeliest class is looked up in a table that a product reads too."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(E, D)

    def forward(self, x):
        return self.table((x @ self.table.weight.T).argmax(-1)) + x


@pytest.mark.parametrize("kind", [Nearest, Argmax])
def test_a_choice_that_is_none_of_experts_leaves_all_active(kind):
    report = params(kind(), f"B 7 {D}")
    assert report.active == report.active_no_input_embedding == report.total
    assert report.activity.routed == {}


@pytest.mark.parametrize("model", [nn.Linear(3, 4), nn.LSTM(3, 2), gpt.toy(), nn.Conv2d(3, 4, 3)])
def test_without_a_router_everything_is_active_and_no_inputs_are_needed(model):
    assert params(model).active == params(model).total


def test_a_model_that_does_not_say_what_it_takes_needs_inputs():
    with pytest.raises(InputError, match="active parameters are read off the graph, and Listed needs inputs for that"):
        _ = params(Listed(rows_of_each)).active


def test_formulas_have_no_active_parameters():
    with pytest.raises(InputError, match="active parameters are counted for a model or a trace, not for formulas"):
        _ = params(nn.Linear, symbolic=["in_features", "out_features"]).active


# The input embedding


def test_the_table_that_token_ids_look_rows_up_in_is_the_input_embedding():
    class Language(nn.Module):
        def __init__(self, tied):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(11, D), nn.Embedding(7, D)
            self.mix = Listed(rows_of_each)
            self.head = nn.Linear(D, 11, bias=False)
            if tied:
                self.head.weight = self.tokens.weight

        def forward(self, ids):
            x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
            return self.head(self.mix(x))

    free, tied = params(Language(False), "B T:int64"), params(Language(True), "B T:int64")
    assert free.active - free.active_no_input_embedding == 11 * D
    assert tied.active == tied.active_no_input_embedding
    assert free.activity.embeddings == ("tokens.weight",)
    assert "active parameters, those that one token can touch (2 of 5 experts)" in str(free)


# The models of the notes and of transformers


@pytest.mark.parametrize("module", [mixtral, qwen3_moe, deepseek, gpt_oss, switch], ids=lambda each: each.__name__)
def test_the_models_of_the_notes(module):
    model = module.toy()
    report = params(model)
    assert report.active == active_parameters(model)
    assert report.active_no_input_embedding == active_parameters(model, input_embedding=False)


def test_equal_layers_are_traced_once_and_the_count_is_the_same():
    model = mixtral.toy(n_layers=30)
    assert sum(1 for _ in model.modules()) > LARGE
    before = [*model.named_parameters()]
    report = params(model)
    assert report.active == active_parameters(model)
    assert [path for path, _ in model.named_parameters()] == [path for path, _ in before]


SMALL = {
    "vocab_size": 11,
    "hidden_size": 16,
    "intermediate_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
FAMILIES = {  # configuration, its own sizes, parameters of one expert
    "Mixtral": ({"num_local_experts": 5}, 3 * 16 * 12),
    "Qwen3Moe": ({"num_experts": 5, "moe_intermediate_size": 7, "head_dim": 4}, 3 * 16 * 7),
    "GptOss": ({"num_local_experts": 5, "head_dim": 4}, 3 * 16 * 12 + 2 * 12 + 16),
}


@pytest.mark.parametrize("how", ["grouped_mm", "batched_mm", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_transformers_models_however_they_compute_their_experts(family, how):
    transformers = pytest.importorskip("transformers")
    own, expert = FAMILIES[family]
    config = getattr(transformers, f"{family}Config")(**SMALL, **own, num_experts_per_tok=2)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, experts_implementation=how)
    report = params(model.eval())
    assert report.active == report.total - 2 * 3 * expert
    assert report.active - report.active_no_input_embedding == (0 if config.tie_word_embeddings else 11 * 16)


def test_a_trace_tells_it_too():
    trace = sf.trace(Fused(slices), f"B T {D}")
    assert params(trace).active == ROUTER + K * ONE
