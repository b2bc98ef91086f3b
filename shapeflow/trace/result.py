"""What a trace is made of: nodes, the edges between them, and the shapes on the edges.

    >>> trace = sf.trace(model, "B T:int64")
    >>> [str(edge.shape) for edge in trace.outputs]
    ['B T vocab']
"""

from __future__ import annotations

from dataclasses import dataclass

from shapeflow.dims.expr import Expr


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of one tensor, one expression an axis, and its dtype (`float32`, `int64`, ...)."""

    dims: tuple[Expr, ...]
    dtype: str

    def __str__(self) -> str:
        return " ".join(f"({text})" if " " in text else text for text in map(str, self.dims))

    def at(self, **sizes: int) -> tuple[int, ...]:
        """The sizes as numbers; names that have a value of their own may be left out."""
        return tuple(dim.at(**sizes) for dim in self.dims)


@dataclass(frozen=True, slots=True)
class Scope:
    """One call of one module: `call` counts the calls of the same module from 0."""

    path: str
    kind: str
    call: int = 0


@dataclass(frozen=True, slots=True)
class Location:
    """A line of the user's code."""

    file: str
    line: int
    code: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.code}" if self.code else f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Node:
    """An input, an operator, a constant or the output of the model.

    `kind` is one of `input`, `operator`, `constant`, `output`; `operator` is the function's own name
    (`linear`, `view`, `add`); `scopes` are the module calls around it, outermost first, without the root.
    """

    name: str
    kind: str
    operator: str = ""
    scopes: tuple[Scope, ...] = ()
    outputs: tuple[Shape, ...] = ()
    parameters: tuple[str, ...] = ()
    location: Location | None = None

    @property
    def module(self) -> str:
        """Path of the innermost module, `""` for the root."""
        return self.scopes[-1].path if self.scopes else ""


@dataclass(frozen=True, slots=True)
class Edge:
    """A tensor on its way: the `output`-th result of `source` read as the `argument`-th tensor of `target`."""

    source: str
    target: str
    output: int
    argument: int
    shape: Shape


@dataclass(frozen=True, slots=True)
class ModuleInfo:
    """A module of the traced model: `parameters` counts unique numbers in it and below it."""

    path: str
    kind: str
    parameters: int
    called: int


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison of sizes that decided how the model ran: `text` holds, `location` is who asked."""

    text: str
    location: Location | None
    operator: str = ""

    def __str__(self) -> str:
        return self.text
