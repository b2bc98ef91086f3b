"""Tries repairs: a layer is built anew with other arguments, the model runs, and everything is put back.

>>> prove(cause.candidates, lambda: runs(model))
Repair(path='conv2', changes=(('stride', (1, 1)),), fix='nn.Conv2d(16, 16, 3, stride=1, padding=1)')
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from shapeflow.check.cause.call import submodule
from shapeflow.check.cause.result import Repair
from shapeflow.check.cause.written import constructor

BLOCKS = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
KEPT_INSIDE: dict[str, Callable[[Any], Any]] = {
    "d_model": lambda block: block.self_attn.embed_dim,
    "nhead": lambda block: block.self_attn.num_heads,
    "dim_feedforward": lambda block: block.linear1.out_features,
    "batch_first": lambda block: block.self_attn.batch_first,
}
"""Arguments of torch's blocks that only their parts keep."""
MOST = 12
"""No more repairs than this are tried."""


def prove(repairs: Iterable[Repair], run: Callable[[], bool]) -> Repair | None:
    """The first repair with which `run` says True; None where none does. The model is as before, also on errors."""
    for repair in list(repairs)[:MOST]:
        with applied(repair) as changed:
            if changed and run():
                return repair
    return None


@contextmanager
def applied(repair: Repair) -> Iterator[bool]:
    """The model with the repaired layer in place of the old one; False where it cannot be built."""
    pairs = [(path, submodule(repair.root, path)) for path in (repair.path, *repair.also)]
    built = [(old, _rebuilt(old, dict(repair.changes))) for path, old in pairs if path and old is not None]
    if len(built) < len(pairs) or any(new is None for _, new in built):
        yield False
        return
    places = [
        (owner, name, old, new)
        for old, new in built
        for owner in repair.root.modules()
        for name, each in owner._modules.items()
        if each is old
    ]
    for owner, name, _, new in places:
        owner._modules[name] = new
    try:
        yield True
    finally:
        for owner, name, old, _ in places:
            owner._modules[name] = old


def _rebuilt(module: nn.Module, changes: dict[str, Any]) -> nn.Module | None:
    """A module of the same class and arguments but for `changes`, its weights without storage."""
    arguments = _arguments(module)
    if arguments is None:
        return None
    try:
        with torch.device("meta"):
            new = type(module)(**{**arguments, **changes})
    except Exception:  # a repair that the layer itself refuses is no repair
        return None
    new.train(module.training)
    return new.requires_grad_(any(each.requires_grad for each in module.parameters()))


def _arguments(module: nn.Module) -> dict[str, Any] | None:
    """The constructor's arguments, read off the attributes that keep them; None where one is kept nowhere."""
    found: dict[str, Any] = {}
    for name, parameter in constructor(type(module)).items():
        if name in ("device", "dtype", "mode"):
            continue
        value = vars(module).get(name, parameter.default)
        if name in KEPT_INSIDE and isinstance(module, BLOCKS):
            value = KEPT_INSIDE[name](module)
        elif name in ("bias", "weight"):
            value = getattr(module, name, None) is not None or isinstance(module, BLOCKS)
        if value is parameter.empty:
            return None
        if name in ("kdim", "vdim") and value == getattr(module, "embed_dim", None):
            value = None  # as wide as the queries, whatever their width becomes
        if value != parameter.default:  # nn.GRU refuses a proj_size, even one of 0
            found[name] = value
    weight = next(module.parameters(), None)
    return found if weight is None else {**found, "dtype": weight.dtype}
