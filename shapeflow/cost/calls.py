"""The operators of a trace as calls that can be made again: functions with the fake tensors that they were given.

>>> [call.record.operator for call in calls(trace)]
['embedding', 'linear', ...]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from shapeflow.torch_private import FakeTensor, tree_leaves
from shapeflow.trace.memo import Memo
from shapeflow.trace.traced import Record, Traced, size_key, traced

if TYPE_CHECKING:
    from torch import fx

    from shapeflow.dims.expr import Expr
    from shapeflow.trace.attempt import Attempt
    from shapeflow.trace.result import Trace


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One operator: `key` is equal for calls that do the same work, `reads` are the tensors among the arguments."""

    record: Record
    function: Callable[..., Any]
    args: Any
    kwargs: Any
    reads: tuple[torch.Tensor, ...]
    makes: tuple[torch.Tensor, ...]
    key: Any

    @property
    def name(self) -> str:
        return str(self.record.node)

    @property
    def path(self) -> str:
        """Of the innermost module, `""` for the root."""
        return self.record.scopes[-1].path if self.record.scopes else ""


def calls(trace: Trace) -> tuple[Call, ...]:
    """Every operator of the trace, in the order of running."""
    return tuple(_Reader(trace._attempt).calls())


def root_of(tensor: torch.Tensor) -> Traced:
    """What the tracer knows of the tensor that this one looks into; equal for all views of one storage."""
    known = traced(tensor)
    assert known is not None, "a tensor of a traced graph that the tracer does not know"
    return known.root


def numbers(shape: tuple[Any, ...]) -> Expr:
    """How many elements a tensor with these sizes has."""
    from shapeflow.dims.expr import Expr, product

    return product(Expr.const(size) if type(size) is int else size for size in shape)


def bytes_of(known: Traced) -> Expr:
    """Bytes of the storage behind a root."""
    signature = known.signature
    return numbers(signature.sizes) * signature.dtype.itemsize


def expr_of(size: Any) -> Expr:
    """A plain or symbolic integer as a formula."""
    from shapeflow.dims.expr import Expr

    found = size_key(size)
    return Expr.const(found) if type(found) is int else found


class _Reader:
    """Gives back to the nodes of the fx graph the values that they stood for."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.env = attempt.env
        self.keys = Memo(attempt.recorder.signatures)
        self.values: dict[fx.Node, Any] = {}

    def calls(self) -> Iterator[Call]:
        for node in self.attempt.recorder.writer.graph.nodes:
            record = node.meta.get("shapeflow")
            if record is not None and record.kind == "operator":
                yield self.call(node, record)

    def call(self, node: fx.Node, record: Record) -> Call:
        args, kwargs = self.filled(node.args), self.filled(node.kwargs)
        function = getattr(torch.Tensor, node.target) if isinstance(node.target, str) else node.target
        reads = tuple(leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, FakeTensor))
        makes = tuple(leaf for leaf in tree_leaves(node.meta["val"]) if isinstance(leaf, FakeTensor))
        key = self.keys.key(function, args, kwargs, [])
        return Call(record, function, args, kwargs, reads, makes, str(node) if key is None else key)

    def filled(self, value: Any) -> Any:
        """Arguments as fx holds them, with values in the place of nodes."""
        from torch import fx

        if isinstance(value, fx.Node):
            if value not in self.values:
                self.values[value] = self.value(value)
            return self.values[value]
        if isinstance(value, tuple | list):
            return type(value)([self.filled(item) for item in value])
        if isinstance(value, dict):
            return {name: self.filled(item) for name, item in value.items()}
        if isinstance(value, slice):
            return slice(self.filled(value.start), self.filled(value.stop), self.filled(value.step))
        return value

    def value(self, node: fx.Node) -> Any:
        meta = node.meta
        if "val" in meta:
            return meta["val"]
        if "size" in meta:
            return self.env.number(meta["size"])
        if node.op == "get_attr":
            return self.attribute(str(node.target))
        if node.op == "placeholder":
            return self.attempt.bound.arguments.get(str(node.target))
        args, kwargs = self.filled(node.args), self.filled(node.kwargs)
        function = getattr(torch.Tensor, node.target) if isinstance(node.target, str) else node.target
        return function(*args, **kwargs)  # type: ignore[operator]

    def attribute(self, path: str) -> Any:
        if path in self.attempt.parameters:
            return self.attempt.parameters[path]
        held = self.attempt.recorder.writer.attributes[path]
        return self.attempt.ledger.constant(held) if type(held) is torch.Tensor else held
