"""From the recorder's notes to nodes and edges with a name on every axis.

Names that an annotation declares late (`-> Float[Tensor, "B T d_ff"]` behind a GELU) also belong on the tensors
before: operators that keep their axes hand names back to their inputs and on to their outputs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shapeflow.dims.expr import Expr
from shapeflow.trace.arguments import arguments_of, likeness, named, spelt
from shapeflow.trace.result import Arguments, Edge, Node, Shape
from shapeflow.trace.sharding import Collective
from shapeflow.trace.source import location
from shapeflow.trace.traced import Record, Signature

if TYPE_CHECKING:
    from shapeflow.trace.attempt import Attempt

KEEPS_AXES = frozenset(
    """add sub mul div pow rsub radd rmul rdiv truediv floordiv remainder maximum minimum where lerp addcmul addcdiv
    clamp clip clamp_min clamp_max relu relu6 gelu silu elu selu celu leaky_relu mish sigmoid logsigmoid tanh hardswish
    hardsigmoid hardtanh softplus softsign softmax log_softmax dropout alpha_dropout layer_norm rms_norm batch_norm
    group_norm instance_norm normalize exp log log1p expm1 sqrt rsqrt abs neg square reciprocal sin cos erf
    contiguous clone detach to type_as float half bfloat16 double masked_fill masked_fill_ copy_ add_ mul_ sub_ div_
    cumsum cumprod flip roll triu tril isfinite isnan eq ne lt le gt ge logical_and logical_or logical_not and or
    iadd imul isub idiv invert bitwise_and bitwise_or setitem data view_as""".split()
)
"""Operators whose output axes are the input's, aligned from the last one as in broadcasting."""

Shapes = dict[tuple[int, int], list[Expr]]


class View:
    """Nodes and edges of one attempt."""

    def __init__(self, attempt: Attempt) -> None:
        inputs = [record for _, record in attempt.inputs]
        self.attempt = attempt
        self.records = [*inputs, *attempt.recorder.ledger.records]
        self.shapes: Shapes = {}
        self.kept: dict[int, Record] = {}
        self.arguments: dict[Any, Arguments] = {}
        self._collect()
        self._spread_names()
        self.names = self._unique_names()

    def _collect(self) -> None:
        for record in self._all():
            for index, signature in enumerate(record.outputs):
                self.shapes[id(record), index] = list(signature.shape.dims)

    def _all(self) -> list[Record]:
        """The records in order, with the constants and parameters that they read before the first reader."""
        found: dict[int, Record] = {id(record): record for record in self.records}
        for record in self.records:
            for source, _, _ in record.sources:
                found.setdefault(id(source), source)
        self.kept = found
        return list(found.values())

    # Names

    def _spread_names(self) -> None:
        keepers = [record for record in self.records if record.operator.strip("_") in KEEPS_AXES or _keeps(record)]
        for record in keepers:
            self._hand_on(record, forward=True)
        for record in reversed(keepers):
            self._hand_on(record, forward=False)

    def _hand_on(self, record: Record, *, forward: bool) -> None:
        for index in range(len(record.outputs)):
            output = self.shapes[id(record), index]
            for source, number, _ in record.sources:
                if source.kind in ("parameter", "buffer"):
                    continue
                given = self.shapes.get((id(source), number))
                if given is not None:
                    _align(given, output) if forward else _align(output, given)

    # Nodes and edges

    def _unique_names(self) -> dict[int, str]:
        """The fx node's name; for a tensor inside an input the way to it (`batch.ids`, `images[0]`)."""
        return {
            id(record): record.path if record.kind == "input" else str(record.node)
            for record in self.kept.values()
            if record.node is not None
        }

    def shape(self, record: Record, index: int) -> Shape:
        return self._spelt(replace(record.outputs[index].shape, dims=tuple(self.shapes[id(record), index])))

    def _spelt(self, shape: Shape) -> Shape:
        """`d_head` for `d_model//n_heads`, where an attribute of that name holds it."""
        spelling = self.attempt.spelling
        return replace(shape, dims=tuple(_spelt(dim, spelling) for dim in shape.dims)) if spelling else shape

    def node(self, record: Record) -> Node:
        outputs = tuple(self.shape(record, index) for index in range(len(record.outputs)))
        read = dict.fromkeys(source.path for source, _, _ in record.sources if source.kind in ("parameter", "buffer"))
        name, where = self.names[id(record)], location(record.place)
        arguments = self._arguments(record, outputs) if record.kind == "operator" else ()
        return Node(name, record.kind, record.operator, record.scopes, outputs, tuple(read), where, arguments)

    def _arguments(self, record: Record, outputs: tuple[Shape, ...]) -> Arguments:
        like = likeness(record.node)
        if like not in self.arguments:
            spelling = self.attempt.spelling
            self.arguments[like] = spelt(arguments_of(record.node), lambda dim: _spelt(dim, spelling))
        found = self.arguments[like]
        return named(found, outputs[0].dims) if outputs else found

    def nodes(self) -> tuple[Node, ...]:
        """Inputs, then constants and operators as they run."""
        found: list[Node] = []
        seen: set[int] = set()
        for record in self.records:
            for source, _, _ in record.sources:
                if source.kind == "constant" and id(source) not in seen:
                    seen.add(id(source))
                    found.append(self.node(source))
            if id(record) not in seen and record.kind in ("input", "operator"):
                seen.add(id(record))
                found.append(self.node(record))
        outputs = tuple(edge.shape for edge in self.output_edges())
        if outputs:
            found.append(Node("output", "output", outputs=outputs))
        return tuple(found)

    def edges(self) -> tuple[Edge, ...]:
        """Every tensor from whoever made it (or wrote to it last) to whoever reads it."""
        found: list[Edge] = []
        for record in self.records:
            argument = 0
            for source, index, signature in record.sources:
                if source.kind in ("parameter", "buffer"):
                    continue
                shape = self._edge_shape(source, index, signature)
                found.append(Edge(self.names[id(source)], self.names[id(record)], index, argument, shape))
                argument += 1
        return (*found, *self.output_edges())

    def collectives(self) -> tuple[Collective, ...]:
        """What ranks send each other, in the order in which it starts."""
        made = self.attempt.exchange.collectives
        return tuple(replace(each, sent=self._spelt(each.sent), received=self._spelt(each.received)) for each in made)

    def output_edges(self) -> tuple[Edge, ...]:
        return tuple(
            Edge(self.names[id(record)], "output", index, number, self._edge_shape(record, index, signature))
            for number, (_, record, index, signature) in enumerate(self.attempt.outputs)
            if id(record) in self.names
        )

    def _edge_shape(self, source: Record, index: int, signature: Signature) -> Shape:
        known = self.shapes.get((id(source), index))
        dims = signature.shape.dims
        if known is not None and [dim.value for dim in known] == [dim.value for dim in dims]:
            return self._spelt(replace(signature.shape, dims=tuple(known)))
        return self._spelt(signature.shape)


def _align(given: list[Expr], taken: list[Expr]) -> None:
    """Where an axis of `taken` is a bare number and the same axis of `given` has a name for it, take the name."""
    for back in range(1, min(len(given), len(taken)) + 1):
        name, number = given[-back], taken[-back]
        if number.constant is not None and name.constant is None and name.value == number.constant:
            taken[-back] = name


def _spelt(dim: Expr, spelling: dict[Expr, Expr]) -> Expr:
    if dim.constant is not None:
        return dim
    spelt = dim.map_atoms(lambda atom: spelling.get(Expr.from_atom(atom)))
    return spelling.get(spelt, spelt)


def _keeps(record: Record) -> bool:
    """An operator that writes in place keeps the axes of what it writes to."""
    return record.operator.endswith("_")
