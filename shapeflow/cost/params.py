"""Counts parameters and buffers: every tensor once, however often and under however many names it is used.

>>> report = params(nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)))
>>> report.total, report.trainable, report.buffers
(14, 14, 5)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from shapeflow.torch_private import real_module


@dataclass(frozen=True, slots=True)
class ParamRow:
    """One module with all that is below it.

    `parameters`, `trainable` and `buffers` count the different numbers in it. `shared` says which of its own tensors
    belong to a module above it in the table as well (`weight is embedding.weight`), and `lazy` which have no shape yet.
    """

    path: str  # "" for the whole model
    kind: str
    parameters: int
    trainable: int
    buffers: int
    shared: tuple[str, ...] = ()
    lazy: tuple[str, ...] = ()

    @property
    def depth(self) -> int:
        """0 for the model, 1 for its children, ..."""
        return self.path.count(".") + 1 if self.path else 0


@dataclass(frozen=True, slots=True)
class ParamReport:
    """Parameters of a model, `total` = `trainable` + `frozen`; `buffers` are extra. `rows` are in definition order."""

    name: str
    total: int
    trainable: int
    frozen: int
    buffers: int
    rows: tuple[ParamRow, ...]

    @property
    def lazy(self) -> tuple[str, ...]:
        """Names of the parameters and buffers that have no shape yet, and are counted nowhere."""
        return tuple(".".join(filter(None, (row.path, name))) for row in self.rows for name in row.lazy)

    def __str__(self) -> str:
        from shapeflow.cost.table import plain

        return plain(self)


def params(model: nn.Module) -> ParamReport:
    """Counts the parameters of a model, on any device, the meta device among them.

    A tensor that has two names counts once, and so does a module that is used twice.
    """
    model = real_module(model)
    rows = tuple(_rows(model))
    whole = rows[0]
    frozen = whole.parameters - whole.trainable
    return ParamReport(type(model).__name__, whole.parameters, whole.trainable, frozen, whole.buffers, rows)


def _rows(model: nn.Module) -> Iterator[ParamRow]:
    owners: dict[int, str] = {}  # id of a tensor or module -> the name that it was first seen under
    again = "\0"  # path of a module that was seen before: what is below it needs no rows of its own
    for path, module in model.named_modules(remove_duplicate=False):
        if path.startswith(again):
            continue
        first = owners.setdefault(id(module), path)
        again = again if first == path else f"{path}."
        shared = _shared(module, path, owners) if first == path else [f"all of it is {first}"]
        yield _row(path, module, tuple(shared))


def _row(path: str, module: nn.Module, shared: tuple[str, ...]) -> ParamRow:
    sizes = [(0 if is_lazy(each) else each.numel(), each.requires_grad) for each in module.parameters()]
    return ParamRow(
        path,
        type(module).__name__,
        parameters=sum(size for size, _ in sizes),
        trainable=sum(size for size, is_trainable in sizes if is_trainable),
        buffers=sum(buffer.numel() for buffer in module.buffers() if not is_lazy(buffer)),
        shared=shared,
        lazy=tuple(name for name, tensor in _own_tensors(module) if is_lazy(tensor)),
    )


def _own_tensors(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters(recurse=False, remove_duplicate=False)
    yield from module.named_buffers(recurse=False, remove_duplicate=False)


def _shared(module: nn.Module, path: str, owners: dict[int, str]) -> Iterator[str]:
    for name, tensor in _own_tensors(module):
        full = f"{path}.{name}" if path else name
        first = owners.setdefault(id(tensor), full)
        if first != full:
            yield f"{name} is {first}"
