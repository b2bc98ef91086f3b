"""What each rank holds, and what the ranks send each other: tensor parallelism and FSDP2, on one machine without GPUs.

    pip install -e ".[zoo]" && python examples/sharded.py

A Llama of transformers is built on the meta device, cut by torch's own `parallelize_module` and `fully_shard` for
eight ranks, and traced on one process that stands for rank 0 of them (`init_process_group("fake")`). Printed are the
parameters and bytes of a rank, the shapes of one decoder layer (the whole tensor, its placement, one rank's part), and
the collectives with their bytes, all as formulas in B and T.

    python examples/sharded.py --model llama-3-8b --tp 4 --at B=1,T=8192
    python examples/sharded.py --model toy --tp 2
    python examples/sharded.py --model toy --tp 8 --no-fsdp
"""

import argparse
import sys
from collections.abc import Iterator
from math import prod

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import LlamaConfig, LlamaForCausalLM

import shapeflow as sf
from shapeflow.trace.sharding import Collective

SIZES = {
    "toy": {
        "vocab_size": 1024,
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
    },
    "llama-3-8b": {
        "vocab_size": 128256,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
}


def main() -> int:
    options = parse()
    wrong = what_does_not_divide(options)
    if wrong:
        print(wrong, file=sys.stderr)
        return 2
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=options.ranks)
    try:
        mesh = init_device_mesh("cpu", (options.ranks // options.tp, options.tp), mesh_dim_names=("dp", "tp"))
        model = cut(build(options.model), mesh, fsdp=options.fsdp)
        trace = sf.trace(model, input_ids="B T:int64", use_cache=False)
        show(trace, options)
    finally:
        dist.destroy_process_group()
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What each rank holds of a model, and what the ranks send each other.")
    parser.add_argument("--model", choices=SIZES, default="llama-3-8b")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--tp", type=int, default=4, help="ranks that share a layer; the others share the batch")
    parser.add_argument("--fsdp", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--at", default="B=1,T=8192", help="sizes for the numbers beside the formulas")
    options = parser.parse_args()
    try:
        options.sizes = {name: int(size) for name, size in (each.split("=") for each in options.at.split(","))}
    except ValueError:
        parser.error(f"--at {options.at}: sizes are written as B=1,T=8192")
    if options.sizes.keys() != {"B", "T"}:
        parser.error(f"--at {options.at}: the sizes are B and T")
    return options


def what_does_not_divide(options: argparse.Namespace) -> str:
    """Why the plan does not fit the model; empty when it does."""
    if options.tp < 1 or options.ranks % options.tp:
        return f"--tp {options.tp} does not divide --ranks {options.ranks}"
    for name in ("num_attention_heads", "num_key_value_heads", "intermediate_size"):
        if SIZES[options.model][name] % options.tp:
            return f"--tp {options.tp} does not divide {name} = {SIZES[options.model][name]} of {options.model}"
    return ""


def build(name: str) -> LlamaForCausalLM:
    """The model on the meta device, in bfloat16."""
    config = LlamaConfig(**SIZES[name], max_position_embeddings=8192, attn_implementation="sdpa")
    with torch.device("meta"):
        return LlamaForCausalLM(config).to(torch.bfloat16).eval()


def cut(model: LlamaForCausalLM, mesh: DeviceMesh, *, fsdp: bool) -> nn.Module:
    """Each layer by columns, then by rows, over `tp`; each block's parameters over `dp`."""
    columns = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
    styles = {name: ColwiseParallel() for name in columns}
    styles |= {name: RowwiseParallel() for name in ("self_attn.o_proj", "mlp.down_proj")}
    layers = range(len(model.model.layers))
    plan = {f"model.layers.{i}.{name}": style for i in layers for name, style in styles.items()}
    parallelize_module(model, mesh["tp"], plan | {"lm_head": ColwiseParallel(output_layouts=Replicate())})
    if fsdp:
        for block in model.model.layers:
            fully_shard(block, mesh=mesh["dp"])
        fully_shard(model, mesh=mesh["dp"])
    return model


def show(trace: sf.Trace, options: argparse.Namespace) -> None:
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    whole = sum(prod(shape.at()) for shape in trace.parameters.values())
    held = sum(prod(shape.local.at()) for shape in trace.parameters.values())
    bytes_held = sum(shape.local.bytes.at() for shape in trace.parameters.values())
    console.print(f"{options.model} on {options.ranks} ranks: {options.ranks // options.tp} (dp) x {options.tp} (tp)")
    console.print(f"parameters: {whole:,}; on one rank: {held:,} in {bytes_held:,} bytes\n")
    console.print(layer_table(trace))
    console.print(collective_table(trace, options.sizes))


def layer_table(trace: sf.Trace) -> Table:
    """The operators of the first decoder layer at which a tensor is spread."""
    table = Table("module", "operator", "whole", "placement", "one rank", title="the first decoder layer", box=None)
    for node in trace.nodes:
        shape = node.outputs[0] if node.outputs else None
        if shape is not None and shape.sharding is not None and node.module.startswith("model.layers.0."):
            module = node.module.removeprefix("model.layers.0.")
            table.add_row(module, node.operator, str(shape), str(shape.sharding), str(shape.local))
    return table


def collective_table(trace: sf.Trace, sizes: dict[str, int]) -> Table:
    """The collectives of a forward, equal ones together."""
    at = ", ".join(f"{name}={size}" for name, size in sizes.items())
    table = Table("times", "collective", "ranks", "each sends", "and has then", "bytes", f"at {at}", box=None)
    table.title = "collectives of a forward"
    for count, each in counted(trace):
        sent, received = str(each.sent), str(each.received)
        table.add_row(
            str(count), each.operator, str(each.ranks), sent, received, str(each.bytes), f"{each.bytes.at(**sizes):,}"
        )
    total = sum(each.bytes.at(**sizes) for each in trace.collectives)
    table.add_row("", "all of them", "", "", "", "", f"{total:,}", style="bold")
    return table


def counted(trace: sf.Trace) -> Iterator[tuple[int, Collective]]:
    groups: dict[tuple, list] = {}
    for each in trace.collectives:
        groups.setdefault((each.operator, each.ranks, str(each.sent), str(each.received)), []).append(each)
    yield from ((len(group), group[0]) for group in groups.values())


if __name__ == "__main__":
    sys.exit(main())
