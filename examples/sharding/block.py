"""A small decoder of Transformer blocks, and how it is cut: its layers over `tp`, what each block holds over `dp`.

A block's first products are cut by columns, so that a rank has some heads and some of the hidden features; the second
ones by rows, so that the ranks' results are summed. With `sequence` the norms and the residual stream between them are
cut too, along the text, and the sum becomes a scatter with a gather behind it.
"""

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn import functional as F

Plan = dict[str, ParallelStyle]


class Attention(nn.Module):
    def __init__(self, d_model: int, d_head: int) -> None:
        super().__init__()
        self.d_head = d_head
        self.q, self.k, self.v = (nn.Linear(d_model, d_model, bias=False) for _ in range(3))
        self.out = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = (-1, self.d_head)  # as many as a rank has
        q, k, v = (layer(x).unflatten(-1, heads).transpose(1, 2) for layer in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self, d_model: int, d_head: int, d_ff: int) -> None:
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(d_model), Attention(d_model, d_head)
        self.norm2, self.ffn = nn.LayerNorm(d_model), FeedForward(d_model, d_ff)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.ffn(self.norm2(x))


class Model(nn.Module):
    """Token embedding, blocks, and a head; positions are left out, as nothing of them is cut."""

    def __init__(self, *, vocab: int, d_model: int, d_head: int, d_ff: int, n_layers: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, d_model)
        self.blocks = nn.ModuleList(Block(d_model, d_head, d_ff) for _ in range(n_layers))
        self.norm, self.head = nn.LayerNorm(d_model), nn.Linear(d_model, vocab, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def plan(n_layers: int, *, sequence: bool) -> Plan:
    """What `parallelize_module` is given: a style for each module that is cut."""
    ends, block = sequence_parallel() if sequence else tensor_parallel()
    return ends | {f"blocks.{i}.{name}": style for i in range(n_layers) for name, style in block.items()}


def tensor_parallel() -> tuple[Plan, Plan]:
    block: Plan = {name: ColwiseParallel() for name in ("attn.q", "attn.k", "attn.v", "ffn.up")}
    block |= {name: RowwiseParallel() for name in ("attn.out", "ffn.down")}
    ends: Plan = {
        "embed": RowwiseParallel(input_layouts=Replicate()),
        "head": ColwiseParallel(output_layouts=Replicate()),
    }
    return ends, block


def sequence_parallel() -> tuple[Plan, Plan]:
    whole = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
    block: Plan = {"norm1": SequenceParallel(), "norm2": SequenceParallel(), "attn": whole, "ffn": whole}
    block |= {name: ColwiseParallel() for name in ("attn.q", "attn.k", "attn.v", "ffn.up")}
    block |= {name: RowwiseParallel(output_layouts=Shard(1)) for name in ("attn.out", "ffn.down")}
    ends: Plan = {
        "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    }
    return ends, block


def cut(model: Model, mesh: DeviceMesh, *, tp: bool = True, sequence: bool = False, fsdp: bool = True) -> Model:
    """In place, over the mesh's dims `dp` and `tp`."""
    if tp:
        parallelize_module(model, mesh["tp"], plan(len(model.blocks), sequence=sequence))
    if fsdp:
        for block in model.blocks:
            fully_shard(block, mesh=mesh["dp"])
        fully_shard(model, mesh=mesh["dp"])
    return model
