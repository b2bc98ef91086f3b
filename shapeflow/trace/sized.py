"""A trace with numbers in place of names: `trace.at(B=2, T=5)`.

>>> str(trace.at(B=2, T=5).outputs[0].shape)
'2 5 100'
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from shapeflow.dims.atoms import Symbol
from shapeflow.dims.expr import Expr
from shapeflow.errors import InputError
from shapeflow.trace.arguments import spelt
from shapeflow.trace.result import Edge, Node, Shape, Trace

if TYPE_CHECKING:
    from shapeflow.dims.env import DimEnv


def sized(trace: Trace, sizes: Mapping[str, int]) -> Trace:
    """A copy of the trace whose shapes are evaluated as far as `sizes` reach; unknown names are an error."""
    unknown = [name for name in sizes if name not in trace.dims]
    if unknown:
        known = ", ".join(trace.dims) or "none"
        raise InputError(f"{trace.name} has no dim {', '.join(unknown)}; its dims are {known}")
    wrong = {name: size for name, size in sizes.items() if type(size) is not int or size < 0}
    if wrong:
        shown = ", ".join(f"{name}={size!r}" for name, size in wrong.items())
        raise InputError(f"a size is a whole number of at least 0, not {shown}")
    env = trace._attempt.env
    for name, low, high in trace.domain.bounds:
        if name in sizes and low == high and sizes[name] != low:
            raise InputError(f"{trace.name} was traced for {name} == {low} only: {name}={sizes[name]} is another trace")
    mapping = _mapping(env, sizes)
    result = Trace(trace._attempt)
    result.__dict__["nodes"] = tuple(_node(node, mapping) for node in trace.nodes)
    result.__dict__["edges"] = tuple(_edge(edge, mapping) for edge in trace.edges)
    return result


def _mapping(env: DimEnv, sizes: Mapping[str, int]) -> dict[Symbol, Expr]:
    given = {symbol: Expr.const(sizes[symbol.name]) for symbol in env.hints if symbol.name in sizes}
    for symbol, definition in env.definitions.items():  # in the order of making: later ones lean on earlier ones
        given.setdefault(symbol, definition.replace(given))
    return given


def _shape(shape: Shape, mapping: Mapping[Symbol, Expr]) -> Shape:
    return replace(shape, dims=tuple(dim.replace(mapping).unpinned for dim in shape.dims))


def _node(node: Node, mapping: Mapping[Symbol, Expr]) -> Node:
    outputs = tuple(_shape(shape, mapping) for shape in node.outputs)
    return replace(node, outputs=outputs, arguments=spelt(node.arguments, lambda dim: dim.replace(mapping).unpinned))


def _edge(edge: Edge, mapping: Mapping[Symbol, Expr]) -> Edge:
    return replace(edge, shape=_shape(edge.shape, mapping))
