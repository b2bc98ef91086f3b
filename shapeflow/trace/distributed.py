"""DTensors while a trace runs: torch's own code spreads our fakes, on one process that stands for rank 0.

`init_process_group("fake", ...)` makes such a process. Placements and collectives are those of a real run. What
`fully_shard` gathers before a module runs is counted from its groups of parameters: no storage is there to gather.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from shapeflow.dims.expr import Expr
from shapeflow.dims.node import hint_of
from shapeflow.torch_private import GatheredGroup, fsdp_groups, is_dtensor, ranks_of, spread, without_modes
from shapeflow.trace.result import Shape
from shapeflow.trace.sharding import Collective, Sharding
from shapeflow.trace.source import place

if TYPE_CHECKING:
    from shapeflow.trace.ledger import Ledger
    from shapeflow.trace.recorder import Recorder

RECORDED = ("from_local", "to_local", "redistribute", "full_tensor")
"""Methods of DTensor that are operators of the graph; `from_local` is called on the class."""


def from_local(*args: Any, **kwargs: Any) -> Any:
    """`DTensor.from_local`, as a function that a graph can name."""
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(*args, **kwargs)


class Exchange:
    """What ranks send each other in one run: `collectives` in the order in which they start."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.collectives: list[Collective] = []
        self._inside = False

    @contextmanager
    def seen(self, modules: Sequence[nn.Module]) -> Iterator[None]:
        """Record what DTensor's methods do, and what `fully_shard` gathers, in a model whose parameters are spread."""
        from torch.distributed.tensor import DTensor

        self.recorder.is_spread = True
        kind: Any = DTensor
        originals = {name: vars(kind)[name] for name in RECORDED}
        for name, original in originals.items():
            setattr(kind, name, self._recorded(name, original))
        self.recorder.mode.on_collective = self._note
        for module in modules:
            self._watch_gathering(module)
        try:
            yield
        finally:
            self.recorder.mode.on_collective = None
            for name, original in originals.items():
                setattr(kind, name, original)

    def _recorded(self, name: str, original: Any) -> Any:
        is_static = isinstance(original, staticmethod)
        function = original.__func__ if is_static else original

        def method(*args: Any, **kwargs: Any) -> Any:
            if self._inside:  # `full_tensor` redistributes
                return function(*args, **kwargs)
            self._inside = True
            try:
                return self.recorder.spread(from_local if is_static else function, args, kwargs, place(2))
            finally:
                self._inside = False

        return staticmethod(method) if is_static else method

    def _note(self, function: Any, args: tuple[Any, ...], result: Any) -> None:
        """A collective that the mode sees; waiting for one is none."""
        name = function.__name__.partition(".")[0]
        if name == "wait_tensor":
            return
        tensors = [tensor for each in (args[0], result) for tensor in (each if isinstance(each, list) else [each])]
        sent, received = (self.recorder.signatures.of(tensor).shape for tensor in (tensors[0], tensors[-1]))
        self.collectives.append(Collective(name, self.recorder.modules.scopes, sent, received, ranks_of(args)))

    # fully_shard

    def _watch_gathering(self, module: nn.Module) -> None:
        """In place of `fully_shard`'s own hooks: what its groups of parameters gather is noted when the module runs."""
        groups = fsdp_groups(module)
        for hooks in (vars(module)["_forward_pre_hooks"], vars(module)["_forward_hooks"]):
            for key in [key for key, hook in hooks.items() if _is_of_fsdp(hook)]:
                del hooks[key]
                vars(module)["_forward_pre_hooks_with_kwargs"].pop(key, None)
                vars(module)["_forward_hooks_with_kwargs"].pop(key, None)
        if groups:
            module.register_forward_pre_hook(lambda *_: self._gather(groups))

    def _gather(self, groups: Sequence[Any]) -> None:
        """What each group of parameters gathers: flat, with what pads it to equal parts."""
        for group in groups:
            dtype = str(group.dtype).removeprefix("torch.")
            sent, received = (Shape((Expr.const(group.numel * ranks),), dtype) for ranks in (1, group.ranks))
            scopes = self.recorder.modules.scopes
            self.collectives.append(Collective("all_gather_into_tensor", scopes, sent, received, group.ranks))


def _is_of_fsdp(hook: Any) -> bool:
    inner = getattr(hook, "__self__", None)
    return type(inner).__module__.startswith("torch.distributed.fsdp") if inner is not None else False


def sharding_of(tensor: torch.Tensor) -> Sharding | None:
    """How a tensor is spread; None for one that each rank has for itself."""
    if not is_dtensor(tensor):
        return None
    spread: Any = tensor
    mesh, placements = spread.device_mesh, spread.placements
    names = mesh.mesh_dim_names or tuple(f"dim_{axis}" for axis in range(mesh.ndim))
    sizes = tuple(mesh.size(axis) for axis in range(mesh.ndim))
    left, splits = [hint_of(size) for size in tensor.shape], []
    for placement, parts in zip(placements, sizes, strict=True):
        if hasattr(placement, "dim"):
            splits.append((placement.dim, parts, left[placement.dim] % parts == 0))
            left[placement.dim] = -(-left[placement.dim] // parts)
    return Sharding(tuple(zip(names, sizes, strict=True)), tuple(map(_text, placements)), tuple(splits))


def _text(placement: Any) -> str:
    """`S(0)`, `R` or `P(sum)`, as torch prints them in short."""
    if hasattr(placement, "dim"):  # a shard; of torch's two kinds the strided one is no `Shard`
        return f"S({placement.dim})"
    return "R" if placement.is_replicate() else f"P({getattr(placement, 'reduce_op', 'sum')})"


def ranks_of_model(root: nn.Module) -> int:
    """The ranks that its parameters are spread over, 1 where they are not."""
    spread: list[Any] = [each for each in root.parameters() if is_dtensor(each)]
    return max((each.device_mesh.size() for each in spread), default=1)


def gathered_by(modules: Sequence[nn.Module]) -> dict[int, tuple[GatheredGroup, torch.Tensor]]:
    """Of each parameter that `fully_shard` gathers before a module runs, by id: its group, and itself when spread."""
    groups = [group for module in modules for group in fsdp_groups(module)]
    return {id(held): (group, spread) for group in groups for held, spread in group.parameters}


def fake_of_gathered(ledger: Ledger, tensor: Any, group: GatheredGroup) -> torch.Tensor:
    """A fake of a parameter that its group has gathered: the whole, or what tensor parallelism leaves to this rank."""
    mesh, names = tensor.device_mesh, tensor.device_mesh.mesh_dim_names or ()
    left = tuple(name for name in names if name not in group.mesh_dims)
    sizes = list(tensor.shape)
    placements = [tensor.placements[names.index(name)] for name in left]
    for name, placement in zip(left, placements, strict=True):
        if placement.is_shard():
            ranks = mesh[name].size()
            sizes[placement.dim] = _chunk(sizes[placement.dim], ranks, mesh[name].get_local_rank())
    with without_modes():
        local = torch.empty(sizes, dtype=group.dtype, device="meta", requires_grad=tensor.requires_grad)
    if isinstance(tensor, nn.Parameter):
        local = nn.Parameter(local, requires_grad=tensor.requires_grad)
    fake = ledger.fake(local)
    return fake if not left else spread(fake, mesh[left], placements, tensor.shape)


def _chunk(size: int, ranks: int, rank: int) -> int:
    """The part of one rank, as `torch.chunk` cuts."""
    part = -(-size // ranks)
    return max(min(part, size - rank * part), 0)
