"""What a model holds: its modules and the tensors in them, in the order of their definition, each met once.

>>> found = inventory(nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)))
>>> [(each.path, each.count) for each in found.tensors if not each.is_buffer]
[('0.weight', 8), ('0.bias', 2), ('1.weight', 2), ('1.bias', 2)]

This is the part that has to be quick (thousands of modules), so it walks the modules' own tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from shapeflow.cost.packed import is_packed, packed_weights
from shapeflow.dims.expr import Expr
from shapeflow.trace.traced import size_key

Count = Any
"""An int; in a model made of symbolic sizes a formula."""
new = tuple.__new__
"""A NamedTuple made by its own constructor takes twice as long, and this file makes thousands."""
PLAIN = frozenset({nn.Parameter, torch.Tensor})
DTYPES = {
    each: (str(each).removeprefix("torch."), each.itemsize)
    for each in vars(torch).values()
    if isinstance(each, torch.dtype)
}


class Holding(NamedTuple):
    """A tensor under one of its names. `first` numbers the holding that the same tensor was first met under.

    `count` is None for a lazy tensor, which has no shape yet.
    """

    module: int  # number of the module that holds it
    name: str
    first: int
    shape: tuple[Count, ...]  # or a torch.Size, which is one
    count: Count
    nbytes: Count
    dtype: str
    trainable: bool
    is_buffer: bool
    is_packed: bool = False


class Member(NamedTuple):
    """A module under one of its paths. `first` numbers the member that the same module was first met as."""

    path: str
    kind: str
    parent: int
    depth: int
    first: int


@dataclass(frozen=True, slots=True)
class Inventory:
    """Modules and tensors in definition order; below a module that was met before nothing is listed again."""

    members: tuple[Member, ...]
    holdings: tuple[Holding, ...]

    def path(self, holding: Holding) -> str:
        """The dotted name of a tensor."""
        return joined(self.members[holding.module].path, holding.name)

    @property
    def unique(self) -> list[Holding]:
        """Each tensor once, under its first name; those without a shape are left out."""
        return [each for number, each in enumerate(self.holdings) if each.first == number and each.count is not None]


def joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def inventory(model: nn.Module) -> Inventory:
    """Everything that the model registers, and the packed weights of quantised layers."""
    members: list[Member] = []
    holdings: list[Holding] = []
    known: dict[int, int] = {}  # id of a module -> its member
    seen: dict[int, int] = {}  # id of a tensor -> its holding
    waiting: list[tuple[str, nn.Module, int, int]] = [("", model, 0, 0)]
    while waiting:
        path, module, parent, depth = waiting.pop()
        number = len(members)
        first = known.setdefault(id(module), number)
        kind, packed = _kind(type(module))
        kind = kind or (module._get_name() if packed else module.original_name)  # pyright: ignore[reportAttributeAccessIssue]
        members.append(new(Member, (path, kind, parent, depth, first)))
        if first != number:
            continue
        if module._parameters:
            _hold(number, module._parameters.items(), False, seen, holdings)
        if module._buffers:
            _hold(number, module._buffers.items(), True, seen, holdings)
        if packed:
            holdings.extend(_packed(module, number, len(holdings)))
        children = module._modules.items() if module._modules else ()
        for name, child in reversed(children):
            if child is not None and not (packed and name in ("_packed_params", "_all_weight_values")):
                waiting.append((f"{path}.{name}" if path else name, child, number, depth + 1))
    return Inventory(tuple(members), tuple(holdings))


@cache
def _kind(kind: type) -> tuple[str, bool]:
    """The name of a class and whether it keeps packed weights; no name where instances have one of their own."""
    packed = is_packed(kind)
    return "" if packed or issubclass(kind, torch.jit.ScriptModule) else kind.__name__, packed


def _hold(
    module: int,
    tensors: Iterable[tuple[str, torch.Tensor | None]],
    is_buffer: bool,
    seen: dict[int, int],
    holdings: list[Holding],
) -> None:
    for name, tensor in tensors:
        if tensor is None:
            continue
        place = len(holdings)
        first = seen.setdefault(id(tensor), place)
        if first != place:  # tied: what the first name told
            _, _, _, shape, count, nbytes, dtype, trainable, _, _ = holdings[first]
        else:
            dtype, size = DTYPES[tensor.dtype]
            trainable = not is_buffer and tensor.requires_grad
            if type(tensor) in PLAIN:
                count, shape = tensor.numel(), tensor.shape
                nbytes = count * size
            else:
                shape, count, nbytes = _measured(tensor)
        holding = (module, name, first, shape, count, nbytes, dtype, trainable, is_buffer, False)
        holdings.append(new(Holding, holding))


def _measured(tensor: torch.Tensor) -> tuple[tuple[Count, ...], Count, Count]:
    """Shape, count and bytes of a tensor that is lazy, symbolic or of somebody's own class."""
    if is_lazy(tensor):
        return (), None, 0
    shape = tuple(size_key(size) for size in _logical_shape(tensor))
    stored = size_key(tensor.numel())
    count = stored if shape == tuple(tensor.shape) else product(shape)
    return shape, count, stored * tensor.itemsize


def _logical_shape(tensor: torch.Tensor) -> Any:
    """Several weights in one byte (bitsandbytes' 4-bit parameters) say in `quant_state` what shape they stand for."""
    return getattr(getattr(tensor, "quant_state", None), "shape", None) or tensor.shape


def product(sizes: tuple[Count, ...]) -> Count:
    total: Count = 1
    for size in sizes:
        total = total * size
    return total


def _packed(module: nn.Module, number: int, start: int) -> Iterator[Holding]:
    for place, (name, tensor) in enumerate(packed_weights(module)):
        dtype, count = str(tensor.dtype)[6:], tensor.numel()
        shape, nbytes = tuple(tensor.shape), count * tensor.element_size()
        yield Holding(number, name, start + place, shape, count, nbytes, dtype, False, False, True)


def is_formula(value: Any) -> bool:
    """Whether a count depends on symbols."""
    return isinstance(value, Expr) and value.constant is None
