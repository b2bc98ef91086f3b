"""Several processes that train one model: torchrun starts them, gloo carries their gradients.

With DDP each holds the whole model, with FSDP2 (`fully_shard`) a part of each parameter, gathered layer by layer.
Either way a step averages gradients over the ranks, so that its result is that of one process but for the order of
sums.
"""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

Parallel = Literal["ddp", "fsdp"]


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among `world` ones; `parallel` is None where it is alone."""

    rank: int
    world: int
    parallel: Parallel | None

    @property
    def first(self) -> bool:
        """Whether this process speaks and writes for all."""
        return self.rank == 0

    def __str__(self) -> str:
        return "one process" if self.parallel is None else f"{self.world} ranks ({self.parallel})"

    def spread(self, model: nn.Module, blocks: tuple[type[nn.Module], ...]) -> nn.Module:
        """The model, in its parallel form: parameters are sharded in place, or a wrapper averages gradients."""
        if self.parallel == "ddp":
            return DistributedDataParallel(model)
        if self.parallel == "fsdp":
            for block in [each for each in model.modules() if isinstance(each, blocks)]:
                fully_shard(block)
            fully_shard(model)
        return model

    def total(self, x: Float[Tensor, ""]) -> float:
        """The sum of a number over the ranks."""
        x = x.detach().clone()
        if self.parallel is not None:
            dist.all_reduce(x)
        return x.item()

    def generator_states(self) -> list[UInt8[Tensor, " _"]]:
        """The state of torch's generator on every rank, known to all of them."""
        mine = torch.get_rng_state()
        states = [torch.empty_like(mine) for _ in range(self.world)]
        if self.parallel is None:
            return [mine]
        dist.all_gather(states, mine)
        return states


@contextmanager
def joined(parallel: Parallel | None) -> Iterator[Ranks]:
    """This process among those that torchrun started with it (DDP where nothing is said), or alone."""
    if "RANK" not in os.environ:  # torchrun sets it
        yield Ranks(0, 1, None)
        return
    dist.init_process_group("gloo")
    try:
        with warnings.catch_warnings():
            # logits are a view of a product, which matters to those alone who change them in place
            warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor", UserWarning)
            yield Ranks(dist.get_rank(), dist.get_world_size(), parallel or "ddp")
    finally:
        dist.destroy_process_group()


WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)
"""One file serves every number of ranks: whole tensors, under the names of the model without its wrapper."""


def whole_model(model: nn.Module) -> dict[str, Any]:
    """All weights, on the first rank; the others get nothing, but have to ask as well."""
    return get_model_state_dict(model, options=WHOLE)


def whole_optimiser(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Any]:
    """The optimiser's state by the names of the weights, likewise."""
    return get_optimizer_state_dict(model, optimiser, options=WHOLE)


def spread_state(
    model: nn.Module, optimiser: torch.optim.Optimizer, weights: dict[str, Any], moments: dict[str, Any]
) -> None:
    """Put whole states back, of which each rank keeps its part.

    A weight that two modules share goes in under its first name alone: torch would not shard what stands under the
    other one (`set_model_state_dict`, torch 2.14).
    """
    plain = model.module if isinstance(model, DistributedDataParallel) else model
    once = {name: weights[name] for name, _ in (*plain.named_parameters(), *plain.named_buffers())}
    set_model_state_dict(model, once, options=StateDictOptions(full_state_dict=True, strict=False))
    set_optimizer_state_dict(model, optimiser, moments, options=StateDictOptions(full_state_dict=True))


def clipped(model: nn.Module, limit: float) -> float:
    """Cut the gradient to a norm; gives the norm that it had, over all shards."""
    norm = nn.utils.clip_grad_norm_(model.parameters(), limit)
    return (norm.full_tensor() if isinstance(norm, DTensor) else norm).item()
