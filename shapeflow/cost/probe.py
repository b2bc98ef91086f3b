"""What one operator costs: it is run once more on fakes of its own, under a mode that counts what reaches ATen.

Equal calls are probed once, so a deep model costs what its distinct layers cost. With `gradient` the operator runs
under autograd: what it keeps for the backward is seen, and the backward is counted too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from shapeflow.cost.calls import Call, expr_of, root_of
from shapeflow.cost.rules import FREE, RULES, is_free
from shapeflow.dims.expr import Expr
from shapeflow.torch_private import (
    FakeTensor,
    TorchDispatchMode,
    kernels_of_the_device,
    running,
    storage_of,
    tree_leaves,
)
from shapeflow.trace.structure import map_tensors

if TYPE_CHECKING:
    from shapeflow.trace.attempt import Attempt

NONE = Expr.const(0)
BY_DEVICE = frozenset({"dropout", "scaled_dot_product_attention"})
"""Operators whose mask of dropout is as large as the numbers on the CPU, and one byte elsewhere."""


@dataclass(frozen=True, slots=True)
class Work:
    """Operations of a call, and the names of operators in it that no rule knows."""

    flops: Expr = NONE
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Gradient:
    """What autograd makes of a call.

    `keeps` are numbers of the tensors that it read, `keeps_made` of those that it made; `own` counts bytes of others
    that it keeps, such as the statistics of a norm. `differentiable` says which outputs have gradients.
    """

    backward: Work
    keeps: tuple[int, ...]
    keeps_made: tuple[int, ...]
    own: Expr
    differentiable: tuple[bool, ...]


class Counter(TorchDispatchMode):
    """Adds up what the rules say of the operators that run inside."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = NONE
        self.unknown: dict[str, None] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        rule = RULES.get(func._overloadpacket)
        if rule is None and not is_free(func):
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
            self.unknown[str(func._overloadpacket).partition(".")[2]] = None
        result = func(*args, **kwargs)
        if rule is not None:
            self.flops = self.flops + expr_of(rule(*args, **kwargs, out_val=result))
        return result

    @property
    def work(self) -> Work:
        return Work(self.flops, tuple(self.unknown))


class Probe:
    """Runs calls of one trace again."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.env = attempt.env

    def forward(self, call: Call) -> Work:
        """Operations of the call."""
        return self._apart(self._forward, call)

    def gradient(self, call: Call, required: Sequence[bool]) -> Gradient:
        """What autograd makes of the call, where the tensors that it reads require gradients or not."""
        return self._apart(self._gradient, call, tuple(required))

    def _apart(self, run: Callable[..., Any], *args: Any) -> Any:
        """Neither questions nor sizes that values decide stay behind in the trace."""
        env = self.env
        before = [(table, table.copy()) for table in (env.hints, env.ranges, env.fresh, env.computed, env.lost)]
        try:
            with running(self.attempt.mode):
                return env.quietly(run, *args)
        finally:
            for table, old in before:
                table.clear()  # type: ignore[attr-defined]
                table.update(old)  # type: ignore[attr-defined]

    def _forward(self, call: Call) -> Work:
        with Counter() as counter:
            call.function(*call.args, **call.kwargs)
        return counter.work

    def _gradient(self, call: Call, required: tuple[bool, ...]) -> Gradient:
        with torch.enable_grad():
            leaves = [_leaf(tensor, required=need) for tensor, need in zip(call.reads, required, strict=True)]
            given = [leaf.clone() if leaf.requires_grad and _may_write(call, leaf) else leaf for leaf in leaves]
            args, kwargs = _replaced(call, given)
            kept: list[torch.Tensor] = []
            with torch.autograd.graph.saved_tensors_hooks(lambda tensor: (kept.append(tensor), tensor)[1], lambda t: t):
                result = _run(call, args, kwargs)
            made: list[torch.Tensor] = [leaf for leaf in tree_leaves(result) if isinstance(leaf, FakeTensor)]
            made = made or given[:1]
            keeps, keeps_made, own = _sorted_out(kept, given, made)
            with Counter() as counter:
                if call.record.operator not in FREE:  # the backward of those that count as none counts as none
                    _run_backward(made, leaves)
        return Gradient(counter.work, keeps, keeps_made, own, tuple(each.requires_grad for each in made))


def _run(call: Call, args: Any, kwargs: Any) -> Any:
    if call.record.operator not in BY_DEVICE:
        return call.function(*args, **kwargs)
    with kernels_of_the_device():
        return call.function(*args, **kwargs)


def _leaf(tensor: torch.Tensor, *, required: bool) -> torch.Tensor:
    if tensor.layout is not torch.strided:
        return tensor
    made = torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return made.requires_grad_(required)


def _replaced(call: Call, leaves: list[torch.Tensor]) -> Any:
    """The arguments with other tensors, in the order of `call.reads`; the same tensor read twice is one again."""
    others = {id(tensor): leaf for tensor, leaf in zip(call.reads, leaves, strict=True)}
    return map_tensors((call.args, call.kwargs), lambda tensor: others[id(tensor)])


def _may_write(call: Call, leaf: torch.Tensor) -> bool:
    """Whether the call hands back what it read: autograd refuses to write to a leaf. Expanded ones are only viewed."""
    read = {root_of(tensor) for tensor in call.reads}
    return any(root_of(tensor) in read for tensor in call.makes) and 0 not in leaf.stride()


def _sorted_out(kept: list[torch.Tensor], given: list[torch.Tensor], made: list[torch.Tensor]) -> Any:
    """Which storages that are kept were read, which were made, and the bytes of the others, each once."""
    read, new = _storages(given), _storages(made)
    keeps: dict[int, None] = {}
    keeps_made: dict[int, None] = {}
    own: dict[int, Expr] = {}
    for tensor in kept:
        storage = storage_of(tensor)
        if storage in read:
            keeps[read[storage]] = None
        elif storage in new:
            keeps_made[new[storage]] = None
        else:
            own[storage] = expr_of(tensor.untyped_storage().nbytes())
    return tuple(keeps), tuple(keeps_made), sum(own.values(), NONE)


def _storages(tensors: list[torch.Tensor]) -> dict[int, int]:
    return {
        storage_of(tensor): number
        for number, tensor in reversed([*enumerate(tensors)])
        if tensor.layout is torch.strided
    }


def _run_backward(made: list[torch.Tensor], leaves: list[torch.Tensor]) -> None:
    """Every gradient that can be had, from every output that has one."""
    ends = [each for each in made if each.requires_grad]
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    if ends and wanted:
        torch.autograd.grad(ends, wanted, [torch.empty_like(each) for each in ends], allow_unused=True)
