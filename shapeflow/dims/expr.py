"""`Expr`: an integer polynomial over named sizes in canonical form, so that equal meaning is one and the same object.

    B, T, d = Expr.symbol("B"), Expr.symbol("T"), Expr.symbol("d")
    assert (B + T) * d is d * T + B * d
    assert (4 * d * T) // (2 * d) is 2 * T
    assert ((T + 7) // 8 * B).at(B=2, T=20) == 6

Division rounds down as Python's does. Every symbol stands for an integer of at least 1; a rule holds for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from shapeflow.dims import interval
from shapeflow.dims.atoms import Atom, FloorDiv, Max, Min, Mod, Order, Symbol, children
from shapeflow.dims.interning import Interned
from shapeflow.dims.interval import Interval
from shapeflow.dims.polynomial import (
    common_divisor,
    common_monomial,
    divide,
    divide_exactly,
    leading_monomial,
    multiply,
    reading_order,
)
from shapeflow.errors import InputError

if TYPE_CHECKING:
    from shapeflow.dims.polynomial import Monomial, Terms

_NOTHING: frozenset[Symbol] = frozenset()


class Expr:
    """Immutable; made by `Expr.const`, `Expr.symbol` and arithmetic. Equality and hash are identity."""

    __slots__ = ("__weakref__", "_order", "_range", "_symbols", "_unpinned", "coefficients", "constant")
    coefficients: Terms  # {monomial: coefficient}; never changed
    constant: int | None  # the number when it is one
    _order: Order | None
    _range: Interval | None
    _symbols: frozenset[Symbol] | None
    _unpinned: Expr | None  # only where it differs from self: a cycle would outlive its last user

    free_symbols: frozenset[Symbol] = _NOTHING  # torch asks a node's `expr` for it; none is sympy's

    @staticmethod
    def const(n: int) -> Expr:
        return _SMALL.get(n) or _intern({(): n} if n else {})

    @staticmethod
    def symbol(name: str, value: int | None = None) -> Expr:
        return _intern({((Symbol(name, value), 1),): 1})

    @staticmethod
    def of(atom: Atom) -> Expr:
        return _intern({((atom, 1),): 1})

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
            if left := total.get(monomial, 0) + coefficient:
                total[monomial] = left
            else:
                del total[monomial]
        return _intern(total)

    __radd__ = __add__

    def __neg__(self) -> Expr:
        return _intern({monomial: -coefficient for monomial, coefficient in self.coefficients.items()})

    def __sub__(self, other: Expr | int) -> Expr:
        return self + (-other)

    def __rsub__(self, other: int) -> Expr:
        return -self + other

    def __mul__(self, other: Expr | int) -> Expr:
        if not isinstance(other, Expr):
            if not isinstance(other, int):
                return NotImplemented
            other = Expr.const(other)
        for factor, rest in ((self, other), (other, self)):
            if (times := factor.constant) is not None:
                return rest if times == 1 else rest._scaled(times)
        return _intern(multiply(self.coefficients, other.coefficients))

    __rmul__ = __mul__

    def _scaled(self, times: int) -> Expr:
        if not times:
            return ZERO
        return _intern({monomial: coefficient * times for monomial, coefficient in self.coefficients.items()})

    def __pow__(self, exponent: int) -> Expr:
        if exponent < 0:
            raise ValueError(f"a size to the power {exponent} is no integer")
        result = ONE
        for _ in range(exponent):
            result = result * self
        return result

    def __floordiv__(self, other: Expr | int) -> Expr:
        return _floor_divide(self, other if isinstance(other, Expr) else Expr.const(other))

    def __rfloordiv__(self, other: int) -> Expr:
        return _floor_divide(Expr.const(other), self)

    def __mod__(self, other: Expr | int) -> Expr:
        return _modulo(self, other if isinstance(other, Expr) else Expr.const(other))

    def __rmod__(self, other: int) -> Expr:
        return _modulo(Expr.const(other), self)

    @property
    def terms(self) -> tuple[tuple[Monomial, int], ...]:
        """(monomial, coefficient) pairs in no particular order, a monomial being (atom, power) pairs."""
        return tuple(self.coefficients.items())

    @property
    def n_terms(self) -> int:
        return len(self.coefficients)

    @property
    def symbols(self) -> frozenset[Symbol]:
        """All symbols inside, those within atoms too."""
        if self._symbols is None:
            atoms = {atom for monomial in self.coefficients for atom, _ in monomial}
            inner = [part.symbols for atom in atoms for part in children(atom)]
            self._symbols = frozenset(atom for atom in atoms if isinstance(atom, Symbol)).union(*inner)
        return self._symbols

    @property
    def value(self) -> int | None:
        """The number once every pinned symbol is replaced by its value, else None."""
        return self.constant if self.constant is not None else self.unpinned.constant

    @property
    def unpinned(self) -> Expr:
        """The same with pinned symbols replaced by their values."""
        if self._unpinned is not None:
            return self._unpinned
        pinned = {symbol: Expr.const(symbol.value) for symbol in self.symbols if symbol.value is not None}
        if not pinned:
            return self
        self._unpinned = self.replace(pinned)
        return self._unpinned

    @property
    def order(self) -> Order:
        """A sort key that depends on the meaning alone."""
        if self._order is None:
            terms = [(reading_order(monomial), coefficient) for monomial, coefficient in self.coefficients.items()]
            self._order = tuple(sorted(terms))
        return self._order

    @property
    def range(self) -> Interval:
        """Bounds that hold for all symbols >= 1, by interval arithmetic."""
        if self._range is None:
            total: Interval = (0, 0)
            for monomial, coefficient in self.coefficients.items():
                part: Interval = (1, 1)
                for atom, power in monomial:
                    part = interval.times(part, interval.power(atom.range, power))
                total = interval.plus(total, interval.scaled(part, coefficient))
            self._range = total
        return self._range

    def at(self, **sizes: int) -> int:
        """The number at these sizes; pinned symbols may be left out, names that do not occur are ignored.

        >>> (Expr.symbol("B") * Expr.symbol("d", 32)).at(B=2)
        64
        """
        return self.evaluate({symbol: sizes[symbol.name] for symbol in self.symbols if symbol.name in sizes})

    def evaluate(self, sizes: Mapping[Symbol, int]) -> int:
        return _evaluate(self, {**sizes})

    def replace(self, mapping: Mapping[Symbol, Expr]) -> Expr:
        """All symbols replaced at once; a replacement is not searched again."""
        if self.symbols.isdisjoint(mapping):
            return self
        return self.map_atoms(lambda atom: mapping.get(atom) if isinstance(atom, Symbol) else None)

    def map_atoms(self, fn: Callable[[Atom], Expr | None]) -> Expr:
        """Rebuilt from the outside in: `fn` gives a replacement for an atom, or None to look inside it."""
        return _map_atoms(self, fn, {})

    def __str__(self) -> str:
        from shapeflow.dims.text import show  # printing needs Expr to parse back, so it cannot be imported above

        return show(self)

    __repr__ = __str__


_EXPRS: Interned[frozenset[tuple[Monomial, int]], Expr] = Interned()


def _intern(terms: Terms) -> Expr:
    """The one Expr with these terms. They are kept: the caller must not change them afterwards."""
    key = frozenset(terms.items())
    if (known := _EXPRS.find(key)) is not None:
        return known
    self = object.__new__(Expr)
    self.coefficients = terms
    self.constant = 0 if not terms else terms.get(()) if len(terms) == 1 else None
    self._order = self._range = self._symbols = self._unpinned = None
    return _EXPRS.keep(key, self)


_SMALL: dict[int, Expr] = {}
_SMALL.update({n: Expr.const(n) for n in range(-16, 1025)})
ZERO, ONE = _SMALL[0], _SMALL[1]


def maximum(a: Expr | int, b: Expr | int) -> Expr:
    """The greater of the two: `max(x, x - 2)` is x, `max(H, 0)` is H."""
    args = _flattened(Max, a, b)
    kept = _undominated(args, lambda one, other: _is_natural(other - one))
    return kept[0] if len(kept) == 1 else Expr.of(Max(frozenset(kept)))


def minimum(a: Expr | int, b: Expr | int) -> Expr:
    """The lesser of the two: `min(x, x - 2)` is x - 2."""
    args = _flattened(Min, a, b)
    kept = _undominated(args, lambda one, other: _is_natural(one - other))
    return kept[0] if len(kept) == 1 else Expr.of(Min(frozenset(kept)))


def _flattened(kind: type[Max] | type[Min], *args: Expr | int) -> list[Expr]:
    flat: list[Expr] = []
    for arg in args:
        arg = arg if isinstance(arg, Expr) else Expr.const(arg)
        atom = _sole_atom(arg)
        flat.extend(atom.args if isinstance(atom, Max | Min) and isinstance(atom, kind) else [arg])
    return list(dict.fromkeys(flat))


def _undominated(args: list[Expr], beaten_by: Callable[[Expr, Expr], bool]) -> list[Expr]:
    kept: list[Expr] = []
    for arg in args:
        if not any(beaten_by(arg, other) for other in kept):
            kept = [other for other in kept if not beaten_by(other, arg)] + [arg]
    return kept


def _sole_atom(expr: Expr) -> Atom | None:
    """The atom when the expression is nothing else."""
    if len(expr.coefficients) == 1:
        ((monomial, coefficient),) = expr.coefficients.items()
        if coefficient == 1 and len(monomial) == 1 and monomial[0][1] == 1:
            return monomial[0][0]
    return None


def _is_natural(expr: Expr) -> bool:
    """Provably >= 0, here and now: `B*T - B` is B times `T - 1`."""
    low = expr.range[0]
    if low is not None and low >= 0:
        return True
    shared = common_monomial(list(expr.coefficients))
    if not shared or any(atom.range[0] is None or atom.range[0] < 0 for atom, _ in shared):
        return False
    low = _intern(divide_exactly(expr.coefficients, shared, 1)).range[0]
    return low is not None and low >= 0


def _is_positive(expr: Expr) -> bool:
    return expr.range[0] is not None and expr.range[0] > 0


def _floor_divide(numerator: Expr, denominator: Expr) -> Expr:
    if denominator is ONE:
        return numerator
    if numerator.constant is not None and denominator.constant is not None:
        return Expr.const(numerator.constant // denominator.constant)
    if _leads_negative(denominator):
        return _floor_divide(-numerator, -denominator)
    quotient, rest = _split(numerator, denominator)
    return quotient + _divide_rest(rest, denominator) if rest.coefficients else quotient


def _modulo(numerator: Expr, denominator: Expr) -> Expr:
    if numerator.constant is not None and denominator.constant is not None:
        return Expr.const(numerator.constant % denominator.constant)
    if _leads_negative(denominator):
        return -_modulo(-numerator, -denominator)
    _, rest = _split(numerator, denominator)
    rest = _without_inner_mods(rest, denominator)
    return _modulo_of_rest(rest, denominator) if rest.coefficients else ZERO


def _leads_negative(denominator: Expr) -> bool:
    if denominator is ZERO:
        raise ZeroDivisionError("a size divided by zero")
    return denominator.coefficients[leading_monomial(denominator.coefficients)] < 0


def _split(numerator: Expr, denominator: Expr) -> tuple[Expr, Expr]:
    """`quotient, rest` with numerator = quotient * denominator + rest.

    By a sum it is done only where that makes the numerator shorter: `(a + b + c)//(a + b)` is `1 + c//(a + b)`,
    but `a//(a + b)` stays.
    """
    quotient, rest = divide(numerator.coefficients, denominator.coefficients)
    if not quotient or (len(denominator.coefficients) > 1 and len(rest) >= len(numerator.coefficients)):
        return ZERO, numerator
    return _intern(quotient), _intern(rest)


def _divide_rest(rest: Expr, denominator: Expr) -> Expr:
    """`rest // denominator` where the denominator does not go into any term of rest."""
    rest, denominator = _cancelled(rest, denominator)
    if denominator is ONE:
        return rest
    if (known := _constant_quotient(rest, denominator)) is not None:
        return Expr.const(known)
    if _is_positive(denominator):
        if _should_flip(rest, denominator):
            return -_floor_divide(denominator - rest - 1, denominator)
        if (joined := _joined_divisions(rest, denominator)) is not None:
            return _floor_divide(*joined)
    return Expr.of(FloorDiv(rest, denominator))


def _cancelled(rest: Expr, denominator: Expr) -> tuple[Expr, Expr]:
    """Both without their common factor; by a positive one the constant of `rest` may be rounded down before."""
    bottom = denominator.coefficients
    shared = common_monomial([*rest.coefficients, *bottom])
    divisor = common_divisor(rest.coefficients, common_divisor(bottom, bottom.get((), 0)))
    constant = rest.coefficients.get((), 0)
    if divisor > 1 and constant % divisor and not _is_positive(denominator):
        divisor = common_divisor({((), 1): constant}, divisor)  # pyright: ignore[reportArgumentType]
    if divisor == 1 and not shared:
        return rest, denominator
    return (
        _intern(divide_exactly(rest.coefficients, shared, divisor)),
        _intern(divide_exactly(bottom, shared, divisor)),
    )


def _constant_quotient(numerator: Expr, denominator: Expr) -> int | None:
    low, high = interval.floor_divide(numerator.range, denominator.range)
    if low == high and low is not None:
        return low
    if _is_positive(denominator) and _is_natural(numerator) and _is_natural(denominator - numerator - 1):
        return 0
    return None


def _should_flip(rest: Expr, denominator: Expr) -> bool:
    """Whether to write `-((d - 1 - r)//d)` for `r//d`, so that of a ceil division and its negative one form remains."""
    coefficient, modulus = _leading(rest), denominator.constant
    return coefficient < 0 if modulus is None else 2 * coefficient > modulus


def _leading(expr: Expr) -> int:
    """The coefficient of the term that is printed first."""
    lead = min(expr.coefficients, key=reading_order)
    return expr.coefficients[lead]


def _joined_divisions(rest: Expr, denominator: Expr) -> tuple[Expr, Expr] | None:
    """`(q + x//a)//b` as `(a*q + x)//(a*b)`, b being positive, when there is one such x//a."""
    found = [
        (monomial, atom, coefficient)
        for monomial, coefficient in rest.coefficients.items()
        if len(monomial) == 1 and isinstance(atom := monomial[0][0], FloorDiv) and monomial[0][1] == 1
        if coefficient == 1
    ]
    if len(found) != 1:
        return None
    monomial, atom, _ = found[0]
    others = _intern({key: c for key, c in rest.coefficients.items() if key != monomial})
    return others * atom.denominator + atom.numerator, atom.denominator * denominator


def _without_inner_mods(rest: Expr, denominator: Expr) -> Expr:
    """`x % a` is x modulo every divisor of a."""
    mods = [atom for monomial in rest.coefficients for atom, _ in monomial if isinstance(atom, Mod)]
    outer = {atom: atom.numerator for atom in mods if _modulo(atom.denominator, denominator) is ZERO}
    return _split(rest.map_atoms(outer.get), denominator)[1] if outer else rest  # pyright: ignore[reportArgumentType]


def _modulo_of_rest(rest: Expr, denominator: Expr) -> Expr:
    smaller, divisor = _cancelled(rest, denominator)
    if divisor is not denominator:
        factor = _floor_divide(denominator, divisor)
        return factor * _modulo(smaller, divisor) + (rest - factor * smaller)
    if (known := _constant_quotient(rest, denominator)) is not None:
        return rest - known * denominator
    return Expr.of(Mod(rest, denominator))


def _evaluate(expr: Expr, known: dict[Atom, int]) -> int:
    total = 0
    for monomial, product in expr.coefficients.items():
        for atom, power in monomial:
            product *= _number(atom, known) ** power
        total += product
    return total


def _number(atom: Atom, known: dict[Atom, int]) -> int:
    """An atom's number; `known` holds the symbols' and remembers shared parts."""
    if (found := known.get(atom)) is not None:
        return found
    if isinstance(atom, Symbol):
        if atom.value is None:
            raise InputError(f"no size is given for {atom.name}")
        return atom.value
    parts = [_evaluate(part, known) for part in children(atom)]
    match atom:
        case FloorDiv():
            known[atom] = parts[0] // parts[1]
        case Mod():
            known[atom] = parts[0] % parts[1]
        case Max():
            known[atom] = max(parts)
        case Min():
            known[atom] = min(parts)
    return known[atom]


def _map_atoms(expr: Expr, fn: Callable[[Atom], Expr | None], done: dict[Atom, Expr]) -> Expr:
    total = ZERO
    for monomial, coefficient in expr.coefficients.items():
        term = Expr.const(coefficient)
        for atom, power in monomial:
            if atom not in done:
                done[atom] = fn(atom) or _rebuilt(atom, fn, done)
            term = term * done[atom] ** power
        total = total + term
    return total


def _rebuilt(atom: Atom, fn: Callable[[Atom], Expr | None], done: dict[Atom, Expr]) -> Expr:
    parts = [_map_atoms(part, fn, done) for part in children(atom)]
    match atom:
        case Symbol():
            return Expr.of(atom)
        case FloorDiv():
            return parts[0] // parts[1]
        case Mod():
            return parts[0] % parts[1]
        case Max():
            return _fold(maximum, parts)
        case Min():
            return _fold(minimum, parts)


def _fold(operation: Callable[[Expr, Expr], Expr], parts: list[Expr]) -> Expr:
    result = parts[0]
    for part in parts[1:]:
        result = operation(result, part)
    return result
