"""What the tracer knows of each fake tensor, kept on the tensor itself.

>>> known = traced(x)
>>> known.signature.sizes, known.node
((B, T), %tokens)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from shapeflow.dims.expr import Expr
from shapeflow.torch_private import FakeTensor
from shapeflow.trace.distributed import sharding_of
from shapeflow.trace.result import Scope, Shape
from shapeflow.trace.sharding import Sharding
from shapeflow.trace.source import Place


class Signature:
    """Sizes, strides, dtype, device of a tensor: interned by `Signatures`, so that equal means identical."""

    __slots__ = ("_shape", "device", "dtype", "requires_grad", "sharding", "sizes", "strides")

    def __init__(
        self, sizes: tuple[Any, ...], strides: Any, dtype: torch.dtype, device: Any, grad: bool, sharding: Any = None
    ) -> None:
        self.sizes, self.strides, self.dtype, self.device, self.requires_grad = sizes, strides, dtype, device, grad
        self.sharding: Sharding | None = sharding
        self._shape: Shape | None = None

    @property
    def shape(self) -> Shape:
        """The sizes as expressions, for the reader."""
        if self._shape is None:
            dims = tuple(size if type(size) is Expr else Expr.const(size) for size in self.sizes)
            self._shape = Shape(dims, str(self.dtype).removeprefix("torch."), self.sharding)
        return self._shape


@dataclass(slots=True)
class Record:
    """What the recorder notes of one operator, beside torch.fx's own metadata.

    `sources` are the tensors that it reads, in the order of its arguments: the record that made each (or wrote to
    it last), which of its outputs, and the signature at that time.
    """

    kind: str
    operator: str
    scopes: tuple[Scope, ...]
    place: Place | None
    sources: list[tuple[Record, int, Signature]]
    outputs: list[Signature]
    node: Any = None
    path: str = ""
    number: int = 0


class Traced:
    """The tensor's signature, its fx node, the record (and which output of it) that made it, and its storage's root.

    `root` is the tensor that a view looks into: a write through one is seen by all. `value` is the whole number in a
    0-d tensor, `origin` how it came about, `rows` the count of true elements of a mask, `real` the tensor behind it.
    """

    __slots__ = ("index", "node", "origin", "real", "record", "root", "rows", "signature", "value", "writer")

    def __init__(self, signature: Signature, node: Any, record: Record, index: int) -> None:
        self.signature, self.node, self.record, self.index = signature, node, record, index
        self.root: Traced = self
        self.writer: Record | None = None
        self.real: torch.Tensor | None = None
        self.rows: Any = None
        self.origin: Any = None
        self.value: Any = None


def traced(tensor: torch.Tensor) -> Traced | None:
    """The note on this tensor, if the tracer has met it."""
    return tensor.__dict__.get("_traced")


def mark(tensor: torch.Tensor, known: Traced) -> None:
    """Put the note on the tensor."""
    vars(tensor)["_traced"] = known


def size_key(size: Any) -> Any:
    """A plain integer, or the expression of a symbolic one."""
    return size if type(size) is int else size.node.size


class Signatures:
    """Interns signatures."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[Any, Signature] = {}

    def of(self, tensor: torch.Tensor) -> Signature:
        """The signature of a tensor; call it with the function modes off."""
        sizes = tuple(map(size_key, tensor.shape))
        strides = tuple(map(size_key, tensor.stride())) if tensor.layout is torch.strided else tensor.layout
        spread = None if type(tensor) is FakeTensor else sharding_of(tensor)
        return self._interned(sizes, strides, tensor.dtype, tensor.device, tensor.requires_grad, spread)

    def renamed(self, known: Signature, sizes: tuple[Any, ...]) -> Signature:
        """The same under other names of equal sizes."""
        return self._interned(sizes, known.strides, known.dtype, known.device, known.requires_grad, known.sharding)

    def _interned(self, *key: Any) -> Signature:
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Signature(*key)
        return known


def source_of(known: Traced) -> tuple[Record, int, Signature]:
    """Whoever made the tensor, or wrote to its storage after that."""
    writer = known.root.writer
    if writer is not None and writer.number > known.record.number:
        return writer, 0, known.signature
    return known.record, known.index, known.signature
