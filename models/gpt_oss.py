"""gpt-oss: experts with biases and a clamped gate, attention with sinks, and a window in every other block (notes, 5).

>>> import torch
>>> toy()(torch.zeros(2, 5, dtype=torch.int64)).shape
torch.Size([2, 5, 97])

A sink is a score per head that no key has: a head that finds nothing to read gives its weight to it.
"""

from dataclasses import dataclass, replace
from itertools import repeat

import torch
import torch.nn as nn
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .cache import Cache
from .embeddings import TokenEmbedding
from .experts import MixtureOfExperts, packed
from .grouped import GroupedQueryAttention
from .llama import DecoderBlock
from .norms import RMSNorm
from .rope import Rotary, Scaling, YarnScaling, token_positions, yarn_magnitude
from .routing import Router


@dataclass(frozen=True, slots=True)
class GptOssConfig:
    """The sizes of a model."""

    vocab: int  # token ids run from 0 to vocab - 1
    d_model: int  # width of the residual stream
    n_heads: int  # query heads per block
    n_kv_heads: int  # key and value heads per block; divides n_heads
    d_head: int  # width of a head, even
    d_expert: int  # hidden width of an expert
    n_experts: int  # experts per block
    top_k: int  # of them for each token
    windows: tuple[int | None, ...]  # of each block: positions that a query reads; None: all before it
    sharpness: float = 1.702  # of the gate's sigmoid: with this one it is nearly a GELU
    limit: float = 7.0  # where gate and input are clamped
    biased: bool = True  # whether attention's projections have biases; the experts' always do
    norm_eps: float = 1e-5  # what RMSNorm adds to the mean square
    base: float = 150000.0  # of the rotary frequencies
    scaling: Scaling | None = None  # of the same, for longer texts
    tied: bool = False  # the vocabulary head is the embedding table


GPT_OSS_20B = GptOssConfig(
    vocab=201088,
    d_model=2880,
    n_heads=64,
    n_kv_heads=8,
    d_head=64,
    d_expert=2880,
    n_experts=32,
    top_k=4,
    windows=(128, None) * 12,
    scaling=YarnScaling(factor=32.0, original_max_len=4096, truncate=False, magnitude=yarn_magnitude(32.0)),
)
GPT_OSS_120B = replace(GPT_OSS_20B, n_experts=128, windows=(128, None) * 18)
TOY = GptOssConfig(
    vocab=97, d_model=42, n_heads=6, n_kv_heads=3, d_head=10, d_expert=53, n_experts=5, top_k=2, windows=(4, None)
)


class ClampedExperts(nn.Module):
    """`(up(x) + 1) * gate(x) * sigmoid(sharpness * gate(x))`, clamped, then `down`; every projection has a bias."""

    def __init__(self, *, n_experts: int, d_model: int, d_expert: int, sharpness: float, limit: float) -> None:
        super().__init__()
        self.n_experts = n_experts
        self.d_model = d_model
        self.d_expert = d_expert
        self.sharpness = sharpness
        self.limit = limit
        self.gate = packed(n_experts, d_model, d_expert)
        self.up = packed(n_experts, d_model, d_expert)
        self.down = packed(n_experts, d_expert, d_model)
        self.gate_bias = nn.Parameter(torch.zeros(n_experts, d_expert))
        self.up_bias = nn.Parameter(torch.zeros(n_experts, d_expert))
        self.down_bias = nn.Parameter(torch.zeros(n_experts, d_model))

    def forward(self, x: Float[Tensor, "n_routed d_model"], expert: int) -> Float[Tensor, "n_routed d_model"]:
        gate = self.gates(x, expert).clamp(max=self.limit)
        up = self.hidden(x, expert).clamp(-self.limit, self.limit)
        return self.output((up + 1) * gate * torch.sigmoid(self.sharpness * gate), expert)

    def gates(self, x: Float[Tensor, "n_routed d_model"], expert: int) -> Float[Tensor, "n_routed d_expert"]:
        return x @ self.inward(self.gate, expert) + self.gate_bias[expert]

    def hidden(self, x: Float[Tensor, "n_routed d_model"], expert: int) -> Float[Tensor, "n_routed d_expert"]:
        return x @ self.inward(self.up, expert) + self.up_bias[expert]

    def output(self, h: Float[Tensor, "n_routed d_expert"], expert: int) -> Float[Tensor, "n_routed d_model"]:
        return h @ self.outward(expert) + self.down_bias[expert]

    def inward(self, matrices: nn.Parameter, expert: int) -> Float[Tensor, "d_model d_expert"]:
        return matrices[expert]

    def outward(self, expert: int) -> Float[Tensor, "d_expert d_model"]:
        return self.down[expert]


class GptOss(nn.Module):
    """Llama's stack, with sinks in every attention and experts in every block.

    Blocks differ in their windows, so a cache keeps everything: `Cache(n_layers)`.
    """

    def __init__(self, config: GptOssConfig) -> None:
        super().__init__()
        self.config = config
        self.vocab = config.vocab
        self.tokens = TokenEmbedding(config.vocab, config.d_model)
        self.rotary = Rotary(config.d_head, base=config.base, scaling=config.scaling)
        self.blocks = nn.ModuleList(self.block(window) for window in config.windows)
        self.norm = RMSNorm(config.d_model, eps=config.norm_eps)
        self.head = nn.Linear(config.d_model, config.vocab, bias=False)
        if config.tied:
            self.head.weight = self.tokens.table.weight

    def block(self, window: int | None) -> DecoderBlock:
        config = self.config
        attn = GroupedQueryAttention(
            d_model=config.d_model,
            n_heads=config.n_heads,
            n_kv_heads=config.n_kv_heads,
            d_head=config.d_head,
            window=window,
            bias=config.biased,
            out_bias=config.biased,
            sinks=True,
        )
        router = Router(d_model=config.d_model, n_experts=config.n_experts, top_k=config.top_k, bias=True)
        experts = ClampedExperts(
            n_experts=config.n_experts,
            d_model=config.d_model,
            d_expert=config.d_expert,
            sharpness=config.sharpness,
            limit=config.limit,
        )
        ffn = MixtureOfExperts(router, experts)
        return DecoderBlock(attn, ffn, d_model=config.d_model, norm_eps=config.norm_eps)

    def forward(
        self, ids: Int[Tensor, "B T"], *, valid: Bool[Tensor, "B _"] | None = None, cache: Cache | None = None
    ) -> Float[Tensor, "B T vocab"]:
        """`valid` is False at padding, for every position read so far; `cache` holds those before `ids`."""
        offset = 0 if cache is None else cache.length
        rotation = self.rotary(token_positions(ids, valid=valid, offset=offset))
        x = self.tokens(ids)
        for block, layer in zip(self.blocks, repeat(None) if cache is None else cache.layers, strict=False):
            x = block(x, rotation, valid=valid, cache=layer)
        return self.head(self.norm(x))


def toy(**changes: object) -> GptOss:
    """A tiny instance; a keyword changes one field of its config."""
    return GptOss(replace(TOY, **changes))
