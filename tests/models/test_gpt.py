"""The small GPT against the chapter: who sees whom, its size, its shapes, what it refuses."""

import pytest
import torch
import torch.nn as nn
from jaxtyping import TypeCheckError
from torch.overrides import TorchFunctionMode
from torch.testing import assert_close

from models.gpt import DecoderBlock, GPTConfig, MultiHeadSelfAttention, toy

B, T = 2, 5


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def ids(b=B, t=T, vocab=100):
    return torch.randint(vocab, (b, t))


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
def test_bad_sizes_of_attention_are_refused(sizes, error, message):
    with pytest.raises(error, match=message):
        MultiHeadSelfAttention(*sizes)


def test_earlier_positions_do_not_see_a_later_token():
    model = toy().eval()
    before = ids()
    after = before.clone()
    after[:, 3] = (after[:, 3] + 1) % 100
    logits, changed = model(before), model(after)
    assert_close(logits[:, :3], changed[:, :3])
    for t in (3, 4):
        assert (logits[:, t] - changed[:, t]).abs().max() > 1e-3


@pytest.mark.parametrize("causal", [True, False])
def test_without_the_mask_the_same_change_reaches_earlier_positions(causal):
    attention = MultiHeadSelfAttention(32, 4).eval()
    before = torch.randn(B, T, 32)
    after = before.clone()
    after[:, 3] += 1.0
    leak = (attention(before, causal=causal) - attention(after, causal=causal))[:, :3].abs().max()
    assert leak < 1e-6 if causal else leak > 1e-3


def test_a_block_equals_the_pre_norm_layer_of_torch_with_the_same_weights():
    ours = DecoderBlock(d_model=33, n_heads=3, d_ff=127)
    theirs = nn.TransformerEncoderLayer(
        33, 3, dim_feedforward=127, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )
    names = {
        "ln1": "norm1",
        "attn.qkv.weight": "self_attn.in_proj_weight",
        "attn.out": "self_attn.out_proj",
        "ln2": "norm2",
        "ffn.up": "linear1",
        "ffn.down": "linear2",
    }
    weights = {
        new + key.removeprefix(old): weight
        for key, weight in ours.state_dict().items()
        for old, new in names.items()
        if key.startswith(old)
    }
    biases = theirs.load_state_dict(weights, strict=False).missing_keys
    for name in biases:
        nn.init.zeros_(theirs.get_parameter(name))

    assert biases == ["self_attn.in_proj_bias", "self_attn.out_proj.bias"]
    x = torch.randn(B, T, 33)
    mask = nn.Transformer.generate_square_subsequent_mask(T)
    assert_close(ours(x), theirs(x, src_mask=mask, is_causal=True))


def test_attention_keeps_the_dtype_of_its_input():
    x = torch.randn(B, T, 32, dtype=torch.bfloat16)
    assert MultiHeadSelfAttention(32, 4).bfloat16()(x).dtype is torch.bfloat16


def test_a_sequence_may_be_as_long_as_the_table_of_positions_and_no_longer():
    model = toy(max_len=7)
    assert model(ids(t=7)).shape == (B, 7, 100)
    with pytest.raises(ValueError, match=r"a sequence of 8 tokens is longer than max_len = 7"):
        model(ids(t=8))


def test_a_position_changes_what_a_token_gives():
    logits = toy(n_layers=1)(torch.full((1, T), 7))
    assert not torch.allclose(logits[0, 0], logits[0, 1], atol=1e-3)


def test_the_number_of_parameters_is_the_formula():
    vocab, max_len, d_model, d_ff, n_layers = 100, 64, 32, 128, 2
    attention = 4 * d_model**2
    ffn = 2 * d_model * d_ff + d_ff + d_model
    norms = 2 * 2 * d_model
    head = d_model * vocab + vocab
    formula = (vocab + max_len) * d_model + n_layers * (attention + ffn + norms) + 2 * d_model + head
    assert sum(p.numel() for p in toy().parameters()) == formula == 33764


class Shapes(TorchFunctionMode):
    """Writes down (operator, shape) of every tensor that torch's functions give."""

    def __init__(self):
        super().__init__()
        self.rows = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor):
            self.rows.append((func.__name__, tuple(out.shape)))
        return out


@pytest.mark.parametrize(
    ("b", "t", "sizes"),
    [
        (2, 5, {"vocab": 100, "d_model": 32, "n_heads": 4, "d_ff": 128}),
        (3, 7, {"vocab": 101, "d_model": 55, "n_heads": 5, "d_ff": 127}),
    ],
)
def test_the_shapes_are_those_of_section_15(b, t, sizes):
    vocab, d_model, n_heads, d_ff = sizes.values()
    d_head = d_model // n_heads
    model = toy(**sizes, n_layers=1)
    with Shapes() as shapes:
        model(ids(b, t))

    table = [
        ("embedding", (b, t, d_model)),
        ("linear", (b, t, 3 * d_model)),
        ("transpose", (b, n_heads, t, d_head)),
        ("matmul", (b, n_heads, t, t)),
        ("softmax", (b, n_heads, t, t)),
        ("matmul", (b, n_heads, t, d_head)),
        ("reshape", (b, t, d_model)),
        ("linear", (b, t, d_model)),
        ("linear", (b, t, d_ff)),
        ("linear", (b, t, vocab)),
    ]
    rows = iter(shapes.rows)
    for row in table:
        assert row in rows, f"{row} does not follow in {shapes.rows}"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: toy()(torch.zeros(T, dtype=torch.int64)), r"'ids'[\s\S]*i64\[5\][\s\S]*'B T'"),
        (lambda: DecoderBlock(32, 4, 128)(torch.zeros(B, 32)), r"'x'[\s\S]*'B T d_model'"),
        (lambda: toy().blocks[0].attn.merge_heads(torch.zeros(B, T, 32)), r"'z'[\s\S]*'B n_heads T d_head'"),
        (lambda: GPTConfig(100, 64, 32, 4, 128, n_layers="2"), r"'n_layers'[\s\S]*<class 'int'>"),
    ],
)
def test_every_signature_of_the_model_is_checked(call, message):
    with pytest.raises(TypeCheckError, match=message):
        call()


def test_a_projection_that_does_not_give_three_d_model_is_refused_by_name():
    model = toy()
    model.blocks[1].attn.qkv = nn.Linear(32, 64, bias=False)
    message = r"return value of models\.gpt\.MultiHeadSelfAttention\.packed_qkv[\s\S]*B T 3\*d_model[\s\S]*d_model=32"
    with pytest.raises(TypeCheckError, match=message):
        model(ids())
