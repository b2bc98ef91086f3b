"""The block of `examples/sharded.py`, cut in every way: what its trace tells, and what a run of it holds and sends.

python -m tests.trace.sharded_model fake            # one process that stands for rank 0 of 8: what the trace tells
python -m tests.trace.sharded_model gloo 29511      # eight processes: what rank 0 holds
"""

import json
import sys
from collections import Counter

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.debug import CommDebugMode

from examples.sharding.block import Model, cut

RANKS = 8
HOWS = ("sequence", "fsdp", "both")
B, T = 2, 16


def build(how: str) -> nn.Module:
    """`how` is one of `tp`, `sequence`, `fsdp`, `both`."""
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
    model = Model(vocab=96, d_model=32, d_head=4, d_ff=80, n_layers=2).eval()
    return cut(model, mesh, tp=how != "fsdp", sequence=how == "sequence", fsdp=how in ("fsdp", "both"))


def held(model: nn.Module) -> dict[str, list[int]]:
    """What this rank has of each parameter."""
    locals_ = {name: p.to_local() if isinstance(p, DTensor) else p for name, p in model.named_parameters()}
    return {name: list(local.shape) for name, local in locals_.items()}


def saved(trace) -> bool:
    """Whether what is read back from a file has the same shapes, placements too."""
    import tempfile

    import shapeflow as sf

    with tempfile.TemporaryDirectory() as folder:
        trace.save(f"{folder}/trace.json")
        graph = sf.load(f"{folder}/trace.json")
    shapes = [data["edge"].shape for _, _, data in trace.to_networkx().edges(data=True)]
    return shapes == [data["edge"].shape for _, _, data in graph.edges(data=True)]


def facts(shape) -> list[str]:
    return [str(shape), str(shape.sharding), str(shape.local)]


def of_trace(how: str) -> dict:
    import shapeflow as sf

    trace = sf.trace(build(how), "B T:int64")
    outputs, edges = {}, {}
    for node in trace.nodes:
        if node.kind == "operator" and node.module:
            outputs[node.module] = list(node.outputs[-1].local.at(B=B, T=T))
            if node.outputs[-1].sharding is not None:
                edges[node.module] = facts(node.outputs[-1])
    return {
        "edges": edges,
        "stored": {name: facts(shape) for name, shape in trace.parameters.items()},
        "parameters": {name: list(shape.local.at(B=B, T=T)) for name, shape in trace.parameters.items()},
        "outputs": outputs,
        "collectives": Counter(each.operator for each in trace.collectives),
        "bytes": sum(each.bytes.at(B=B, T=T) for each in trace.collectives),
        "gathered": sum(each.bytes.at() for each in trace.collectives if not each.received.dims[0].symbols),
        "sizes": sorted({f"{each.operator} {each.bytes}" for each in trace.collectives}),
        "domain": str(trace.domain),
        "name": trace.name,
        "labels": [line for line in trace.to_dot(unfold=True).splitlines() if "S(2) on tp" in line],
        "saved": saved(trace),
    }


GATHERS = {"_allgather_base_": "all_gather_into_tensor"}


def of_run(how: str) -> dict:
    model = build(how)
    parameters, outputs = held(model), {}

    def note(path):
        def hook(module, args, output):
            outputs[path] = list((output.to_local() if isinstance(output, DTensor) else output).shape)

        return hook

    for path, module in model.named_modules():  # a module that has some below it may hand on what these made
        if not list(module.children()):
            module.register_forward_hook(note(path))
    with CommDebugMode() as seen, torch.no_grad():
        model(torch.randint(0, 96, (B, T)))
    counts: Counter[str] = Counter()
    for op, count in seen.get_comm_counts().items():
        name = str(op).partition(".")[2].strip("')>")
        counts[GATHERS.get(name, name)] += count
    return {"parameters": parameters, "outputs": outputs, "collectives": counts}


def _rank(rank: int, port: str, result) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
    found = {how: of_run(how) for how in HOWS}
    dist.barrier()
    if rank == 0:
        result.put(found)
    dist.destroy_process_group()


def main(kind: str, port: str = "0") -> None:
    if kind == "fake":
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
        print(json.dumps({how: of_trace(how) for how in HOWS}))
        return
    how = "fork"  # torch is imported once for the eight, and no thread has been started yet
    result = mp.get_context(how).SimpleQueue()
    mp.start_processes(_rank, (port, result), nprocs=RANKS, start_method=how)
    print(json.dumps(result.get()))


if __name__ == "__main__":
    main(*sys.argv[1:])
