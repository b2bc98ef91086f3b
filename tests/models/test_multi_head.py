"""Multi-head attention: torch's own with the same weights, its count, the cache, and what breaks it."""

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from jaxtyping import TypeCheckError
from torch.testing import assert_close

import shapeflow as sf
from models import multi_head
from models.cache import LayerCache
from models.masks import blocked, causal_allowed, cross_allowed
from models.multi_head import MultiHeadAttention

B, T, S, D_MODEL, N_HEADS = 2, 5, 7, 33, 3


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def torch_names(ours):
    """The weights of `ours` under the names of `nn.MultiheadAttention`, biases drawn anew so that they count."""
    for name, parameter in ours.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    state = ours.state_dict()
    names = {"out_proj.weight": state["out.weight"], "in_proj_weight": torch.cat([ours.q.weight, ours.kv.weight])}
    if ours.out.bias is not None:
        names |= {"out_proj.bias": state["out.bias"], "in_proj_bias": torch.cat([ours.q.bias, ours.kv.bias])}
    return names


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", ["self", "causal", "cross"])
def test_outputs_and_gradients_equal_those_of_torch_with_the_same_weights(kind, bias):
    ours = MultiHeadAttention(D_MODEL, N_HEADS, bias=bias).double()
    theirs = nn.MultiheadAttention(D_MODEL, N_HEADS, bias=bias, batch_first=True).double()
    theirs.load_state_dict(torch_names(ours))
    x = torch.randn(B, T, D_MODEL, dtype=torch.float64, requires_grad=True)
    memory = torch.randn(B, S, D_MODEL, dtype=torch.float64, requires_grad=True) if kind == "cross" else None
    allowed = causal_allowed(T, T) if kind == "causal" else None

    source = x if memory is None else memory
    mask = None if allowed is None else blocked(allowed)
    outputs = ours(x, memory, allowed=allowed), theirs(x, source, source, attn_mask=mask)[0]
    assert_close(*outputs)

    inputs = [tensor for tensor in (x, memory) if tensor is not None]
    weights = [ours.q.weight, ours.kv.weight, ours.out.weight], [theirs.in_proj_weight, theirs.out_proj.weight]
    direction = torch.randn_like(x)
    *our_inputs, q, kv, out = torch.autograd.grad(outputs[0], [*inputs, *weights[0]], direction)
    assert_close(
        (*our_inputs, torch.cat([q, kv]), out), torch.autograd.grad(outputs[1], [*inputs, *weights[1]], direction)
    )


def test_the_number_of_weights_is_that_of_section_6_2_whatever_the_number_of_heads():
    for n_heads in (1, 8, 16):
        attention = MultiHeadAttention(512, n_heads, bias=False)
        assert sum(p.numel() for p in attention.parameters()) == 4 * 512**2 == 1_048_576


def test_the_output_is_the_concatenated_heads_times_w_o():
    attention = MultiHeadAttention(D_MODEL, N_HEADS, bias=False)
    x = torch.randn(B, T, D_MODEL)
    w_q, w_k, w_v = torch.cat([attention.q.weight, attention.kv.weight]).T.chunk(3, dim=1)
    width = D_MODEL // N_HEADS
    heads = []
    for i in range(N_HEADS):
        part = slice(i * width, (i + 1) * width)
        heads.append(F.scaled_dot_product_attention(x @ w_q[:, part], x @ w_k[:, part], x @ w_v[:, part]))
    assert_close(attention(x), torch.cat(heads, dim=-1) @ attention.out.weight.T)


def test_every_head_reads_all_input_features():
    attention = MultiHeadAttention(D_MODEL, N_HEADS)
    x = torch.randn(B, T, D_MODEL, requires_grad=True)
    heads = attention.split_heads(attention.queries(x))
    for i in range(N_HEADS):
        (gradient,) = torch.autograd.grad(heads[:, i].sum(), x, retain_graph=True)
        assert (gradient != 0).all()


def test_a_query_reads_no_padding_of_the_memory():
    attention = MultiHeadAttention(D_MODEL, N_HEADS)
    x, memory = torch.randn(B, T, D_MODEL), torch.randn(B, S, D_MODEL)
    valid = torch.arange(S) < torch.tensor([[4], [S]])
    changed = memory.clone()
    changed[0, 4:] += 1.0
    output = attention(x, memory, allowed=cross_allowed(valid, T))
    assert_close(attention(x, changed, allowed=cross_allowed(valid, T)), output)
    assert not torch.allclose(attention(x, changed), attention(x, memory), atol=1e-3)


def test_with_a_cache_the_new_positions_read_the_old_ones():
    attention = MultiHeadAttention(D_MODEL, N_HEADS)
    x = torch.randn(B, T, D_MODEL)
    cache, parts = LayerCache(), []
    for first, last in [(0, 3), (3, 4), (4, 5)]:
        allowed = causal_allowed(last - first, last, query_offset=first)
        parts.append(attention(x[:, first:last], allowed=allowed, cache=cache))
    assert_close(torch.cat(parts, dim=1), attention(x, allowed=causal_allowed(T, T)))


def test_with_query_offset_0_the_new_position_would_read_the_first_key_alone():
    attention = MultiHeadAttention(D_MODEL, N_HEADS)
    x = torch.randn(B, T, D_MODEL)
    cache = LayerCache()
    attention(x[:, :-1], allowed=causal_allowed(T - 1, T - 1), cache=cache)
    wrong = attention(x[:, -1:], allowed=causal_allowed(1, T), cache=cache)
    assert_close(wrong, attention.out(attention.merge_heads(attention.keys_and_values(x)[1][:, :, :1])))


def test_a_memory_is_projected_once():
    attention = MultiHeadAttention(D_MODEL, N_HEADS)
    x, memory = torch.randn(B, 1, D_MODEL), torch.randn(B, S, D_MODEL)
    cache, calls = LayerCache(), []
    attention.kv.register_forward_hook(lambda *_: calls.append(1))
    outputs = [attention(x, memory, cache=cache) for _ in range(3)]
    assert calls == [1]
    assert_close(outputs[2], attention(x, memory))


@pytest.mark.parametrize(
    ("sizes", "error", "message"),
    [
        ((32, 5), ValueError, r"divisible by n_heads, got 32 and 5"),
        ((0, 4), ValueError, r"positive integers, got 0 and 4"),
        ((32, -4), ValueError, r"positive integers, got 32 and -4"),
        ((32, True), ValueError, r"positive integers, got 32 and True"),
        ((32.0, 4), TypeCheckError, r"parameter 'd_model'"),
    ],
)
def test_bad_sizes_are_refused(sizes, error, message):
    with pytest.raises(error, match=message):
        MultiHeadAttention(*sizes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": torch.zeros(B, D_MODEL)}, r"parameter 'x'[\s\S]*B T d_model"),
        ({"memory": torch.zeros(B + 1, S, D_MODEL)}, r"parameter 'memory'[\s\S]*B S d_model[\s\S]*B=2"),
        ({"memory": torch.zeros(B, S, D_MODEL + 1)}, r"parameter 'memory'[\s\S]*B S d_model[\s\S]*d_model=33"),
        ({"allowed": torch.ones(T, T)}, r"parameter 'allowed'[\s\S]*Bool\[Tensor"),
        ({"allowed": torch.ones(3, T, dtype=torch.bool)}, r"parameter 'allowed'[\s\S]*#T #S[\s\S]*T=5"),
        ({"allowed": torch.ones(T, 3, dtype=torch.bool)}, r"parameter 'allowed'[\s\S]*#T #S[\s\S]*S=5"),
    ],
)
def test_wrong_shapes_dtypes_and_masks_are_refused_by_name(arguments, message):
    with pytest.raises(TypeCheckError, match=message):
        MultiHeadAttention(D_MODEL, N_HEADS)(**({"x": torch.zeros(B, T, D_MODEL)} | arguments))


@pytest.mark.parametrize("crossing", [False, True])
def test_it_traces_with_its_own_names_and_replays(crossing):
    attention = MultiHeadAttention(D_MODEL, N_HEADS)
    trace = sf.trace(attention, "B T d_model", "B S d_model") if crossing else sf.trace(attention)
    x, memory = torch.randn(B, T, D_MODEL), torch.randn(B, S, D_MODEL)
    keys = "S" if crossing else "T"
    assert f"softmax B n_heads T {keys} -> B n_heads T {keys}" in " ".join(str(trace).split())
    arguments = (x, memory) if crossing else (x,)
    assert_close(trace.graph_module(*arguments), attention(*arguments))


def test_attention_keeps_the_dtype_of_its_input():
    x = torch.randn(B, T, D_MODEL, dtype=torch.bfloat16)
    assert MultiHeadAttention(D_MODEL, N_HEADS).bfloat16()(x).dtype is torch.bfloat16


@pytest.mark.parametrize(
    ("right", "broken", "message"),
    [
        ("self.d_head).transpose(1, 2)", "self.d_head)", r"split_heads[\s\S]*B n_heads T d_head"),
        ("z.transpose(1, 2).reshape(b, t, self.d_model)", "z", r"merge_heads[\s\S]*B T d_model"),
        (
            "self.d_head).transpose(1, 2)",
            "self.d_head).transpose(2, 3)",
            r"split_heads[\s\S]*B n_heads T d_head[\s\S]*T=5",
        ),
    ],
)
def test_a_broken_transpose_is_caught_by_name(mutant, right, broken, message):
    attention = mutant(multi_head, right, broken).MultiHeadAttention(D_MODEL, N_HEADS)
    with pytest.raises(TypeCheckError, match=message):
        attention(torch.zeros(B, T, D_MODEL))


def test_the_copy_that_is_not_broken_runs(mutant):
    attention = mutant(multi_head, "B n_heads T d_head", "B n_heads T d_head").MultiHeadAttention(D_MODEL, N_HEADS)
    assert attention(torch.zeros(B, T, D_MODEL)).shape == (B, T, D_MODEL)
