"""The backward of a trace: which tensors have gradients, what is kept for them, what they cost.

>>> found = Autograd(trace, calls(trace))
>>> found.backward(call).flops, found.kept
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from shapeflow.cost import recurrent
from shapeflow.cost.calls import Call, bytes_of, root_of
from shapeflow.cost.probe import NONE, Gradient, Probe, Work
from shapeflow.dims.expr import Expr
from shapeflow.trace.recomputed import Part

if TYPE_CHECKING:
    from shapeflow.trace.result import Trace
    from shapeflow.trace.traced import Traced

OWN = ("parameter", "buffer")
NO_GRADIENT = Gradient(Work(), (), (), NONE, ())


class Autograd:
    """Follows `requires_grad` through the calls: from the parameters that are trained, and inputs that ask for it."""

    def __init__(self, trace: Trace, made: tuple[Call, ...]) -> None:
        self.calls = made
        self.attempt = trace._attempt
        self.probe = Probe(self.attempt)
        self.required: dict[int, bool] = {id(each): each.requires_grad for each in self.attempt.parameters.values()}
        self.written: set[Traced] = set()
        self._known: dict[object, Gradient] = {}
        self._cut: dict[Part, bool] = {}
        self.parts = self.attempt.recomputed.parts
        self.gradients = {id(call): self._gradient(call) for call in made}

    def requires(self, tensor: torch.Tensor) -> bool:
        """Whether autograd follows this tensor."""
        known = self.required.get(id(tensor))
        if known is None:
            known = self.required[id(tensor)] = tensor.requires_grad
        return known or (bool(self.written) and root_of(tensor) in self.written)

    def part_of(self, call: Call) -> Part | None:
        """The checkpointed part of the forward that the call runs in."""
        return next((part for part in self.parts if part.holds(call.record)), None)

    def is_cut(self, call: Call) -> bool:
        """Whether the call is in a reentrant part none of whose arguments has a gradient: it gets none at all."""
        part = self.part_of(call)
        if part is None or not part.reentrant:
            return False
        if part not in self._cut:
            self._cut[part] = not any(self.requires(tensor) for tensor in part.arguments)
        return self._cut[part]

    def _gradient(self, call: Call) -> Gradient:
        required = tuple([self.requires(tensor) for tensor in call.reads])
        if not any(required) or self.is_cut(call):
            read = {id(tensor) for tensor in call.reads}
            self.required.update((id(tensor), False) for tensor in call.makes if id(tensor) not in read)
            return NO_GRADIENT
        found = self._known.get((call.key, required))
        if found is None:
            found = self._known[call.key, required] = self._probed(call, required)
        for tensor, follows in zip(call.makes, found.differentiable, strict=False):
            self.required[id(tensor)] = follows
            if follows and any(tensor is read for read in call.reads):
                self.written.add(root_of(tensor))
        return found

    def _probed(self, call: Call, required: tuple[bool, ...]) -> Gradient:
        if call.function in recurrent.RECURRENT:
            return recurrent.gradient(call, required)
        return self.probe.gradient(call, required)

    # Operations

    @cached_property
    def needed(self) -> set[int]:
        """Calls that a backward from all outputs of the model goes through, by identity."""
        reached = {id(record) for _, record, _, _ in self.attempt.outputs}
        found: set[int] = set()
        for call in reversed(self.calls):
            if id(call.record) in reached and any(self.gradients[id(call)].differentiable):
                found.add(id(call))
                reached.update(id(source) for source, _, _ in call.record.sources)
        return found

    def backward(self, call: Call, forward: Work) -> Work:
        """Operations of the call's backward; where its part is run again for that, its forward is among them."""
        again = forward.flops if id(call) in self.again else NONE
        work = self.gradients[id(call)].backward if id(call) in self.needed else Work()
        return work if again is NONE else replace(work, flops=work.flops + again)

    @cached_property
    def again(self) -> set[int]:
        """Calls that a backward runs once more, by identity: what is not reentrant stops when all is there again."""
        found: set[int] = set()
        for part in self.parts:
            inside = [call for call in self.calls if part.holds(call.record)]
            if not any(id(call) in self.needed for call in inside):
                continue
            found.update(id(call) for call in (inside if part.reentrant else self._until_all_is_kept(inside)))
        return found

    def _until_all_is_kept(self, inside: list[Call]) -> list[Call]:
        """Up to the last that keeps something; without that one, if it keeps what it reads alone."""
        last = next((n for n in reversed(range(len(inside))) if _keeps(self.gradients[id(inside[n])])), -1)
        if last < 0:
            return []
        found = self.gradients[id(inside[last])]
        return inside[: last + 1] if found.keeps_made or found.own is not NONE else inside[:last]

    # Memory

    @cached_property
    def kept(self) -> dict[int, Expr]:
        """Bytes that each call is the first to keep, by identity: every storage once, parameters and buffers not."""
        seen: set[Traced] = set()
        entered: set[Part] = set()
        kept: dict[int, Expr] = {}
        for call in self.calls:
            part = self.part_of(call)
            if part is None:
                kept[id(call)] = self._kept(call, seen)
                continue
            kept[id(call)] = NONE if part in entered or self.is_cut(call) else _bytes(part.arguments, seen)
            entered.add(part)
        return kept

    def _kept(self, call: Call, seen: set[Traced]) -> Expr:
        found = self.gradients[id(call)]
        tensors = [*(call.reads[n] for n in found.keeps), *(call.makes[n] for n in found.keeps_made)]
        return found.own + _bytes(tensors, seen)


def _keeps(found: Gradient) -> bool:
    return bool(found.keeps or found.keeps_made or found.own is not NONE)


def _bytes(tensors: Sequence[torch.Tensor], seen: set[Traced]) -> Expr:
    """Bytes of the storages that nobody has kept so far."""
    total = NONE
    for root in map(root_of, tensors):
        if root not in seen and root.record.kind not in OWN:
            seen.add(root)
            total = total + bytes_of(root)
    return total
