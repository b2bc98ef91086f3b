"""`Expr`: an integer polynomial over named sizes in canonical form, so that equal meaning is one and the same object.

    B, T, d = Expr.symbol("B"), Expr.symbol("T"), Expr.symbol("d")
    assert (B + T) * d is d * T + B * d
    assert (4 * d * T) // (2 * d) is 2 * T
    assert ((T + 7) // 8 * B).at(B=2, T=20) == 6

Division rounds down as Python's does. Every symbol stands for an integer of at least 1; a rule holds for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from shapeflow.dims import extremes, interval, printing, substitution
from shapeflow.dims.atoms import Atom, Symbol, symbols_in
from shapeflow.dims.division import floor_divide, modulo
from shapeflow.dims.interning import Interned
from shapeflow.dims.interval import Interval
from shapeflow.dims.polynomial import multiply, reading_order

if TYPE_CHECKING:
    from shapeflow.dims.atoms import Order
    from shapeflow.dims.polynomial import Monomial, Terms


class Expr:
    """Immutable; made by `Expr.const`, `Expr.symbol` and arithmetic with each other and ints. Equality is identity."""

    __slots__ = ("__weakref__", "_order", "_range", "_symbols", "_unpinned", "coefficients", "constant", "n_terms")
    coefficients: Terms  # {monomial: coefficient}; never changed
    constant: int | None  # the number where it is one
    n_terms: int
    _order: Order | None
    _range: Interval | None
    _symbols: frozenset[Symbol] | None
    _unpinned: Expr | Literal[False] | None  # False: nothing is pinned; self would be a cycle that outlives its users

    free_symbols: frozenset[Symbol] = frozenset()  # torch asks a node's `expr` for sympy's symbols: there are none

    @staticmethod
    def const(n: int) -> Expr:
        known = _SMALL.get(n)
        return Expr.from_terms({(): n}) if known is None else known

    @staticmethod
    def symbol(name: str, value: int | None = None) -> Expr:
        return Expr.from_atom(Symbol(name, value))

    @staticmethod
    def from_atom(atom: Atom) -> Expr:
        return Expr.from_terms({((atom, 1),): 1})

    @staticmethod
    def from_terms(terms: Terms) -> Expr:
        """The one Expr with these terms. It keeps the dict, which must not be changed afterwards."""
        key = frozenset(terms.items())
        known = _EXPRS.find(key)
        if known is not None:
            return known
        return _EXPRS.keep(key, _new(terms))

    def __add__(self, other: Expr | int) -> Expr:
        if other.__class__ is not Expr:
            if not isinstance(other, int):
                return NotImplemented
            other = Expr.const(other)
        more, fewer = self.coefficients, other.coefficients  # pyright: ignore[reportAttributeAccessIssue]  an Expr by now
        if len(more) < len(fewer):
            more, fewer = fewer, more
        total = more.copy()
        for monomial, coefficient in fewer.items():
            if coefficient := coefficient + total.get(monomial, 0):
                total[monomial] = coefficient
            else:
                del total[monomial]
        return Expr.from_terms(total)

    __radd__ = __add__

    def __neg__(self) -> Expr:
        return Expr.from_terms({monomial: -coefficient for monomial, coefficient in self.coefficients.items()})

    def __sub__(self, other: Expr | int) -> Expr:
        if other.__class__ is not Expr:
            return self + -other
        total = self.coefficients.copy()
        for monomial, coefficient in other.coefficients.items():  # pyright: ignore[reportAttributeAccessIssue]
            if coefficient := total.get(monomial, 0) - coefficient:
                total[monomial] = coefficient
            else:
                del total[monomial]
        return Expr.from_terms(total)

    def __rsub__(self, other: int) -> Expr:
        return -self + other

    def __mul__(self, other: Expr | int) -> Expr:
        if other.__class__ is not Expr:
            return self._scaled(other) if isinstance(other, int) else NotImplemented
        if self.constant is not None:
            return other._scaled(self.constant)  # pyright: ignore[reportAttributeAccessIssue]
        if other.constant is not None:  # pyright: ignore[reportAttributeAccessIssue]
            return self._scaled(other.constant)  # pyright: ignore[reportAttributeAccessIssue]
        return Expr.from_terms(multiply(self.coefficients, other.coefficients))  # pyright: ignore[reportAttributeAccessIssue]

    __rmul__ = __mul__

    def _scaled(self, times: int) -> Expr:
        if times == 1:
            return self
        if times == 0:
            return Expr.const(0)
        return Expr.from_terms({monomial: coefficient * times for monomial, coefficient in self.coefficients.items()})

    def __pow__(self, exponent: int) -> Expr:
        if not isinstance(exponent, int):
            return NotImplemented
        if exponent < 0:
            raise ValueError(f"a size to the power {exponent} is not an integer")
        if len(self.coefficients) == 1 and exponent:
            ((monomial, coefficient),) = self.coefficients.items()
            return Expr.from_terms({tuple((atom, power * exponent) for atom, power in monomial): coefficient**exponent})
        result = Expr.const(1)
        for _ in range(exponent):
            result = result * self
        return result

    def __floordiv__(self, other: Expr | int) -> Expr:
        return floor_divide(self, _expr(other)) if isinstance(other, Expr | int) else NotImplemented

    def __rfloordiv__(self, other: int) -> Expr:
        return floor_divide(Expr.const(other), self) if isinstance(other, int) else NotImplemented

    def __mod__(self, other: Expr | int) -> Expr:
        return modulo(self, _expr(other)) if isinstance(other, Expr | int) else NotImplemented

    def __rmod__(self, other: int) -> Expr:
        return modulo(Expr.const(other), self) if isinstance(other, int) else NotImplemented

    @property
    def terms(self) -> tuple[tuple[Monomial, int], ...]:
        """(monomial, coefficient) pairs in no particular order, a monomial being (atom, power) pairs."""
        return tuple(self.coefficients.items())

    @property
    def symbols(self) -> frozenset[Symbol]:
        """All symbols inside, those within atoms too."""
        if self._symbols is None:
            self._symbols = symbols_in(atom for monomial in self.coefficients for atom, _ in monomial)
        return self._symbols

    @property
    def value(self) -> int | None:
        """The number once every pinned symbol is replaced by its value, else None."""
        return self.unpinned.constant if self.constant is None else self.constant

    @property
    def unpinned(self) -> Expr:
        """The same with pinned symbols replaced by their values."""
        if self._unpinned is None:
            pinned = {symbol: Expr.const(symbol.value) for symbol in self.symbols if symbol.value is not None}
            self._unpinned = bool(pinned) and self.replace(pinned)
        return self._unpinned or self

    @property
    def order(self) -> Order:
        """A sort key that depends on the meaning alone, not on what was made before."""
        if self._order is None:
            self._order = tuple(sorted((reading_order(term), times) for term, times in self.coefficients.items()))
        return self._order

    @property
    def range(self) -> Interval:
        """Bounds that hold for all symbols >= 1, term by term; `bounds.bounds` is tighter."""
        if self._range is None:
            total: Interval = (0, 0)
            for monomial, coefficient in self.coefficients.items():
                product: Interval = (coefficient, coefficient)
                for atom, power in monomial:
                    product = interval.times(product, atom.range if power == 1 else interval.power(atom.range, power))
                total = interval.plus(total, product)
            self._range = total
        return self._range

    def at(self, **sizes: int) -> int:
        """The number at these sizes; pinned symbols may be left out, names that do not occur are ignored.

        >>> (Expr.symbol("B") * Expr.symbol("d", 32)).at(B=2)
        64
        """
        return self.evaluate({symbol: sizes[symbol.name] for symbol in self.symbols if symbol.name in sizes})

    def evaluate(self, sizes: Mapping[Symbol, int]) -> int:
        """The number at these sizes; InputError where a free symbol has none."""
        return substitution.evaluate(self, {**sizes})

    def replace(self, mapping: Mapping[Symbol, Expr]) -> Expr:
        """All these symbols replaced at once; what they are replaced by is left as it is."""
        if self.symbols.isdisjoint(mapping):
            return self
        return self.map_atoms(lambda atom: mapping.get(atom) if isinstance(atom, Symbol) else None)

    def map_atoms(self, fn: Callable[[Atom], Expr | None]) -> Expr:
        """Rebuilt from the outside in: `fn` gives what replaces an atom, or None to look inside it."""
        return substitution.map_atoms(self, fn, {})

    def __str__(self) -> str:
        return printing.show(self)

    __repr__ = __str__

    def __reduce__(self) -> tuple[Any, ...]:
        return Expr.from_terms, (self.coefficients,)  # copies and pickles lead back to the one object


def maximum(a: Expr | int, b: Expr | int) -> Expr:
    """The greater one: `max(x, x - 2)` is x."""
    return extremes.maximum(_expr(a), _expr(b))


def minimum(a: Expr | int, b: Expr | int) -> Expr:
    """The lesser one: `min(x, x - 2)` is x - 2."""
    return extremes.minimum(_expr(a), _expr(b))


def product(factors: Iterable[Expr]) -> Expr:
    """All of them multiplied; 1 for none."""
    total = Expr.const(1)
    for factor in factors:
        total = total * factor
    return total


def _expr(value: Expr | int) -> Expr:
    return value if isinstance(value, Expr) else Expr.const(value)


def _new(terms: Terms) -> Expr:
    self = object.__new__(Expr)
    self.coefficients = terms
    self.n_terms = len(terms)
    self.constant = None if len(terms) > 1 else terms.get(()) if terms else 0
    self._order = self._range = self._symbols = self._unpinned = None
    return self


_EXPRS: Interned[frozenset[tuple[Monomial, int]], Expr] = Interned()
_SMALL = {n: Expr.from_terms({(): n} if n else {}) for n in range(-64, 1025)}  # kept for good: most sizes are small
