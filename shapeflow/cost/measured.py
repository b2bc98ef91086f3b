"""What of each parameter one token touches, seen by running it: where Python picks experts by values, no graph tells.

>>> measured(trace)["experts.3.weight"]
Fraction(2, 5)

A copy of the model runs on a few random tokens, one at a time; one on the meta device gets random weights for it. A
parameter is touched in a run where an operator makes numbers of it: `expert(rows)` of no rows makes none.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import torch
from torch import nn

from shapeflow.dims.spec import TensorSpec
from shapeflow.errors import InputError
from shapeflow.torch_private import TorchDispatchMode, aten_name, storage_of, tree_leaves
from shapeflow.trace.inputs import Bound
from shapeflow.trace.result import Trace
from shapeflow.trace.source import location
from shapeflow.trace.structure import map_tensors

TOKENS = 5
LARGEST = 2**27
"""A model of more parameters is not run."""
LOOK_UPS = frozenset({"index", "index_select", "gather", "take"})


def read_by_python(trace: Trace) -> list[str]:
    """The lines of the model's code that read a number out of a tensor: it may be the expert that was picked."""
    places = [location(where) for where in trace._attempt.values.sizes.read]
    return list(dict.fromkeys(f"{each.file}:{each.line}" for each in places if each is not None))


def measured(trace: Trace) -> dict[str, Fraction]:
    """The part of each parameter that a token touches; of experts, which are alike but for numbers in their names, all
    the same part. Raises InputError where the model cannot be run on one token, or tokens touch more or less.
    """
    subject, bound = trace._attempt.subject, trace._attempt.bound
    assert subject.root is not None
    model = _copy(trace, subject.root)
    runs = []
    with torch.random.fork_rng():
        for seed in range(TOKENS):
            torch.manual_seed(seed)
            runs.append(_touched(trace, model, bound))
    shapes = {path: tuple(parameter.shape) for path, parameter in model.named_parameters()}
    return _shared(trace, shapes, runs)


def _copy(trace: Trace, root: nn.Module) -> nn.Module:
    """With weights: its own, or random ones where it has none."""
    count = sum(each.numel() for each in root.parameters())
    if count > LARGEST:
        raise _untold(trace, f"a model of {count:,} parameters is not run for it")
    model = copy.deepcopy(root)
    bare = [each for each in [*model.parameters(), *model.buffers()] if each.is_meta]
    if bare:
        model = model.to_empty(device="cpu")
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(0)
            for each in [*model.parameters(), *model.buffers()]:
                each.normal_(0, 0.1) if each.is_floating_point() else each.zero_()
    return model


def _touched(trace: Trace, model: nn.Module, bound: Bound) -> dict[str, Fraction]:
    """The part of each parameter that one random token touches."""
    device = next((each.device for each in model.parameters()), torch.device("cpu"))
    made = map_tensors(bound.arguments, lambda spec: _token(trace, spec).to(device), at=TensorSpec)
    watch = Watch(model)
    try:
        with torch.no_grad(), watch:
            model(*(made[name] for name in bound.positional), **{name: made[name] for name in bound.keyword})
    except Exception as error:  # any: the model's own code, that may not take one token
        raise _untold(trace, f"run on one token it raises {type(error).__name__}: {error}") from error
    return watch.parts()


def _token(trace: Trace, spec: TensorSpec) -> torch.Tensor:
    """One token: every free size is 1."""
    shape = [1 if dim.expr is None else dim.expr.evaluate(dict.fromkeys(dim.expr.symbols, 1)) for dim in spec.dims]
    dtype = getattr(torch, spec.dtype)
    tokens = shape if not dtype.is_floating_point else shape[:-1]
    if any(size != 1 for size in tokens):
        raise _untold(trace, f'"{spec.text}" is more than one token: name the axes of tokens, as in "B T {shape[-1]}"')
    return torch.randn(shape).to(dtype) if dtype.is_floating_point else torch.randint(0, 2, shape).to(dtype)


def _untold(trace: Trace, reason: str) -> InputError:
    where = ", ".join(read_by_python(trace))
    return InputError(
        f"active parameters of {trace.name} cannot be told: its Python code picks by numbers that it reads out of "
        f"tensors, at {where}, and {reason}"
    )


class Watch(TorchDispatchMode):
    """Notes which regions of which parameters operators make numbers of."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.parameters = {storage_of(each): (path, each) for path, each in model.named_parameters()}
        self.regions: dict[str, dict[tuple[int, int], int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        made = sum(each.numel() for each in tree_leaves(result) if isinstance(each, torch.Tensor))
        for tensor in tree_leaves((args, kwargs)):
            if isinstance(tensor, torch.Tensor) and made and not func.is_view:
                self.note(tensor, made if aten_name(func) in LOOK_UPS else tensor.numel())
        return result

    def note(self, tensor: torch.Tensor, count: int) -> None:
        found = self.parameters.get(storage_of(tensor))
        if found is not None:
            regions = self.regions.setdefault(found[0], {})
            place = int(tensor.storage_offset()), tensor.numel()
            regions[place] = max(regions.get(place, 0), min(count, tensor.numel()))

    def parts(self) -> dict[str, Fraction]:
        sizes = {path: each.numel() for path, each in self.parameters.values()}
        return {
            path: min(Fraction(1), Fraction(sum(regions.values()), sizes[path]))
            for path, regions in self.regions.items()
        }


def _shared(
    trace: Trace, shapes: Mapping[str, tuple[int, ...]], runs: list[dict[str, Fraction]]
) -> dict[str, Fraction]:
    """Parameters that are touched alike as they are; of others each has the part that a token touches of its kind."""
    found = {path: runs[0].get(path, Fraction(0)) for path in shapes}
    groups: dict[Any, list[str]] = {}
    for path, shape in shapes.items():
        groups.setdefault((re.sub(r"\d+", "*", path), shape), []).append(path)
    for paths in groups.values():
        parts = [[run.get(path, Fraction(0)) for path in paths] for run in runs]
        if all(set(each) == set(parts[0]) and len(set(each)) == 1 for each in parts):
            continue
        totals = {sum(each, Fraction(0)) for each in parts}
        if len(totals) > 1:
            raise _untold(trace, f"one token touches more of {paths[0]} and its like than another")
        found.update(dict.fromkeys(paths, totals.pop() / len(paths)))
    return found
