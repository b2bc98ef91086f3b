"""A Llama of transformers, and how it is cut, as in `block.py`."""

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from transformers import LlamaConfig, LlamaForCausalLM

from .block import Plan

COLUMNS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
ROWS = ("self_attn.o_proj", "mlp.down_proj")


def build(**sizes: int) -> LlamaForCausalLM:
    """In bfloat16, on the device of the context."""
    config = LlamaConfig(**sizes, max_position_embeddings=8192, attn_implementation="sdpa")
    return LlamaForCausalLM(config).to(torch.bfloat16).eval()


def plan(n_layers: int, *, sequence: bool) -> Plan:
    ends, layer = sequence_parallel() if sequence else tensor_parallel()
    return ends | {f"model.layers.{i}.{name}": style for i in range(n_layers) for name, style in layer.items()}


def tensor_parallel() -> tuple[Plan, Plan]:
    layer: Plan = {name: ColwiseParallel() for name in COLUMNS}
    layer |= {name: RowwiseParallel() for name in ROWS}
    return {"lm_head": ColwiseParallel(output_layouts=Replicate())}, layer


def sequence_parallel() -> tuple[Plan, Plan]:
    """The stream stays a DTensor, as transformers takes the length of the text from it, and not that of a part.

    It is gathered before the last norm, not behind it: what picks the logits there is a slice, which of a DTensor that
    is cut along the text would send all of it once more.
    """
    attention = PrepareModuleInput(
        input_kwarg_layouts={"hidden_states": Shard(1)}, desired_input_kwarg_layouts={"hidden_states": Replicate()}
    )
    network = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
    layer: Plan = {"self_attn": attention, "mlp": network}
    layer |= {name: SequenceParallel() for name in ("input_layernorm", "post_attention_layernorm")}
    layer |= {name: ColwiseParallel() for name in COLUMNS}
    layer |= {name: RowwiseParallel(output_layouts=Shard(1), use_local_output=False) for name in ROWS}
    ends: Plan = {
        "model.embed_tokens": RowwiseParallel(
            input_layouts=Replicate(), output_layouts=Shard(1), use_local_output=False
        ),
        "model.norm": PrepareModuleInput(
            input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),), use_local_output=True
        ),
        "lm_head": ColwiseParallel(output_layouts=Replicate()),
    }
    return ends, layer


def cut(model: LlamaForCausalLM, mesh: DeviceMesh, *, sequence: bool = False, fsdp: bool = True) -> LlamaForCausalLM:
    """In place, over the mesh's dims `dp` and `tp`."""
    layers = model.model.layers
    parallelize_module(model, mesh["tp"], plan(len(layers), sequence=sequence))
    if fsdp:
        for layer in layers:
            fully_shard(layer, mesh=mesh["dp"])
        fully_shard(model, mesh=mesh["dp"])
    return model
