"""What decoders keep of the positions that they have read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import shapeflow as sf
from models import bert, deepseek, gpt, gpt_oss, llama, mistral, t5

transformers = pytest.importorskip("transformers")

SMALL = {
    "vocab_size": 37, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2,
}  # fmt: skip


def real_bytes(model: nn.Module, batch: int, tokens: int) -> int:
    """Of the tensors in the cache that the model hands out."""
    cache = model(torch.randint(0, 37, (batch, tokens)), use_cache=True).past_key_values
    return sum(each.numel() * each.element_size() for layer in cache.layers for each in (layer.keys, layer.values))


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_llama_keeps_the_shared_heads(attention: str, use_cache: bool) -> None:
    config = transformers.LlamaConfig(**SMALL, attn_implementation=attention, use_cache=use_cache)
    model = transformers.LlamaModel(config).eval()
    cost = sf.cost(model, "B T:int64")
    assert str(cost.kv_cache_bytes) == f"{2 * 2 * 2 * 6 * 4}*B*T"
    assert cost.kv_cache_bytes.at(B=2, T=5) == real_bytes(model, 2, 5)
    assert cost.kv_cache_bytes_per_sequence.at(T=5) == 5 * cost.kv_cache_bytes_per_token.at()


def test_gpt2_keeps_all_heads() -> None:
    config = transformers.GPT2Config(vocab_size=37, n_embd=24, n_layer=2, n_head=3, n_positions=64)
    cost = sf.cost(transformers.GPT2LMHeadModel(config).eval(), "B T:int64")
    assert str(cost.kv_cache_bytes) == f"{2 * 2 * 24 * 4}*B*T"
    assert [held.module for held in cost.kv_cache] == ["transformer.h.0.attn"] * 2 + ["transformer.h.1.attn"] * 2


def window(kind: str, **more: Any) -> Any:
    return getattr(transformers, f"{kind}Config")(**SMALL, sliding_window=8, **more)


FAMILIES: dict[str, Callable[[], nn.Module]] = {
    "mistral": lambda: transformers.MistralModel(window("Mistral")),
    "gemma2": lambda: transformers.Gemma2Model(window("Gemma2", head_dim=6)),
    "gpt_oss": lambda: transformers.GptOssModel(
        window("GptOss", head_dim=6, num_local_experts=4, num_experts_per_tok=2)
    ),
    "mamba": lambda: transformers.MambaModel(
        transformers.MambaConfig(vocab_size=37, hidden_size=24, state_size=4, num_hidden_layers=2)
    ),
    "rwkv": lambda: transformers.RwkvModel(
        transformers.RwkvConfig(vocab_size=37, hidden_size=24, num_hidden_layers=2, attention_hidden_size=24)
    ),
    "lfm2": lambda: transformers.Lfm2Model(
        transformers.Lfm2Config(**SMALL, layer_types=["conv", "full_attention"], block_auto_adjust_ff_dim=False)
    ),
}
FORMULAS = {
    "mistral": "192*B*min(T, 7)",
    "gemma2": "96*B*T + 96*B*min(T, 7)",
    "gpt_oss": "96*B*T + 96*B*min(T, 7)",
    "mamba": "3072*B",
    "rwkv": "960*B",
    "lfm2": "96*B*T + 288*B",
}


def held(value: Any) -> Iterator[int]:
    """Bytes of the numbers in a cache; counters in it are whole."""
    if isinstance(value, torch.Tensor):
        yield value.nbytes if value.is_floating_point() else 0
    elif isinstance(value, dict | list | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            yield from held(each)
    elif hasattr(value, "__dict__"):
        yield from held(vars(value))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_formula_for_all_lengths_is_what_the_cache_holds(family: str) -> None:
    """Windows bound what is kept, and states do not grow, whatever the length."""
    model = FAMILIES[family]().eval()
    cost = sf.cost(model, "B T:int64")
    assert str(cost.kv_cache_bytes) == FORMULAS[family]
    for batch, tokens in ((1, 3), (2, 8), (3, 19)):
        out = model(torch.randint(1, 37, (batch, tokens)), use_cache=True)
        cache = next(out[name] for name in ("cache", "past_key_values", "state") if name in out)
        assert cost.kv_cache_bytes.at(B=batch, T=tokens) == sum(held(cache))
    per_sequence = cost.kv_cache_bytes_per_sequence
    assert cost.kv_cache_bytes_per_token.at(T=5) == per_sequence.at(T=6) - per_sequence.at(T=5)


def test_a_state_is_kept_in_generation_though_training_hands_out_none() -> None:
    model = FAMILIES["mamba"]().train()
    cost = sf.cost(model, "B T:int64")
    assert str(cost.kv_cache_bytes) == FORMULAS["mamba"]
    assert model.training and all(module.training for module in model.modules())
    assert {each.grows for each in cost.kv_cache} == {False}


@pytest.mark.parametrize(
    ("module", "expected"), [(mistral, "480*B*min(T, 2)"), (gpt_oss, "240*B*T + 240*B*min(T, 3)")], ids=["all", "some"]
)
def test_a_window_in_the_mask_bounds_what_has_to_be_kept(module: Any, expected: str) -> None:
    assert str(sf.cost(module.toy()).kv_cache_bytes) == expected


def test_a_latent_is_kept_in_the_place_of_keys_and_values() -> None:
    model = deepseek.toy()
    layers = [block.attn for block in model.blocks]
    expected = sum(4 * (each.d_latent + each.d_rope) for each in layers)
    assert str(sf.cost(model).kv_cache_bytes_per_token) == str(expected)


def test_the_models_of_the_course() -> None:
    small, grouped = gpt.toy(), llama.toy()
    assert sf.cost(small).kv_cache_bytes_per_token.at() == 2 * 4 * 32 * len(small.blocks)
    attention = grouped.blocks[0].attn
    per_layer = 2 * 4 * attention.n_kv_heads * attention.d_head
    assert sf.cost(grouped).kv_cache_bytes_per_token.at() == per_layer * len(grouped.blocks)


def test_cross_attention_keeps_what_it_reads_and_does_not_grow() -> None:
    cost = sf.cost(t5.toy())
    assert {symbol.name for symbol in cost.kv_cache_bytes.symbols} == {"B", "S", "T"}
    assert cost.kv_cache_bytes_per_token.constant is not None
    assert {held.grows for held in cost.kv_cache if ".cross" in held.module} == {False}


@pytest.mark.parametrize("model", [bert.toy, lambda: nn.TransformerEncoderLayer(24, 4, 40, batch_first=True)])
def test_an_encoder_keeps_nothing(model: Any) -> None:
    made = model()
    cost = sf.cost(made) if made is not None and type(made).__module__.startswith("models") else sf.cost(made, "B T 24")
    assert cost.kv_cache == ()
    assert cost.kv_cache_bytes.constant == 0


def places(length: Any) -> tuple[torch.Tensor, torch.Tensor]:
    place = torch.arange(length)
    return place[:, None], place[None]


def causal(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    return key <= query


WINDOWS: dict[str, Callable[[Any], torch.Tensor]] = {
    "key after": lambda n: (lambda q, k: causal(q, k) & (k > q - 5))(*places(n)),
    "key from": lambda n: (lambda q, k: causal(q, k) & (k >= q - 4))(*places(n)),
    "distance": lambda n: (lambda q, k: causal(q, k) & (q - k < 5))(*places(n)),
    "signed": lambda n: (lambda q, k: causal(q, k) & (k - q > -5))(*places(n)),
    "blocked": lambda n: (lambda q, k: ~((k > q) | (q - k >= 5)))(*places(n)),
    "moved": lambda n: (lambda q, k: causal(q, k) & (k + 5 > q))(*places(n)),
    "upper": lambda n: torch.ones(n, n, dtype=torch.bool).tril().triu(-4),
    "lower": lambda n: torch.ones(n, n, dtype=torch.bool).tril() & ~torch.ones(n, n, dtype=torch.bool).tril(-5),
}
"""A query reads five positions, its own among them."""


class Attention(nn.Module):
    """Written out, with a triangle from a buffer, from `tril`, or from positions."""

    def __init__(self, mask: str) -> None:
        super().__init__()
        self.mask, self.packed = mask, nn.Linear(24, 72)
        self.register_buffer("triangle", torch.ones(64, 64).tril())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, keys, values = self.packed(x).chunk(3, dim=-1)
        length = x.shape[1]
        scores = query @ keys.transpose(1, 2) / 24**0.5
        if self.mask == "buffer":
            scores = scores.masked_fill(self.triangle[:length, :length] == 0, -torch.inf)
        if self.mask == "tril":
            scores = torch.where(torch.ones(length, length).tril().bool(), scores, -torch.inf)
        if self.mask == "positions":
            place = torch.arange(length)
            scores = scores.masked_fill(place[:, None] < place, -torch.inf)
        if self.mask in WINDOWS:
            scores = scores.masked_fill(~WINDOWS[self.mask](length), -torch.inf)
        if self.mask == "padding":
            scores = scores.masked_fill(torch.arange(length) >= 3, -torch.inf)
        return functional.softmax(scores, dim=-1) @ values


@pytest.mark.parametrize("mask", ["buffer", "tril", "positions"])
def test_attention_that_looks_back_by_any_mask(mask: str) -> None:
    cost = sf.cost(Attention(mask), "B T 24")
    assert str(cost.kv_cache_bytes) == "192*B*T"
    assert str(cost.kv_cache_bytes_per_token) == "192"


@pytest.mark.parametrize("mask", WINDOWS)
def test_windows_however_they_are_written(mask: str) -> None:
    cost = sf.cost(Attention(mask), "B T 24")
    assert str(cost.kv_cache_bytes) == "192*B*min(T, 4)"
    assert [cost.kv_cache_bytes_per_token.at(T=length) for length in (3, 4)] == [192, 0]


@pytest.mark.parametrize("mask", ["none", "padding"])
def test_attention_that_looks_everywhere_keeps_nothing(mask: str) -> None:
    assert sf.cost(Attention(mask), "B T 24").kv_cache == ()
