"""What each rank holds, and what the ranks send each other: tensor parallelism and FSDP2, on one machine without GPUs.

    pip install -e ".[zoo]" && python examples/sharded.py

A model is built on the meta device, cut by torch's own `parallelize_module` and `fully_shard` for eight ranks, and
traced on one process that stands for rank 0 of them (`init_process_group("fake")`). Printed are the parameters and
bytes of a rank, the shapes of one layer (the whole tensor, its placement, one rank's part), and the collectives with
their bytes, all as formulas in B and T. `block` is a plain Transformer block between an embedding and a head, `toy` and
`llama-3-8b` are Llamas of transformers.

    python examples/sharded.py --model llama-3-8b --tp 4 --at B=1,T=8192
    python examples/sharded.py --model block --sequence                     # norms and stream cut along the text
    python examples/sharded.py --model block --draw block.svg               # with placements on its edges
    python examples/sharded.py --model toy --tp 8 --no-fsdp
"""

import argparse
import sys
from math import prod
from pathlib import Path

import torch
import torch.distributed as dist
from rich.console import Console
from sharding import block
from sharding.tables import collective_table, operator_table, parameter_table
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

import shapeflow as sf

TOY = {
    "vocab_size": 1024,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
}
LLAMA_3_8B = {
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}
SIZES = {
    "block": {"vocab": 1024, "d_model": 256, "d_head": 16, "d_ff": 1024, "n_layers": 1},
    "toy": TOY,
    "llama-3-8b": LLAMA_3_8B,
}
PICTURES = (".svg", ".png", ".pdf", ".dot", ".mmd", ".html")


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    if wrong := what_does_not_fit(options):
        print(f"sharded: {wrong}", file=sys.stderr)
        return 2
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=options.ranks)
    try:
        mesh = init_device_mesh("cpu", (options.ranks // options.tp, options.tp), mesh_dim_names=("dp", "tp"))
        model = cut(options, mesh)
        show(model, traced(model), options)
    finally:
        dist.destroy_process_group()
    return 0


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:
        self.exit(2, f"sharded: {message}\n")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = Parser(description="What each rank holds of a model, and what the ranks send each other.")
    parser.add_argument("--model", choices=SIZES, default="llama-3-8b")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--tp", type=int, default=4, help="ranks that share a layer; the others share the batch")
    parser.add_argument("--sequence", action="store_true", help="cut norms and residual stream along the text, too")
    parser.add_argument("--fsdp", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--at", default="B=1,T=8192", help="sizes for the numbers beside the formulas")
    parser.add_argument("--draw", type=Path, metavar="FILE", help="draw it, to a .svg, .png, .pdf, .dot or .html")
    options = parser.parse_args(arguments)
    try:
        options.sizes = {name: int(size) for name, size in (each.split("=") for each in options.at.split(","))}
    except ValueError:
        parser.error(f"--at {options.at}: sizes are written as B=1,T=8192")
    return options


def what_does_not_fit(options: argparse.Namespace) -> str:
    """Why plan, model, sizes and file do not go together; empty when they do."""
    at, tp, file = f"--at {options.at}", options.tp, options.draw
    if tp < 1 or options.ranks < 1 or options.ranks % tp:
        return f"--tp {tp} does not divide --ranks {options.ranks}"
    if options.sizes.keys() != {"B", "T"}:
        return f"{at}: the sizes are B and T"
    if min(options.sizes.values()) < 1:
        return f"{at}: sizes are positive"
    if options.sequence and options.sizes["T"] % tp:
        return f"{at}: --tp {tp} does not divide T, which --sequence cuts"
    if file and file.suffix not in PICTURES:
        return f"--draw {file}: a picture is a {', '.join(PICTURES[:-1])} or {PICTURES[-1]}"
    if file and not file.absolute().parent.is_dir():
        return f"--draw {file}: there is no folder {file.parent}"
    for name, size in divided(options.model).items():
        if size % tp:
            return f"--tp {tp} does not divide {name} = {size} of {options.model}"
    return ""


def divided(model: str) -> dict[str, int]:
    """What `tp` cuts, by name."""
    sizes = SIZES[model]
    if model == "block":
        return {"heads": sizes["d_model"] // sizes["d_head"], "d_ff": sizes["d_ff"], "vocab": sizes["vocab"]}
    names = ("num_attention_heads", "num_key_value_heads", "intermediate_size", "vocab_size")
    return {name: sizes[name] for name in names}


def cut(options: argparse.Namespace, mesh: DeviceMesh) -> nn.Module:
    """The model on the meta device, in parts of one rank."""
    how = {"sequence": options.sequence, "fsdp": options.fsdp}
    with torch.device("meta"):
        if options.model == "block":
            return block.cut(block.Model(**SIZES["block"]).eval(), mesh, **how)
        from sharding import llama  # transformers is imported where it is needed

        return llama.cut(llama.build(**SIZES[options.model]), mesh, **how)


def traced(model: nn.Module) -> sf.Trace:
    if isinstance(model, block.Model):
        return sf.trace(model, ids="B T:int64")
    return sf.trace(model, input_ids="B T:int64", use_cache=False)


def show(model: nn.Module, trace: sf.Trace, options: argparse.Namespace) -> None:
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    layer = "blocks.0" if options.model == "block" else "model.layers.0"
    shapes = [trace.parameters[path] for path, _ in model.named_parameters()]  # without buffers, which a trace has too
    whole, held = sum(prod(shape.at()) for shape in shapes), sum(prod(shape.local.at()) for shape in shapes)
    bytes_held = sum(shape.local.bytes.at() for shape in shapes)
    console.print(f"{options.model} on {options.ranks} ranks: {options.ranks // options.tp} (dp) x {options.tp} (tp)")
    console.print(f"parameters: {whole:,}; on one rank: {held:,} in {bytes_held:,} bytes\n")
    for table in (parameter_table(trace, layer), operator_table(trace, layer), collective_table(trace, options.sizes)):
        console.print(table)
    if options.draw:
        trace.save(options.draw, depth=3 if options.model == "block" else None)
        console.print(f"drawn: {options.draw}")


if __name__ == "__main__":
    sys.exit(main())
