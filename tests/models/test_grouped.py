"""Heads that share keys: MHA and MQA as the ends, the size of the cache, the window, sinks, and what is refused."""

import pytest
import torch
from jaxtyping import TypeCheckError
from torch.nn.functional import scaled_dot_product_attention as torch_attention
from torch.testing import assert_close

from models.cache import LayerCache
from models.grouped import GroupedQueryAttention
from models.multi_head import MultiHeadAttention
from models.rope import Rotary
from tests.models.checks import one_by_one

B, T = 2, 7
SIZES = {"d_model": 42, "n_heads": 6, "d_head": 10}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def attention(n_kv_heads=3, **options):
    made = GroupedQueryAttention(**(SIZES | {"n_kv_heads": n_kv_heads} | options))
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return made


def rotation(start=0, end=T):
    return Rotary(SIZES["d_head"])(torch.arange(start, end).expand(B, -1))


def causal(t=T, window=None):
    rows = torch.ones(t, t, dtype=torch.bool).tril()
    return rows if window is None else rows.triu(1 - window)


def by_hand(made, x, allowed, turn=True):
    """The same attention in torch's own functions, which repeat no heads."""
    heads = [part(x).unflatten(-1, (-1, made.d_head)) for part in (made.q, made.k, made.v)]
    if turn:
        heads[:2] = [rotation().turn(part) for part in heads[:2]]
    q, k, v = (part.transpose(1, 2) for part in heads)
    mixture = torch_attention(q, k, v, attn_mask=allowed, enable_gqa=True)
    return made.out(mixture.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("n_kv_heads", [1, 2, 3, 6])
@pytest.mark.parametrize("options", [{}, {"window": 3}, {"bias": True, "out_bias": True}])
def test_output_and_gradient_are_those_of_torch(n_kv_heads, options):
    made = attention(n_kv_heads, **options)
    x = torch.randn(B, T, 42, requires_grad=True)
    ours, theirs = made(x, rotation()), by_hand(made, x, causal(window=options.get("window")))
    assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    inputs = (x, *made.parameters())
    direction = torch.randn_like(ours)
    expected = torch.autograd.grad(theirs, inputs, direction)
    assert_close(torch.autograd.grad(ours, inputs, direction), expected, atol=1e-4, rtol=1e-4)


def test_a_key_head_for_each_query_head_is_multi_head_attention():
    made = attention(n_kv_heads=7, n_heads=7, d_head=6)
    theirs = MultiHeadAttention(42, 7, bias=False)
    kv = torch.cat([made.k.weight, made.v.weight])
    theirs.load_state_dict({"q.weight": made.q.weight, "kv.weight": kv, "out.weight": made.out.weight})
    x = torch.randn(B, T, 42)
    assert_close(made(x), theirs(x, allowed=causal()))


def test_one_key_head_is_multi_query_attention():
    made = attention(n_kv_heads=1)
    x = torch.randn(B, T, 42)
    k, v = made.k(x), made.v(x)
    mixtures = [torch_attention(q, k, v, attn_mask=causal()) for q in made.q(x).split(10, dim=-1)]
    assert_close(made(x), made.out(torch.cat(mixtures, dim=-1)))


@pytest.mark.parametrize("n_kv_heads", [1, 3, 6])
def test_groups_equal_multi_head_attention_with_repeated_keys(n_kv_heads):
    made = attention(n_kv_heads)
    full = attention(6)
    with torch.no_grad():
        for ours, theirs in ((full.q, made.q), (full.out, made.out)):
            ours.weight.copy_(theirs.weight)
        for ours, theirs in ((full.k, made.k), (full.v, made.v)):
            heads = theirs.weight.unflatten(0, (n_kv_heads, 10))
            ours.weight.copy_(torch.cat([heads[head * n_kv_heads // 6] for head in range(6)]))
    x = torch.randn(B, T, 42)
    assert_close(made(x, rotation()), full(x, rotation()))


@pytest.mark.parametrize(("n_kv_heads", "numbers"), [(6, 120), (3, 60), (1, 20)])
def test_the_cache_holds_two_d_head_numbers_per_key_head_and_token(n_kv_heads, numbers):
    cache = LayerCache()
    attention(n_kv_heads)(torch.randn(B, T, 42), rotation(), cache=cache)
    assert sum(part.numel() for part in cache.held) == B * T * numbers == B * T * 2 * n_kv_heads * 10


def test_a_window_as_long_as_the_text_changes_nothing_and_a_shorter_one_does():
    x = torch.randn(B, T, 42)
    made = attention(window=T)
    full = made(x, rotation())
    made.window = None
    assert_close(full, made(x, rotation()))
    made.window = T - 1
    changed = (full - made(x, rotation())).abs().amax(dim=(0, 2))
    assert changed[:-1].max() < 1e-6
    assert changed[-1] > 1e-3


@pytest.mark.parametrize(("window", "held"), [(None, None), (3, None), (3, 3), (3, 5), (1, 1)])
@pytest.mark.parametrize("prompt", [1, 4])
@pytest.mark.parametrize("options", [{}, {"norm_eps": 1e-6, "sinks": True}])
def test_token_by_token_through_a_cache_is_all_at_once(window, held, prompt, options):
    made = attention(window=window, **options)
    x = torch.randn(B, T, 42)
    cache = LayerCache(held)

    def step(part, valid):
        return made(part, rotation(cache.length, cache.length + part.shape[1]), cache=cache)

    assert_close(one_by_one(step, x, prompt=prompt), made(x, rotation()))
    assert cache.offset == (0 if held is None else T - held + 1)


@pytest.mark.parametrize(
    ("window", "held", "message"),
    [
        (None, 3, r"reads all positions, but the cache keeps a window of 3"),
        (4, 3, r"reads 4 positions, .* window of 3"),
    ],
)
def test_a_cache_that_keeps_less_than_attention_reads_is_refused(window, held, message):
    with pytest.raises(ValueError, match=message):
        attention(window=window)(torch.randn(B, T, 42), rotation(), cache=LayerCache(held))


def test_padding_on_the_left_changes_no_real_token():
    made = attention(window=3)
    x = torch.randn(B, T, 42)
    padded = torch.cat([torch.randn(B, 2, 42), x], dim=1)
    valid = torch.arange(T + 2).expand(B, -1) >= 2
    assert_close(made(padded, rotation(-2), valid=valid)[:, 2:], made(x, rotation()))
    assert not torch.allclose(made(padded, rotation(-2))[:, 2:], made(x, rotation()), atol=1e-3)


def test_norms_of_heads_make_scores_blind_to_the_size_of_the_projections():
    x = torch.randn(B, T, 42)
    for norm_eps, same in ((1e-6, True), (None, False)):
        made = attention(norm_eps=norm_eps)
        before = made(x, rotation())
        with torch.no_grad():
            made.q.weight *= 5
            made.k.weight *= 0.5
        assert torch.allclose(made(x, rotation()), before, atol=1e-4) == same


def test_a_sink_takes_its_share_of_the_softmax():
    made = attention(sinks=True)
    scores = torch.randn(B, 6, T, T)
    weights = made.weights_beside_sinks(scores, made.sinks, causal())
    column = made.sinks[:, None, None].expand(B, -1, T, 1)
    expected = torch.cat([scores.masked_fill(~causal(), -torch.inf), column], dim=-1).softmax(dim=-1)[..., :-1]
    assert_close(weights, expected)
    assert weights.sum(dim=-1).max() < 1


def test_a_sink_far_below_the_scores_takes_nothing():
    made = attention(sinks=True)
    torch.nn.init.constant_(made.sinks, -1e9)
    x = torch.randn(B, T, 42)
    assert_close(made(x, rotation()), by_hand(made, x, causal()))


def test_attention_keeps_the_dtype_of_its_input():
    for sinks in (False, True):
        x = torch.randn(B, T, 42, dtype=torch.bfloat16)
        assert attention(sinks=sinks).bfloat16()(x, rotation()).dtype is torch.bfloat16


def test_heads_that_cannot_be_shared_out_are_refused():
    with pytest.raises(ValueError, match=r"n_heads must be divisible by n_kv_heads, got 6 and 4"):
        attention(n_kv_heads=4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda made: made(torch.ones(T, 42)), r"'x'[\s\S]*f32\[7,42\][\s\S]*B T d_model"),
        (lambda made: made.shared(torch.ones(B, T, 42)), r"'x'[\s\S]*B n_kv_heads S d_head"),
        (lambda made: made.merge_heads(torch.ones(B, T, 60)), r"'z'[\s\S]*B n_heads T d_head"),
        (lambda made: made(torch.ones(B, T, 42), valid=torch.ones(B, T)), r"'valid'[\s\S]*f32\[2,7\][\s\S]*Bool"),
        (lambda made: made(torch.ones(B, T, 42), valid=torch.ones(3, T) > 0), r"'valid'[\s\S]*^B=2"),
    ],
)
def test_wrong_shapes_and_dtypes_are_refused_by_name(call, message):
    with pytest.raises(TypeCheckError, match=f"(?m){message}"):
        call(attention())


def test_a_transpose_too_many_is_caught(mutant):
    from models import grouped

    broken = mutant(grouped, "return z.transpose(1, 2).flatten(2)", "return z.flatten(2)")
    made = broken.GroupedQueryAttention(**SIZES, n_kv_heads=3)
    with pytest.raises(TypeCheckError, match=r"return value of [\s\S]*merge_heads[\s\S]*B T d_q"):
        made(torch.randn(B, T, 42))
