"""The backward of a trace: which tensors have gradients, what is kept for them, what they cost.

>>> found = Autograd(trace, calls(trace))
>>> found.backward(call).flops, found.kept
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import torch

from shapeflow.cost import recurrent
from shapeflow.cost.calls import Call, bytes_of, root_of
from shapeflow.cost.probe import NONE, Gradient, Probe, Work
from shapeflow.dims.expr import Expr

if TYPE_CHECKING:
    from shapeflow.trace.result import Trace
    from shapeflow.trace.traced import Traced

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
        self.gradients = {id(call): self._gradient(call) for call in made}

    def requires(self, tensor: torch.Tensor) -> bool:
        """Whether autograd follows this tensor."""
        known = self.required.get(id(tensor))
        if known is None:
            known = self.required[id(tensor)] = tensor.requires_grad
        return known or (bool(self.written) and root_of(tensor) in self.written)

    def _gradient(self, call: Call) -> Gradient:
        required = tuple([self.requires(tensor) for tensor in call.reads])
        if not any(required):
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

    def backward(self, call: Call) -> Work:
        """Operations of the call's backward."""
        return self.gradients[id(call)].backward if id(call) in self.needed else Work()

    # Memory

    @cached_property
    def kept(self) -> dict[int, Expr]:
        """Bytes that each call is the first to keep, by identity: every storage once, parameters and buffers not."""
        seen: set[Traced] = set()
        return {id(call): self._kept(call, seen) for call in self.calls}

    def _kept(self, call: Call, seen: set[Traced]) -> Expr:
        found = self.gradients[id(call)]
        total = found.own
        tensors = [*(call.reads[n] for n in found.keeps), *(call.makes[n] for n in found.keeps_made)]
        for root in map(root_of, tensors):
            if root not in seen and root.record.kind not in ("parameter", "buffer"):
                seen.add(root)
                total = total + bytes_of(root)
        return total
