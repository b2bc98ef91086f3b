"""`assert_matches`: a model computes what its reference does.

>>> assert_matches(my_attention, reference_attention, "B T d_model")
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from shapeflow.testing.change import listed, with_another
from shapeflow.testing.example import Example, name_of
from shapeflow.testing.opening import Given, opened
from shapeflow.testing.running import distance, tensors_of, tolerance_for, undisturbed
from shapeflow.testing.sizes import size_sets
from shapeflow.trace.structure import tensors_in

Tensors = list[tuple[str, torch.Tensor]]


def assert_matches(
    module: Any,
    reference: Any,
    *inputs: Any,
    tolerance: float | None = None,
    training: bool = False,
    high: int | None = None,
    sizes: dict[str, int] | None = None,
    named: dict[str, Any] | None = None,
) -> None:
    """Both give outputs of the same shapes, dtypes and values, at several sizes: primes, and 1 for each free name.

    `reference` is a module or a function with the same inputs. Values may differ by `tolerance` (None: what sums in
    another order may differ by). It is a failure, too, when the reference's output does not depend on the inputs, or
    is not finite, as nothing would be shown then.
    """
    __tracebackhide__ = True
    example = opened(module, inputs, Given(high, sizes, named))
    with undisturbed(module, reference, training=training):
        for at, chosen in enumerate(size_sets(example)):
            given = example.inputs(chosen, seed=at)
            state = torch.random.get_rng_state()
            wanted = tensors_of(example.call(reference, given))
            torch.random.set_rng_state(state)
            found = tensors_of(example.call(module, given))
            if at == 0:
                _refuse_vacuous(reference, example, given, wanted)
            faults = list(_faults(found, wanted, tolerance))
            if faults:
                where = "" if not chosen else f" at {', '.join(f'{name} = {size}' for name, size in chosen.items())}"
                first = f"{name_of(module)} does not match {name_of(reference)}{where}:"
                raise AssertionError("\n".join([first, *faults, *_hint(module, reference)]))


def _refuse_vacuous(reference: Any, example: Example, inputs: Any, wanted: Tensors) -> None:
    __tracebackhide__ = True
    name = name_of(reference)
    if not any(each.isfinite().any() for _, each in wanted if each.numel()):
        raise AssertionError(f"nothing is shown: no output of {name} has a finite value")
    first = next((tensor for _, tensor in tensors_in(inputs) if tensor.dim() and tensor.numel()), None)
    if first is None:
        return
    changed = inputs
    for position in range(first.shape[0]):
        changed = with_another(changed, position, 0, first.shape[0])
    others = tensors_of(example.call(reference, changed))
    pairs = zip(wanted, others, strict=False)
    if all(a.shape == b.shape and not (distance(a, b) > 0).any() for (_, a), (_, b) in pairs):
        raise AssertionError(f"nothing is shown: the output of {name} does not depend on its inputs")


def _faults(found: Tensors, wanted: Tensors, tolerance: float | None) -> Iterator[str]:
    if len(found) != len(wanted):
        yield f"  {len(found)} tensors, the reference gives {len(wanted)}"
        return
    for (path, ours), (_, theirs) in zip(found, wanted, strict=True):
        if ours.shape != theirs.shape:
            yield f"  {path} is {_shape(ours)}, the reference's is {_shape(theirs)}"
        elif ours.dtype != theirs.dtype:
            yield f"  {path} is {ours.dtype}, the reference's is {theirs.dtype}"
        else:
            yield from _differences(path, ours, theirs, tolerance)


def _differences(path: str, ours: torch.Tensor, theirs: torch.Tensor, tolerance: float | None) -> Iterator[str]:
    gap = distance(ours, theirs)
    wrong = gap > tolerance_for(theirs, tolerance)
    if not wrong.any():
        return
    at = tuple(int(each) for each in torch.unravel_index(gap.argmax(), gap.shape))
    yield (
        f"  {path} {_shape(ours)}: {int(wrong.sum())} of {wrong.numel()} values differ, most at {list(at)}: "
        f"{ours[at].item():.6g}, the reference has {theirs[at].item():.6g}"
    )
    axes = [f"axis {axis}: {_where(wrong, axis)}" for axis in range(wrong.dim()) if _where(wrong, axis)]
    if axes:
        yield f"    only on {'; '.join(axes)}"


def _where(wrong: torch.Tensor, axis: int) -> str:
    """The positions along an axis that differ, where that is a part of them."""
    hit = wrong.movedim(axis, 0).flatten(1).any(dim=1)
    return "" if bool(hit.all()) else listed(hit.nonzero()[:, 0].tolist())


def _shape(tensor: torch.Tensor) -> str:
    return " ".join(map(str, tensor.shape)) or "scalar"


def _hint(module: Any, reference: Any) -> list[str]:
    """Two models made alike have weights of their own until one takes the other's."""
    if not isinstance(module, nn.Module) or not isinstance(reference, nn.Module):
        return []
    ours, theirs = module.state_dict(), reference.state_dict()
    alike = ours.keys() == theirs.keys() and all(ours[key].shape == theirs[key].shape for key in ours)
    if alike and any(not torch.equal(ours[key], theirs[key]) for key in ours):
        return ["  their weights differ; first: reference.load_state_dict(module.state_dict())"]
    return []
