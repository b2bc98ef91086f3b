"""The small GPT against the chapter, and GPT-2: who sees whom, sizes, shapes, a cache, what is refused."""

import pytest
import torch
import torch.nn as nn
from jaxtyping import TypeCheckError
from torch.overrides import TorchFunctionMode
from torch.testing import assert_close

from models import gpt
from models.cache import Cache
from models.gpt import (
    GPT,
    GPT2_LARGE,
    GPT2_MEDIUM,
    GPT2_SMALL,
    GPT2_XL,
    DecoderBlock,
    GPTConfig,
    MultiHeadSelfAttention,
    toy,
    toy_gpt2,
)
from models.properties import batch_leaks, future_leaks
from tests.models.checks import assert_traces, one_by_one

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


@pytest.mark.parametrize(
    ("config", "count"),
    [
        (GPT2_SMALL, 124_439_808),
        (GPT2_MEDIUM, 354_823_168),
        (GPT2_LARGE, 774_030_080),
        (GPT2_XL, 1_557_611_200),
    ],
)
def test_the_number_of_parameters_of_every_gpt2(config, count):
    with torch.device("meta"):
        model = GPT(config)
    assert sum(p.numel() for p in model.parameters()) == count


@pytest.mark.parametrize("prompt", [1, 3])
@pytest.mark.parametrize("make", [toy, toy_gpt2])
def test_cached_decoding_gives_what_the_whole_sequence_gives(make, prompt):
    model, tokens, cache = make(), ids(t=7), Cache(2)
    with torch.no_grad():
        steps = one_by_one(lambda new, _: model(new, cache=cache), tokens, prompt=prompt)
        assert_close(steps, model(tokens))
    assert cache.length == 7


@pytest.mark.parametrize("prompt", [1, 4])
@pytest.mark.parametrize("make", [toy, toy_gpt2])
def test_padding_on_the_left_moves_nothing_also_with_a_cache(make, prompt):
    model, tokens, cache = make(), ids(t=7), Cache(2)
    valid = torch.tensor([[True] * 7, [False, False, False, *[True] * 4]])
    with torch.no_grad():
        steps = one_by_one(lambda new, valid: model(new, valid=valid, cache=cache), tokens, valid, prompt=prompt)
        assert_close(steps[:1], model(tokens[:1]))
        assert_close(steps[1:, 3:], model(tokens[1:, 3:]))
        assert (model(tokens)[1, 3:] - steps[1, 3:]).abs().max() > 1e-3  # without `valid` it would


def test_a_cache_counts_against_the_table_of_positions():
    model, cache = toy(max_len=7), Cache(2)
    model(ids(t=6), cache=cache)
    model(ids(t=1), cache=cache)
    with pytest.raises(ValueError, match=r"a sequence of 8 tokens is longer than max_len = 7"):
        model(ids(t=1), cache=cache)


@pytest.mark.parametrize("make", [toy, toy_gpt2])
def test_no_position_sees_the_future_and_no_sequence_another(make):
    model = make().eval()
    assert future_leaks(model, ids()) == ()
    assert batch_leaks(model, ids(3)) == ()


@pytest.mark.parametrize("make", [toy, toy_gpt2])
def test_without_the_mask_the_future_leaks(make, monkeypatch):
    monkeypatch.setattr(gpt, "decoder_allowed", lambda *_, **__: torch.ones(T, T, dtype=torch.bool))
    assert future_leaks(make().eval(), ids(), tolerance=1e-6) == tuple(range(T - 1))


@pytest.mark.parametrize("make", [toy, toy_gpt2])
def test_it_traces_in_its_own_names_and_replays(make):
    assert_traces(make().eval(), ids(3, 11))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m(ids(), valid=torch.ones(B, T)), r"'valid'[\s\S]*f32\[2,5\][\s\S]*Bool"),
        (lambda m: m(ids(), valid=torch.ones(3, T, dtype=torch.bool)), r"'valid'[\s\S]*bool\[3,5\][\s\S]*B=2"),
        (lambda m: m.blocks[0](torch.ones(B, T, 21, dtype=torch.int64)), r"'x'[\s\S]*i64\[2,5,21\][\s\S]*Float"),
        (lambda m: m.logits(torch.ones(B, 21)), r"'x'[\s\S]*'B T d_model'"),
    ],
)
def test_gpt2_refuses_wrong_inputs_by_name(call, message):
    with pytest.raises(TypeCheckError, match=message):
        call(toy_gpt2())


def test_heads_that_are_not_transposed_are_refused_by_name(mutant):
    right = "return x.view(b, t, self.n_heads, self.d_head).transpose(1, 2)"
    broken = mutant(gpt, right, right.removesuffix(".transpose(1, 2)"))
    with pytest.raises(TypeCheckError, match=r"return value of \S*split_heads[\s\S]*B n_heads T d_head[\s\S]*T=5"):
        broken.toy_gpt2()(ids())


def test_the_tied_head_gives_the_numbers_of_the_notes_section_4_3_4():
    model = GPT(GPTConfig(vocab=4, max_len=2, d_model=2, n_heads=1, d_ff=3, n_layers=1, tied=True))
    with torch.no_grad():
        model.tokens.table.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [-1.0, 0.0]]))
    h = torch.tensor([[[1.0, 2.0]]])
    logits = model.logits(h)[0, 0]
    assert_close(logits, torch.tensor([1.0, 2.0, 3.0, -1.0]))
    assert_close(logits.softmax(dim=0), torch.tensor([0.09, 0.24, 0.66, 0.01]), atol=6e-3, rtol=0)
    assert "the cat sat mat".split()[logits.argmax()] == "sat"
    assert_close(logits, h[0, 0] @ model.tokens.table.weight.T)


def test_a_tied_head_trains_the_table_from_both_ends():
    model = toy_gpt2()
    model(torch.full((1, 3), 7)).square().sum().backward()
    assert (model.tokens.table.weight.grad.abs().sum(dim=1) > 0).all()
    assert "head.weight" not in model.state_dict()
