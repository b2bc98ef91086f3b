"""The ledger: a record for every operator, and for every tensor who made it.

Tensors that no recorded operator made (parameters, buffers, constants of the model) are admitted when an operator
first reads them.
"""

from __future__ import annotations

from typing import Any

import torch

from shapeflow.torch_private import (
    DisableTorchFunction,
    FakeTensor,
    ShapeMode,
    fake_like,
    is_dtensor,
    local_of,
    spread_like,
    waited,
)
from shapeflow.trace.functions import operator_name
from shapeflow.trace.modules import ModuleStack
from shapeflow.trace.source import Place, stack_trace
from shapeflow.trace.traced import Record, Signature, Signatures, Traced, mark, source_of
from shapeflow.trace.writer import Writer


class Ledger:
    """Records in the order of running, and a note on each tensor."""

    def __init__(self, writer: Writer, mode: ShapeMode, modules: ModuleStack, device: torch.device) -> None:
        self.writer, self.mode, self.modules, self.device = writer, mode, modules, device
        self.signatures = Signatures()
        self.records: list[Record] = []
        self._fakes: dict[int, torch.Tensor] = {}

    def signature(self, tensor: torch.Tensor) -> Signature:
        """The signature of a tensor, asked outside of any operator."""
        with DisableTorchFunction():
            return self.signatures.of(tensor)

    def note(self, function: Any, tensors: list[torch.Tensor], found: Place | None, node: Any) -> Record:
        """A record for an operator that read these tensors."""
        modules = self.modules
        record = Record("operator", operator_name(function), modules.scopes, found, [], [], node)
        record.sources = [source_of(tensor.__dict__["_traced"]) for tensor in tensors]
        record.number = len(self.records)
        self.records.append(record)
        meta = node.meta
        meta["nn_module_stack"] = modules.fx_stack
        meta["stack_trace"] = stack_trace(found)
        meta["shapeflow"] = record
        return record

    def admit(self, value: Any) -> Any:
        """`value` with each real or unknown tensor in it replaced by a fake that the graph knows."""
        kind = type(value)
        if kind is FakeTensor:
            if "_traced" not in value.__dict__:
                self.adopt(value)
            return value
        if kind is tuple or kind is list:
            return kind([self.admit(item) for item in value])
        if kind is dict:
            return {name: self.admit(item) for name, item in value.items()}
        if isinstance(value, torch.Tensor):
            return self._admitted(waited(value))
        return value

    def _admitted(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor that is no plain fake: a real one, or one that is spread over ranks, of fakes or of real ones."""
        if type(tensor) is FakeTensor:
            return self.admit(tensor)
        if is_dtensor(tensor):
            if "_traced" in vars(tensor):
                return tensor
            local = waited(local_of(tensor))
            if type(local) is FakeTensor:
                self.adopt(tensor)
                return tensor
        return self.constant(tensor)

    def fake(self, tensor: torch.Tensor) -> torch.Tensor:
        """A fake of a real tensor, on its device; one on meta stands for one where the model is to run."""
        device = self.device if tensor.device.type == "meta" else tensor.device
        if not is_dtensor(tensor):
            return fake_like(self.mode, tensor, device)
        return spread_like(tensor, fake_like(self.mode, local_of(tensor), device))

    def constant(self, tensor: torch.Tensor) -> torch.Tensor:
        """The fake of a real tensor that is neither an input nor registered on the model."""
        fake = self._fakes.get(id(tensor))
        if fake is None:
            fake = self.fake(tensor)
            self.adopt(fake, real=tensor)
        return fake

    def adopt(self, fake: torch.Tensor, *, real: Any = None) -> Traced:
        """Give a tensor that comes from nowhere a place in the graph: a constant."""
        path = f"_constant_{len(self.writer.attributes)}"
        self.writer.attributes[path] = fake if real is None else real
        return self.register(fake, real, path, "constant")

    def register(self, fake: torch.Tensor, real: Any, path: str, kind: str) -> Traced:
        """Note a parameter, buffer or constant; its node is made when an operator first reads it."""
        signature = self.signature(fake)
        record = Record(kind, "", self.modules.scopes if kind == "constant" else (), None, [], [signature], None, path)
        known = Traced(signature, None, record, 0)
        known.real = real
        mark(fake, known)
        if real is not None:
            self._fakes[id(real)] = fake
        return known

    def input(self, path: str, fake: torch.Tensor, node: Any, signature: Signature) -> Record:
        """Note an input, or a tensor inside one."""
        record = Record("input", "", (), None, [], [signature], node, path)
        mark(fake, Traced(signature, node, record, 0))
        node.meta["val"] = fake
        node.meta["shapeflow"] = record
        return record
