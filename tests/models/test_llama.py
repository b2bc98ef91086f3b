"""The stack that Llama, Mistral and Qwen3 share: sizes, the cache, padding, who sees whom, traces, what is refused."""

import time

import pytest
import torch
import torch.nn as nn
from jaxtyping import TypeCheckError
from torch.testing import assert_close

from models import grouped, llama, mistral, qwen3
from models.cache import Cache
from models.llama import LLAMA_2_7B, LLAMA_3_8B, LLAMA_3_70B, Llama
from models.mistral import MISTRAL_7B, Mistral
from models.properties import batch_leaks, changed_positions, future_leaks
from models.qwen3 import QWEN3_8B, Qwen3
from models.rope import YarnScaling
from tests.models.checks import assert_traces, one_by_one

B, T, VOCAB = 2, 11, 97
MODULES = [llama, mistral, qwen3]
TOYS = [
    pytest.param(llama.toy, {}, id="llama"),
    pytest.param(llama.toy, {"n_kv_heads": 1, "scaling": YarnScaling(factor=4.0, original_max_len=16)}, id="mqa"),
    pytest.param(llama.toy, {"n_kv_heads": 6, "tied": True}, id="mha-tied"),
    pytest.param(mistral.toy, {}, id="mistral"),
    pytest.param(mistral.toy, {"window": None}, id="mistral-full"),
    pytest.param(qwen3.toy, {}, id="qwen3"),
]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def made(toy, changes):
    """With larger weights than at the start, so that positions and neighbours matter."""
    model = toy(**changes).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def ids(b=B, t=T):
    return torch.randint(VOCAB, (b, t))


@pytest.mark.parametrize(
    ("model", "config", "total"),
    [
        (Llama, LLAMA_2_7B, 6_738_415_616),
        (Llama, LLAMA_3_8B, 8_030_261_248),
        (Llama, LLAMA_3_70B, 70_553_706_496),
        (Mistral, MISTRAL_7B, 7_241_732_096),
        (Qwen3, QWEN3_8B, 8_190_735_360),
    ],
)
def test_the_named_models_have_the_published_number_of_parameters(model, config, total):
    start = time.perf_counter()
    with torch.device("meta"):
        built = model(config)
    assert sum(p.numel() for p in built.parameters()) == total
    assert time.perf_counter() - start < 10


@pytest.mark.parametrize(("toy", "changes"), TOYS)
@pytest.mark.parametrize("prompt", [1, 5])
def test_token_by_token_through_a_cache_is_all_at_once(toy, changes, prompt):
    model, tokens = made(toy, changes), ids()
    for window in {None, getattr(model.config, "window", None)}:
        cache = Cache(2, window)
        cached = one_by_one(lambda part, valid, cache=cache: model(part, cache=cache), tokens, prompt=prompt)
        assert_close(cached, model(tokens), atol=1e-4, rtol=1e-4)
        assert cache.length == T


@pytest.mark.parametrize(("toy", "changes"), TOYS)
def test_padding_on_the_left_changes_no_real_token_with_a_cache_or_without(toy, changes):
    model, tokens = made(toy, changes), ids()
    valid = torch.arange(T).expand(B, -1) >= torch.tensor([[0], [3]])
    alone = model(tokens[1:, 3:])
    together = model(tokens, valid=valid)
    assert_close(together[:1], model(tokens[:1]), atol=1e-4, rtol=1e-4)
    assert_close(together[1:, 3:], alone, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(model(tokens)[1:, 3:], alone, atol=1e-2)
    for window in {None, getattr(model.config, "window", None)}:
        cache = Cache(2, window)
        cached = one_by_one(lambda part, valid, c=cache: model(part, valid=valid, cache=c), tokens, valid, prompt=5)
        assert_close(cached[valid], together[valid], atol=1e-4, rtol=1e-4)


def test_valid_must_cover_what_was_read():
    cache = Cache(2)
    model = llama.toy()
    model(ids(), cache=cache)
    with pytest.raises(ValueError, match=r"valid covers 11 positions, but 12 have been read"):
        model(ids(t=1), valid=torch.ones(B, T, dtype=torch.bool), cache=cache)


@pytest.mark.parametrize(("toy", "changes"), TOYS)
def test_no_position_sees_a_later_one_and_no_sequence_another(toy, changes):
    model = made(toy, changes)
    assert future_leaks(model, ids()) == ()
    assert batch_leaks(model, ids(), tolerance=1e-4) == ()


def test_without_the_mask_both_checks_find_leaks(monkeypatch):
    monkeypatch.setattr(grouped, "decoder_allowed", lambda t, s, **_: torch.ones(t, s, dtype=torch.bool))
    assert future_leaks(made(llama.toy, {}), ids()) == tuple(range(T - 1))
    model = made(llama.toy, {})
    assert batch_leaks(lambda tokens: model(tokens) + tokens.float().mean(), ids()) == (0, 1)


@pytest.mark.parametrize(("window", "n_layers", "reach"), [(3, 1, 3), (3, 2, 5), (4, 3, 10), (None, 2, T)])
def test_n_layers_carry_a_token_n_windows_far(window, n_layers, reach):
    model = made(mistral.toy, {"window": window, "n_layers": n_layers})
    assert changed_positions(model, ids(), 0, tolerance=1e-6) == tuple(range(reach))


@pytest.mark.parametrize("module", MODULES)
def test_every_axis_has_its_name_and_the_graph_replays_at_other_sizes(module):
    assert_traces(module.toy().eval(), ids())
    assert_traces(module.toy().eval(), ids(3, 17))


@pytest.mark.parametrize("module", MODULES)
def test_the_config_is_the_attention_it_says(module):
    attn = module.toy().blocks[1].attn
    assert attn.window == (3 if module is mistral else None)
    assert (attn.q_norm is not None) == (attn.k_norm is not None) == (module is qwen3)


def test_a_tied_head_is_the_embedding_table():
    tied, free = llama.toy(tied=True), llama.toy()
    assert tied.head.weight is tied.tokens.table.weight
    difference = sum(p.numel() for p in free.parameters()) - sum(p.numel() for p in tied.parameters())
    assert difference == VOCAB * 42


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: model(ids()[0]), r"'ids'[\s\S]*i64\[11\][\s\S]*'B T'"),
        (lambda model: model(ids().float()), r"'ids'[\s\S]*f32\[2,11\][\s\S]*Int\[Tensor"),
        (lambda model: model(ids(), valid=ids()), r"'valid'[\s\S]*i64\[2,11\][\s\S]*Bool\[Tensor"),
        (lambda model: model(ids(), valid=ids(3) > 0), r"'valid'[\s\S]*bool\[3,11\][\s\S]*^B=2$"),
        (lambda model: model(ids(), cache=[]), r"'cache'"),
        (lambda model: model.blocks[0].ffn.hidden(torch.ones(B, T, 42) > 0), r"'x'[\s\S]*\.\.\. d_model"),
    ],
)
def test_wrong_shapes_and_dtypes_are_refused_by_name(module, call, message):
    with pytest.raises(TypeCheckError, match=f"(?m){message}"):
        call(module.toy())


@pytest.mark.parametrize("module", MODULES)
def test_a_projection_of_another_width_is_refused_by_name(module):
    model = module.toy()
    model.blocks[1].attn.k = nn.Linear(42, 29)
    with pytest.raises(RuntimeError, match=r"shape '\[2, 11, 3, 10\]' is invalid"):
        model(ids())
    model.blocks[1].attn.out = nn.Linear(60, 41)
    model.blocks[1].attn.k = nn.Linear(42, 30)
    with pytest.raises(TypeCheckError, match=r"return value of [\s\S]*forward[\s\S]*B T d_model[\s\S]*d_model=42"):
        model(ids())


@pytest.mark.parametrize("module", MODULES)
def test_a_transpose_too_many_is_caught(mutant, module):
    name = module.__name__.rpartition(".")[2].capitalize()
    broken = mutant(module, "return self.head(self.norm(x))", "return self.head(self.norm(x)).transpose(0, 1)")
    with pytest.raises(TypeCheckError, match=rf"return value of [\s\S]*{name}\.forward[\s\S]*B T vocab[\s\S]*T=11"):
        broken.toy()(ids())
