"""Attention against the chapter's numbers and torch's own, and what it refuses."""

import math

import pytest
import torch
from jaxtyping import TypeCheckError
from torch.nn.functional import scaled_dot_product_attention as torch_attention
from torch.testing import assert_close

from models.attention import attention_scores, attention_weights, scaled_dot_product_attention
from models.masks import causal_allowed

# Primes that differ, so that no axis passes for another.
B, T, S, N_HEADS, D_HEAD, D_V = 2, 5, 7, 3, 11, 13


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def inputs(**dtypes):
    shapes = {"q": (B, T, D_HEAD), "k": (B, S, D_HEAD), "v": (B, S, D_V)}
    return {name: torch.randn(shape).to(dtypes.get(name, torch.float32)) for name, shape in shapes.items()}


def test_the_example_worked_by_hand_in_section_4_5():
    q = k = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    v = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 1.0]])
    scores = torch.tensor([[0.707, 0.0, 0.707], [0.0, 0.707, 0.707], [0.707, 0.707, 1.414]])
    weights = torch.tensor([[1.0, 0.0, 0.0], [0.330, 0.670, 0.0], [0.248255, 0.248255, 0.503490]])
    output = torch.tensor([[1.0, 0.0], [0.330, 1.340], [1.758725, 1.0]])

    assert_close(attention_scores(q, k), scores, atol=5e-4, rtol=0)
    got_output, got_weights = scaled_dot_product_attention(q, k, v, causal_allowed(3, 3))
    assert_close(got_weights, weights, atol=5e-4, rtol=0)
    assert_close(got_output, output, atol=5e-4, rtol=0)
    assert_close(got_weights[2], weights[2], atol=1e-6, rtol=0)
    assert_close(got_output[2], output[2], atol=1e-6, rtol=0)


@pytest.mark.parametrize("d_head", [16, 64, 256])
def test_the_variance_of_a_score_is_1_by_the_scale_and_would_be_d_head_without_section_4_3(d_head):
    q, k = torch.randn(2, 1000, d_head)
    scores = attention_scores(q, k)
    assert scores.var().item() == pytest.approx(1, rel=0.05)
    assert (q @ k.T).var().item() == pytest.approx(d_head, rel=0.05)


def test_without_the_scale_wide_keys_saturate_the_softmax_and_starve_the_losers_of_gradient():
    q, k = torch.randn(2, 100, 256)
    scaled, bare = attention_scores(q, k), q @ k.T
    weights, saturated = scaled.softmax(dim=-1), bare.softmax(dim=-1)
    assert saturated.amax(dim=-1).median() > 0.9
    assert weights.amax(dim=-1).median() < 0.2
    # The derivative of a weight by its own score is w * (1 - w).
    assert (saturated * (1 - saturated)).median() < 1e-6 < (weights * (1 - weights)).median()


def test_a_score_is_a_scaled_sum_of_products_that_keeps_lengths_unlike_the_cosine_of_section_4_2():
    q, k = torch.randn(T, D_HEAD), torch.randn(S, D_HEAD)
    scores = attention_scores(q, k)
    by_hand = sum(q[2, r] * k[3, r] for r in range(D_HEAD)) / math.sqrt(D_HEAD)
    assert_close(scores[2, 3], by_hand)
    assert_close(attention_scores(5 * q, k), 5 * scores)
    assert_close(torch.cosine_similarity(5 * q[2], k[3], dim=0), torch.cosine_similarity(q[2], k[3], dim=0))


def test_an_output_is_the_weighted_sum_of_the_values():
    tensors = inputs()
    output, weights = scaled_dot_product_attention(**tensors)
    by_hand = sum(weights[1, 2, j] * tensors["v"][1, j] for j in range(S))
    assert_close(output[1, 2], by_hand)
    assert (weights >= 0).all()


def test_softmax_over_the_wrong_axis_does_not_raise_and_only_the_row_sums_tell_section_4_4():
    scores = attention_scores(**{name: inputs()[name] for name in "qk"})
    wrong = scores.softmax(dim=-2)
    assert wrong.shape == scores.shape
    assert (wrong.sum(dim=-1) - 1).abs().max() > 0.1
    assert_close(attention_weights(scores).sum(dim=-1), torch.ones(B, T))


def test_masking_after_the_softmax_loses_mass_section_17_7():
    scores = torch.randn(T, S)
    allowed = causal_allowed(T, S)
    late = scores.softmax(dim=-1) * allowed
    assert (late.sum(dim=-1) < 1).all()
    assert_close(late / late.sum(dim=-1, keepdim=True), attention_weights(scores, allowed))


@pytest.mark.parametrize("masked", [False, True])
def test_values_and_gradients_equal_those_of_torch(masked):
    q, k, v = (tensor.double().requires_grad_() for tensor in inputs().values())
    allowed = causal_allowed(T, S, query_offset=S - T) if masked else None
    ours, _ = scaled_dot_product_attention(q, k, v, allowed)
    theirs = torch_attention(q, k, v, attn_mask=allowed, dropout_p=0.0)
    assert_close(ours, theirs)
    assert_close(torch.autograd.grad(ours.sum(), (q, k, v)), torch.autograd.grad(theirs.sum(), (q, k, v)))


@pytest.mark.parametrize("allowed", [None, causal_allowed(T, S), torch.arange(S)[None] % 3 != 1])
def test_a_row_of_weights_sums_to_one_over_the_keys_that_it_may_read(allowed):
    _, weights = scaled_dot_product_attention(**inputs(), allowed=allowed)
    assert weights.shape == (B, T, S)
    assert_close(weights.sum(dim=-1), torch.ones(B, T))
    if allowed is not None:
        assert not weights[~allowed.expand(B, T, S)].any()


def test_leading_axes_broadcast():
    q, k, v = torch.randn(N_HEADS, 1, T, D_HEAD), torch.randn(S, D_HEAD), torch.randn(B, S, D_V)
    output, weights = scaled_dot_product_attention(q, k, v, torch.ones(1, S, dtype=torch.bool))
    assert output.shape == (N_HEADS, B, T, D_V)
    assert weights.shape == (N_HEADS, B, T, S)
    assert_close(output, torch_attention(q, k.expand(B, S, D_HEAD), v))


@pytest.mark.parametrize(
    ("dtypes", "result"),
    [
        ({"q": torch.float16, "k": torch.bfloat16, "v": torch.float16}, torch.float32),
        ({"v": torch.float64}, torch.float64),
    ],
)
def test_the_result_is_float64_where_an_input_is_and_else_float32(dtypes, result):
    output, weights = scaled_dot_product_attention(**inputs(**dtypes))
    assert output.dtype is weights.dtype is result


@pytest.mark.parametrize("arguments", [{}, {"empty_row": "error"}])
def test_a_query_that_may_read_no_key_is_an_error(arguments):
    allowed = causal_allowed(T, S)
    allowed[2] = False
    with pytest.raises(ValueError, match=r'a query may read no key .*empty_row="zero"'):
        scaled_dot_product_attention(**inputs(), allowed=allowed, **arguments)


def test_an_empty_row_gives_zeros_on_request_and_no_nan_in_its_gradient():
    tensors = {name: tensor.requires_grad_() for name, tensor in inputs().items()}
    allowed = causal_allowed(T, S)
    allowed[2] = False
    output, weights = scaled_dot_product_attention(**tensors, allowed=allowed, empty_row="zero")
    with torch.autograd.set_detect_anomaly(True):
        output.sum().backward()

    assert not weights[:, 2].any()
    assert not output[:, 2].any()
    others = [0, 1, 3, 4]
    assert_close(weights.sum(dim=-1)[:, others], torch.ones(B, 4))
    assert not tensors["q"].grad[:, 2].any()
    assert tensors["q"].grad[:, 3].any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": torch.ones(B, T, 0), "k": torch.ones(B, S, 0)}, r"q has an empty axis: its shape is \(2, 5, 0\)"),
        ({"k": torch.ones(B, 0, D_HEAD), "v": torch.ones(B, 0, D_V)}, r"k has an empty axis"),
        ({"v": torch.ones(B, S, 0)}, r"v has an empty axis"),
        ({"v": torch.ones(B, S, D_V, device="meta")}, r"one device, but q is on cpu and v on meta"),
        ({"q": torch.full((B, T, D_HEAD), math.nan)}, r"q holds NaN or infinity"),
        ({"k": torch.full((B, S, D_HEAD), -math.inf)}, r"k holds NaN or infinity"),
        ({"v": torch.full((B, S, D_V), math.inf)}, r"v holds NaN or infinity"),
    ],
)
def test_inputs_without_elements_off_the_device_or_not_finite_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        scaled_dot_product_attention(**(inputs() | change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": torch.full((B, T, D_HEAD), 1e30), "k": torch.full((B, S, D_HEAD), 1e30)}, r"scores overflowed"),
        # Weights are rounded: some of the 202 rows sum to a little over 1, which is too much of the largest number.
        (
            {
                "q": torch.arange(B * 101 * D_HEAD).reshape(B, 101, D_HEAD) % 17 / 17,
                "v": torch.full((B, S, D_V), torch.finfo(torch.float32).max),
            },
            r"output overflowed",
        ),
    ],
)
def test_an_overflow_of_finite_inputs_is_reported(change, message):
    with pytest.raises(FloatingPointError, match=message):
        scaled_dot_product_attention(**(inputs() | change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": torch.ones(D_HEAD)}, r"parameter 'q'[\s\S]*f32\[11\][\s\S]*T d_head"),
        ({"v": torch.ones(D_V)}, r"parameter 'v'[\s\S]*S d_v"),
        ({"q": torch.ones(B, T, D_HEAD, dtype=torch.int64)}, r"parameter 'q'[\s\S]*i64\[2,5,11\][\s\S]*Float\[Tensor"),
        ({"k": torch.ones(B, S, 3)}, r"parameter 'k'[\s\S]*S d_head[\s\S]*^d_head=11$"),
        ({"v": torch.ones(B, 3, D_V)}, r"parameter 'v'[\s\S]*S d_v[\s\S]*^S=7$"),
        ({"allowed": torch.ones(T, S)}, r"parameter 'allowed'[\s\S]*f32\[5,7\][\s\S]*Bool\[Tensor"),
        ({"allowed": torch.ones(T, T, dtype=torch.bool)}, r"parameter 'allowed'[\s\S]*#T #S[\s\S]*^S=7$"),
        ({"empty_row": "uniform"}, r"parameter 'empty_row'[\s\S]*'uniform'"),
    ],
)
def test_the_signature_refuses_wrong_shapes_and_dtypes_by_name(change, message):
    with pytest.raises(TypeCheckError, match=f"(?m){message}"):
        scaled_dot_product_attention(**(inputs() | change))


def test_a_mask_with_more_axes_than_the_scores_is_refused():
    with pytest.raises(RuntimeError, match=r"\[3, 2, 5, 7\]"):
        scaled_dot_product_attention(**inputs(), allowed=torch.ones(3, B, T, S, dtype=torch.bool))


def test_the_weights_can_be_asked_for_alone():
    scores = torch.randn(B, N_HEADS, T, S)
    assert_close(attention_weights(scores), scores.softmax(dim=-1))
