"""What torch itself says on real tensors: its counter, what autograd keeps, which storages live."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from shapeflow.torch_private import tree_leaves
from shapeflow.trace.structure import tensors_in


@contextmanager
def repeatable() -> Iterator[None]:
    """Random numbers start anew, and afterwards go on as if nothing had been."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def counted(run: Callable[[], Any]) -> tuple[int, int]:
    """Operations of the forward, and of a backward from every output, with attention as plain products.

    torch's counter has no formula for the attention kernel of the CPU.
    """
    with sdpa_kernel(SDPBackend.MATH):
        with FlopCounterMode(display=False) as forward:
            result = run()
        ends = [each for _, each in tensors_in(result) if each.requires_grad]
        with FlopCounterMode(display=False) as backward:
            torch.stack([each.float().sum() for each in ends]).sum().backward()
    return forward.get_total_flops(), backward.get_total_flops()


def kept(model: nn.Module, run: Callable[[], Any]) -> int:
    """Bytes that autograd keeps, each storage once, without parameters and buffers."""
    own = {each.untyped_storage().data_ptr() for each in [*model.parameters(), *model.buffers()]}
    found: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = run()
    assert result is not None  # alive until here: a storage that is freed could be counted twice, or not at all
    return sum(found.values())


class Living(TorchDispatchMode):
    """Bytes of the storages that live, and the most that there were."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.resident = {each.untyped_storage().data_ptr() for each in [*model.parameters(), *model.buffers()]}
        self.sizes: dict[int, int] = {}
        self.most = 0

    def see(self, value: Any) -> None:
        for tensor in tree_leaves(value):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().data_ptr() not in self.resident:
                storage = tensor.untyped_storage()
                if storage._cdata not in self.sizes:
                    self.sizes[storage._cdata] = storage.nbytes()
                    weakref.finalize(storage, self.sizes.pop, storage._cdata, None)
        self.most = max(self.most, sum(self.sizes.values()))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.see(result)
        return result


def peak(model: nn.Module, *inputs: Any) -> int:
    """The most bytes that a forward without autograd holds at once."""
    living = Living(model)
    with torch.no_grad(), living:
        living.see(inputs)
        result = model(*inputs)
    assert result is not None
    return living.most
