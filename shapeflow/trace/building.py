"""A constructor's code on symbolic sizes: `Linear(d_model, d_ff)` makes parameters of `d_ff d_model`, without values.

>>> with running(mode), building(recorder, modules_around(Block)):
...     Block(d_model, n_heads)         # both are SymInts
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from shapeflow.torch_private import DisableTorchFunction
from shapeflow.trace.functions import name_of, operator_name
from shapeflow.trace.recorder import Recorder
from shapeflow.trace.shadow import FOREIGN, modules_of, shadowed

INITIALISERS = frozenset(
    """uniform_ normal_ trunc_normal_ log_normal_ exponential_ cauchy_ geometric_ bernoulli_ random_ fill_ zero_
    erfinv_""".split()
)
"""What fills a tensor with values: there are none, and their bounds would be made of sizes."""
ALSO_ASK = ("torch.nn.init", "torch.nn.functional", "huggingface_hub.dataclasses")
"""What else asks `isinstance(value, int)` or makes a `float` of a size: configuration classes that check themselves."""


class Builder(TorchFunctionMode):
    """Sees the functions that a constructor calls: no values are drawn, and a copied parameter is one of its size."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = name_of(func)
        if name in INITIALISERS or getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        if name == "__deepcopy__":
            return _copied(*args)
        self.recorder.operator = operator_name(func)
        try:
            return func(*args, **kwargs)
        finally:
            self.recorder.operator = ""


def _copied(tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    if id(tensor) not in memo:
        with DisableTorchFunction():
            copy = torch.empty_like(tensor)
            if isinstance(tensor, nn.Parameter):
                copy = nn.Parameter(copy, requires_grad=tensor.requires_grad)
        memo[id(tensor)] = copy
    return memo[id(tensor)]


@contextmanager
def building(recorder: Recorder, modules: Iterable[ModuleType]) -> Iterator[None]:
    """Let constructors of these modules and of torch's layers take symbolic sizes for integers.

    What they warn of is the fault of sizes that we made up, such as an odd number of heads.
    """
    with warnings.catch_warnings(), shadowed([*modules, *torch_layers()]), Builder(recorder):
        warnings.simplefilter("ignore")
        yield


def torch_layers() -> list[ModuleType]:
    """Where torch's layers are written (`nn.LSTM` asks `isinstance(hidden_size, int)`), and what they call."""
    names = [name for name in sys.modules if name.startswith("torch.nn.modules.") or name in ALSO_ASK]
    return [sys.modules[name] for name in names]


def modules_around(maker: Callable[..., Any], built: nn.Module | None) -> list[ModuleType]:
    """The modules whose code runs when `maker` is called: its own, what that one imports of its package, the parts'."""
    home = sys.modules.get(getattr(maker, "__module__", ""))
    package = getattr(home, "__name__", "").partition(".")[0]
    names = set() if home is None or package in FOREIGN else {home.__name__}
    for value in list(vars(home).values()) if names else ():
        name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        if isinstance(name, str) and name.partition(".")[0] == package:
            names.add(name)
    parts = [] if built is None else [type(part) for part in built.modules()]
    classes = {*parts, maker} if isinstance(maker, type) else set(parts)
    found = {id(module): module for module in modules_of(classes)}
    found |= {id(sys.modules[name]): sys.modules[name] for name in sorted(names) if name in sys.modules}
    return list(found.values())
