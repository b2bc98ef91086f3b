"""Atoms, the indivisible parts of a polynomial: a symbol, `a // b`, `a % b`, `max(...)`, `min(...)`.

Equal atoms are one object while anything uses it (`Symbol("B") is Symbol("B")`), so they compare and hash by
identity. `Expr`'s operators build the compound ones, for they know the rules; here is only the data: the parts,
`order`, a sort key that depends on the atom's meaning alone, and `range`, what holds for all symbols >= 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from shapeflow.dims import interval
from shapeflow.dims.interning import Interned
from shapeflow.dims.interval import Interval

if TYPE_CHECKING:
    from shapeflow.dims.expr import Expr

Order = tuple[Any, ...]


class Symbol:
    """A named size of at least 1. `value` None: free; `value` 32: pinned, a name with a known value."""

    __slots__ = ("__weakref__", "name", "order", "range", "value")
    name: str
    value: int | None
    order: Order
    range: Interval

    def __new__(cls, name: str, value: int | None = None) -> Symbol:
        key = (cls, name, value)
        if (known := _ATOMS.find(key)) is not None:
            return known
        self = object.__new__(cls)
        self.name, self.value = name, value
        self.order = (0, name, value is not None, value or 0)
        self.range = (1 if value is None else min(value, 1), None)
        return _ATOMS.keep(key, self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Symbol, (self.name, self.value)

    def __repr__(self) -> str:
        return self.name if self.value is None else f"{self.name}={self.value}"


class FloorDiv:
    """`numerator // denominator`, rounded down as Python does."""

    __slots__ = ("__weakref__", "denominator", "numerator", "order", "range")
    numerator: Expr
    denominator: Expr
    order: Order
    range: Interval

    def __new__(cls, numerator: Expr, denominator: Expr) -> FloorDiv:
        key = (cls, numerator, denominator)
        if (known := _ATOMS.find(key)) is not None:
            return known
        self = object.__new__(cls)
        self.numerator, self.denominator = numerator, denominator
        self.order = (1, numerator.order, denominator.order)
        self.range = interval.floor_divide(numerator.range, denominator.range)
        return _ATOMS.keep(key, self)

    def __reduce__(self) -> tuple[Any, ...]:
        return FloorDiv, (self.numerator, self.denominator)

    def __repr__(self) -> str:
        return f"FloorDiv({self.numerator}, {self.denominator})"


class Mod:
    """`numerator % denominator`, with the denominator's sign as in Python."""

    __slots__ = ("__weakref__", "denominator", "numerator", "order", "range")
    numerator: Expr
    denominator: Expr
    order: Order
    range: Interval

    def __new__(cls, numerator: Expr, denominator: Expr) -> Mod:
        key = (cls, numerator, denominator)
        if (known := _ATOMS.find(key)) is not None:
            return known
        self = object.__new__(cls)
        self.numerator, self.denominator = numerator, denominator
        self.order = (2, numerator.order, denominator.order)
        self.range = interval.modulo(numerator.range, denominator.range)
        return _ATOMS.keep(key, self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Mod, (self.numerator, self.denominator)

    def __repr__(self) -> str:
        return f"Mod({self.numerator}, {self.denominator})"


class Max:
    """The greatest of two or more expressions."""

    __slots__ = ("__weakref__", "args", "order", "range")
    args: tuple[Expr, ...]
    order: Order
    range: Interval

    def __new__(cls, args: frozenset[Expr]) -> Max:
        key = (cls, args)
        if (known := _ATOMS.find(key)) is not None:
            return known
        self = object.__new__(cls)
        self.args = _in_order(args)
        self.order = (3, *(arg.order for arg in self.args))
        self.range = interval.largest([arg.range for arg in args])
        return _ATOMS.keep(key, self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Max, (frozenset(self.args),)

    def __repr__(self) -> str:
        return f"Max({', '.join(map(str, self.args))})"


class Min:
    """The least of two or more expressions."""

    __slots__ = ("__weakref__", "args", "order", "range")
    args: tuple[Expr, ...]
    order: Order
    range: Interval

    def __new__(cls, args: frozenset[Expr]) -> Min:
        key = (cls, args)
        if (known := _ATOMS.find(key)) is not None:
            return known
        self = object.__new__(cls)
        self.args = _in_order(args)
        self.order = (4, *(arg.order for arg in self.args))
        self.range = interval.smallest([arg.range for arg in args])
        return _ATOMS.keep(key, self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Min, (frozenset(self.args),)

    def __repr__(self) -> str:
        return f"Min({', '.join(map(str, self.args))})"


Atom = Symbol | FloorDiv | Mod | Max | Min

_ATOMS: Interned[tuple[Any, ...], Any] = Interned()


def children(atom: Atom) -> tuple[Expr, ...]:
    """The expressions directly inside an atom."""
    if isinstance(atom, Symbol):
        return ()
    return atom.args if isinstance(atom, Max | Min) else (atom.numerator, atom.denominator)


def symbols_in(atoms: Iterable[Atom]) -> frozenset[Symbol]:
    """The symbols among the atoms and inside them."""
    found: set[Symbol] = set()
    for atom in atoms:
        if isinstance(atom, Symbol):
            found.add(atom)
        else:
            found.update(*[part.symbols for part in children(atom)])
    return frozenset(found)


def _in_order(args: frozenset[Expr]) -> tuple[Expr, ...]:
    return tuple(sorted(args, key=lambda arg: arg.order))
