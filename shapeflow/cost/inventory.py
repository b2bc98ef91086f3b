"""What a model holds: its modules and the tensors in them, in the order of their definition, each met once.

>>> found = inventory(nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)))
>>> [(found.path(each), each.count) for each in found.holdings if not each.is_buffer]
[('0.weight', 8), ('0.bias', 2), ('1.weight', 2), ('1.bias', 2)]

This is the part that has to be quick (thousands of modules): it walks the modules' own tables once, and keeps what it
reads by column. Whoever wants rows (`members`, `holdings`) or dotted names (`paths`) makes them by asking.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import prod
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from shapeflow.cost.packed import is_packed, packed_weights, parts_of
from shapeflow.trace.traced import size_key

Count = Any
"""An int; in a model made of symbolic sizes a formula."""
PLAIN = frozenset({nn.Parameter, torch.Tensor})
DTYPES = {each: str(each).removeprefix("torch.") for each in vars(torch).values() if isinstance(each, torch.dtype)}


class Member(NamedTuple):
    """A module under one of its paths. `first` numbers the member that the same module was first met as."""

    name: str  # in its parent
    kind: str
    parent: int
    first: int


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


Held: TypeAlias = tuple[int, str, torch.Tensor]
"""A tensor as the walk meets it: the number of its module, its name there."""


class Members(NamedTuple):
    """The fields of `Member`, each for all modules."""

    name: Sequence[str]
    kind: Sequence[str]
    parent: Sequence[int]
    first: Sequence[int]


class Holdings(NamedTuple):
    """The fields of `Holding`, each for all names of tensors."""

    module: Sequence[int]
    name: Sequence[str]
    first: Sequence[int]
    shape: Sequence[tuple[Count, ...]]
    count: Any  # a sequence of Count; tuples have a method of this name
    nbytes: Sequence[Count]
    dtype: Sequence[str]
    trainable: Sequence[bool]
    is_buffer: Sequence[bool]


@dataclass(frozen=True)
class Inventory:
    """Modules, parameters and then buffers, in definition order; below a module met before nothing is listed again."""

    modules: Members
    tensors: Holdings

    @staticmethod
    def of(members: Iterable[Member], holdings: Iterable[Holding]) -> Inventory:
        """From rows."""
        return Inventory(Members(*_columns(members, Member)), Holdings(*_columns(holdings, Holding)))

    def with_holdings(self, holdings: Iterable[Holding]) -> Inventory:
        """The same modules with other tensors."""
        return replace(self, tensors=Holdings(*_columns(holdings, Holding)))

    def only(self, numbers: Sequence[int]) -> Inventory:
        """Of the tensors those of these numbers; where a first name goes, the next one is the first."""
        firsts: dict[int, int] = {}
        for place, number in enumerate(numbers):
            firsts.setdefault(self.tensors.first[number], place)
        kept = (self.holdings[number] for number in numbers)
        return self.with_holdings(each._replace(first=firsts[each.first]) for each in kept)

    @cached_property
    def members(self) -> tuple[Member, ...]:
        return tuple(map(Member._make, zip(*self.modules, strict=True)))

    @cached_property
    def holdings(self) -> tuple[Holding, ...]:
        return tuple(map(Holding._make, zip(*self.tensors, strict=True)))

    @cached_property
    def paths(self) -> list[str]:
        """The dotted name of each module, "" for the whole model."""
        paths: list[str] = []
        for name, parent in zip(self.modules.name, self.modules.parent, strict=True):
            paths.append(f"{paths[parent]}.{name}" if parent else name)
        return paths

    def path(self, holding: Holding) -> str:
        """The dotted name of a tensor."""
        return joined(self.paths[holding.module], holding.name)

    @cached_property
    def parameters(self) -> Sequence[int]:
        """Numbers of the parameters, each under its first name; those without a shape are left out."""
        is_buffer = self.tensors.is_buffer
        if self.is_plain:
            # as `inventory` lists them: parameters, then buffers
            return range(is_buffer.index(True) if is_buffer and is_buffer[-1] else len(is_buffer))
        return [number for number in self._unique() if not is_buffer[number]]

    @cached_property
    def buffers(self) -> Sequence[int]:
        """Numbers of the buffers, in the same way."""
        is_buffer = self.tensors.is_buffer
        if self.is_plain:
            return range(len(self.parameters), len(is_buffer))
        return [number for number in self._unique() if is_buffer[number]]

    @property
    def unique(self) -> list[Holding]:
        """Parameters and buffers, each under its first name."""
        return [self.holdings[number] for number in self._unique()]

    def _unique(self) -> Sequence[int]:
        firsts, counts = self.tensors.first, self.tensors.count
        if self.is_plain:
            return firsts
        return [number for number, first in enumerate(firsts) if first == number and counts[number] is not None]

    @property
    def is_plain(self) -> bool:
        """Whether it is known that every tensor and every module has one name, and a shape."""
        firsts, counts = self.tensors.first, self.tensors.count
        return isinstance(firsts, range) and isinstance(self.modules.first, range) and None not in counts


def joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _columns(rows: Iterable[Any], kind: Any) -> Iterable[Sequence[Any]]:
    return zip(*rows, strict=True) if (rows := [*rows]) else [()] * len(kind._fields)


def inventory(model: nn.Module) -> Inventory:
    """Everything that the model registers, and the packed weights of quantised layers."""
    members: list[tuple[str, str, int, int]] = []
    parameters: list[Held] = []
    buffers: list[Held] = []
    known: dict[int, int] = {}  # id of a module -> its member
    waiting: list[tuple[str, nn.Module, int]] = [("", model, 0)]
    while waiting:
        name, module, parent = waiting.pop()
        number = len(members)
        first = known.setdefault(id(module), number)
        kind, packed = KINDS[type(module)]
        members.append((name, kind or _own_name(module), parent, first))
        if first != number:
            continue
        if tensors := module._parameters:
            for name, tensor in tensors.items():
                if tensor is not None:
                    parameters.append((number, name, tensor))
        if packed:
            parameters.extend((number, *each) for each in packed_weights(module))
        if tensors := module._buffers:
            for name, tensor in tensors.items():
                if tensor is not None:
                    buffers.append((number, name, tensor))
        if children := module._modules:
            for name, child in reversed(children.items()):
                if child is not None and not (packed and name in ("_packed_params", "_all_weight_values")):
                    waiting.append((name, child, number))
    names, kinds, parents, firsts = zip(*members, strict=True)
    alone = len(known) == len(members)
    modules = Members(names, kinds, parents, range(len(members)) if alone else firsts)
    return Inventory(modules, _measured(parameters, buffers))


class _Kinds(dict[type, tuple[str, bool]]):
    """The name of a class and whether it keeps packed weights; no name where instances have one of their own."""

    def __missing__(self, kind: type) -> tuple[str, bool]:
        packed = is_packed(kind)
        own = packed or issubclass(kind, torch.jit.ScriptModule)
        return self.setdefault(kind, ("" if own else kind.__name__, packed))


KINDS = _Kinds()


def _own_name(module: Any) -> str:
    return module.original_name if isinstance(module, torch.jit.ScriptModule) else module._get_name()


def _measured(parameters: list[Held], buffers: list[Held]) -> Holdings:
    """What is to be told of the tensors, read column by column. What is a parameter too is met as one first."""
    modules, names, tensors = zip(*parameters, *buffers, strict=True) if parameters or buffers else ((), (), ())
    dtypes = [tensor.dtype for tensor in tensors]
    return Holdings(
        modules,
        names,
        _firsts(tensors),
        *_sizes(tensors, dtypes),
        Later(len(dtypes), partial(_all, DTYPES.__getitem__, dtypes)),
        [tensor.requires_grad for _, _, tensor in parameters] + [False] * len(buffers),
        [False] * len(parameters) + [True] * len(buffers),
    )


def _firsts(tensors: Sequence[torch.Tensor]) -> Sequence[int]:
    """For each the place of the first that is the same; a range where each has one name."""
    keys = [*map(id, tensors)]
    if len(set(keys)) == len(keys):
        return range(len(keys))
    seen: dict[int, int] = {}
    return [seen.setdefault(key, place) for place, key in enumerate(keys)]


Sizes: TypeAlias = tuple[Sequence[tuple[Count, ...]], Sequence[Count], Sequence[Count]]


def _sizes(tensors: Sequence[torch.Tensor], dtypes: Sequence[torch.dtype]) -> Sizes:
    """Shapes, counts and bytes."""
    if PLAIN.issuperset(map(type, tensors)):
        counts = [tensor.numel() for tensor in tensors]
        shapes = Later(len(counts), partial(_all, _shape, tensors))
        return shapes, counts, Later(len(counts), partial(_bytes, tensors, counts, dtypes))
    shapes, counts, nbytes = zip(*map(_size, tensors), strict=True)
    return shapes, counts, nbytes


class Later(Sequence[Any]):
    """A column that is made when it is asked for: most reports only count."""

    def __init__(self, length: int, make: Callable[[], list[Any]]) -> None:
        self._length = length
        self._make = make

    @cached_property
    def _made(self) -> list[Any]:
        return self._make()

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, place: Any) -> Any:
        return self._made[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._made == [*other]


def _all(of: Callable[[Any], Any], each: Iterable[Any]) -> list[Any]:
    return [*map(of, each)]


def _bytes(tensors: Sequence[torch.Tensor], counts: Sequence[int], dtypes: Sequence[torch.dtype]) -> list[Count]:
    """As many as the counts come to; of sparse ones those of their parts."""
    return [
        count * dtype.itemsize if tensor.layout is torch.strided else _size(tensor)[2]
        for tensor, count, dtype in zip(tensors, counts, dtypes, strict=True)
    ]


def _size(tensor: torch.Tensor) -> tuple[tuple[Count, ...], Count, Count]:
    """Shape, count and bytes of one that may be lazy, symbolic, sparse or of somebody's own class."""
    if is_lazy(tensor):
        return (), None, 0
    shape, stored = tuple(map(size_key, _shape(tensor))), size_key(tensor.numel())
    count = prod(shape) if hasattr(tensor, "quant_state") else stored
    inner = parts_of(tensor)
    nbytes = sum(_size(each)[2] for each in inner) if inner else stored * tensor.itemsize
    return shape, count, nbytes


def _shape(tensor: torch.Tensor) -> Any:
    """Several weights in one byte (bitsandbytes' 4-bit parameters) say in `quant_state` what shape they stand for.

    Rows of several lengths are told as one: no shape says that.
    """
    if tensor.is_nested:
        return (tensor.numel(),)
    return getattr(getattr(tensor, "quant_state", None), "shape", None) or tensor.shape
