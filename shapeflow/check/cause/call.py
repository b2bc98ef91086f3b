"""`Call`: the operator that raised, as data: what it was given, in which module, on which line.

>>> call.operator, call.tensor("input").dims, call.path
('linear', (B, 490), 'head')

It is made from a trace or from real tensors alike; sizes are `Expr`, plain numbers among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from shapeflow.check.cause.expression import Expression
from shapeflow.check.cause.parameters import PARAMETERS
from shapeflow.dims.expr import Expr
from shapeflow.trace.result import Location
from shapeflow.trace.result import shape_text as plain_shape

Dims = tuple[Expr, ...]


class Maker:
    """Who made a tensor: an operator in a module, with the tensors that it read. Made when asked for."""

    def __init__(self, operator: str, path: str, kind: str, location: Location | None, args: Any, inputs: Any) -> None:
        self.operator, self.path, self.kind, self.location = operator, path, kind, location
        self.args, self._inputs = args, inputs

    @property
    def inputs(self) -> tuple[Operand, ...]:
        """The tensors that it read, parameters among them."""
        return self._inputs()


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor among the arguments. `sizes` are the numbers of this run; `kind` is input, parameter, buffer or result.

    `low` and `high` are the least and the greatest element of a real tensor of whole numbers.
    """

    dims: Dims
    sizes: tuple[int, ...]
    dtype: str = "float32"
    kind: str = "result"
    path: str = ""
    maker: Maker | None = field(default=None, repr=False)
    high: int | None = None
    low: int | None = None

    @property
    def rank(self) -> int:
        return len(self.dims)

    def __str__(self) -> str:
        return shape_text(self.dims)


@dataclass(frozen=True, slots=True)
class Call:
    """See the module. `module` is the innermost one around the operator, `path` its place in `root`.

    `arguments` are by parameter name where the operator's are known, by position ("0", "1") otherwise.
    `owner` is the module whose own code stands on the line of `location`, `promised` what its annotation says of the
    result; `expression` is the source of the call.
    """

    operator: str
    arguments: Mapping[str, Any]
    error: str
    root: nn.Module | None = None
    module: nn.Module | None = None
    path: str = ""
    location: Location | None = None
    expression: Expression | None = None
    promised: Dims | None = None

    def tensor(self, name: str) -> Operand | None:
        """The argument of this name, where it is a tensor."""
        value = self.arguments.get(name)
        return value if isinstance(value, Operand) else None

    @property
    def tensors(self) -> list[Operand]:
        """All tensors among the arguments, in order, those in lists too."""
        return list(operands_in(list(self.arguments.values())))

    def text(self, name: str, default: str = "x") -> str:
        """An argument as the code writes it (`x.flatten(1)`)."""
        names = PARAMETERS.get(self.operator, ())
        found = None if self.expression is None else self.expression.argument(name, names, self.callee)
        return found or default

    @property
    def callee(self) -> str:
        """What the source calls: the module's own name where it is called as a module, else the operator."""
        return self.path.rpartition(".")[2]

    @property
    def direct(self) -> bool:
        """Whether the line of `location` itself calls this module or this operator, not something around it."""
        return self.expression is not None and self.expression.calls(self.callee, self.operator)


def operands_in(value: Any) -> Any:
    """Each operand of nested lists and tuples."""
    if isinstance(value, Operand):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from operands_in(item)
    elif isinstance(value, dict):
        yield from operands_in(list(value.values()))


def same(a: Expr | int, b: Expr | int) -> bool:
    """Whether two sizes are known to be equal; a name and a number are when the name is pinned to it."""
    first, second = _expr(a).unpinned, _expr(b).unpinned
    return first is second


def number(size: Expr | int) -> int | None:
    """A size as a number where it is one."""
    return size if isinstance(size, int) else size.value


def valued(size: Expr | int) -> str:
    """A size with its number where the name has one: `d_model=32`."""
    expr = _expr(size)
    known = expr.value if expr.constant is None else None
    return str(expr) if known is None else f"{expr}={known}"


def factors_text(dims: Any, joint: str = "*") -> str:
    """`10*7*7`, the axes in their order."""
    return joint.join(f"({dim})" if " " in str(dim) else str(dim) for dim in dims)


def shape_text(dims: Any) -> str:
    """`B 10 7 7`, or `scalar`."""
    return plain_shape(dims) or "scalar"


def names_in(*sizes: Expr | int) -> tuple[str, ...]:
    """The names in these sizes, and the sizes themselves where they are numbers."""
    found: dict[str, None] = {}
    for size in sizes:
        symbols = sorted(_expr(size).symbols, key=str)
        found.update(dict.fromkeys([symbol.name for symbol in symbols] or [str(size)]))
    return tuple(found)


def submodule(root: nn.Module | None, path: str) -> nn.Module | None:
    """The module at a path; None where it was made in forward, or is kept in a plain list."""
    if root is None:
        return None
    try:
        return root.get_submodule(path)
    except AttributeError:
        return None


def _expr(value: Expr | int) -> Expr:
    return value if isinstance(value, Expr) else Expr.const(value)
