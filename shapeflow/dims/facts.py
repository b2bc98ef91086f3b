"""What a run has learnt of its sizes: the guards, in a form that decides later questions.

>>> facts = Facts()
>>> facts.learn(Relation("==", H % 32))
>>> facts.simplify(Relation("==", 32 * (H // 32) - H))
0 == 0
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from shapeflow.dims.atoms import Atom, FloorDiv, Mod, Symbol, children
from shapeflow.dims.expr import Expr
from shapeflow.dims.relation import Relation, divisions

Bounds = tuple[int | None, int | None]
LATEST = 64
"""How many inequalities a question is compared with: older ones rarely help, and each costs an interval."""


@dataclass(slots=True)
class Facts:
    """Equal, unequal, ordered and divisible sizes. Grows only; `narrow`, `decide`, `simplify` read it."""

    zero: set[Expr] = field(default_factory=set)
    nonzero: set[Expr] = field(default_factory=set)
    nonnegative: list[Expr] = field(default_factory=list)
    values: dict[Symbol, Expr] = field(default_factory=dict)
    divisible: set[tuple[Expr, Expr]] = field(default_factory=set)
    quotients: dict[Atom, Expr] = field(default_factory=dict)
    limits: dict[Atom, Bounds] = field(default_factory=dict)
    supposed: dict[Atom, Bounds] = field(default_factory=dict)

    def learn(self, relation: Relation) -> None:
        """Add a relation that holds."""
        difference = relation.difference
        if relation.operator == "!=":
            self.nonzero |= {difference, -difference}
        elif relation.operator == ">=":
            self.nonnegative.append(difference)
            for table in (self.limits, self.supposed):
                _limit(table, difference)
        else:
            self.zero |= {difference, -difference}
            self.divisible |= set(divisions(difference))
            self._learn_multiple(difference)
            self._learn_quotients(difference)
            self._learn_value(difference)

    def _learn_multiple(self, difference: Expr) -> None:
        """`T % 32 == 0`: from here on T is 32 times another number."""
        for numerator, denominator in divisions(difference):
            (symbol, *others) = numerator.symbols or (None,)
            if symbol is None or others or numerator is not Expr.from_atom(symbol) or symbol in self.values:
                continue
            value = denominator * Expr.symbol(f"{symbol.name}/{denominator}")
            self.values = {key: old.replace({symbol: value}) for key, old in self.values.items()} | {symbol: value}

    def _learn_quotients(self, difference: Expr) -> None:
        """`((H - 1)//4 + 1) % 8 == 0`: from here on `(H - 1)//4` is `8*((H + 3)//32) - 1`; `H//32 == 1`: it is 1."""
        for numerator, denominator in divisions(difference):
            quotient = numerator // denominator
            self._write(numerator, denominator * quotient)
            self._write((numerator + denominator - 1) // denominator, quotient)  # rounding up makes no difference
        if len([monomial for monomial, _ in difference.terms if monomial]) == 1:
            for size in (difference, -difference):
                self._write(size, Expr.const(0))

    def _write(self, size: Expr, known: Expr) -> None:
        """Where `size` is a quotient, or a sum with one: note what the quotient is, so that `size` is `known`."""
        for monomial, coefficient in size.terms:
            if coefficient == 1 and len(monomial) == 1 and isinstance(monomial[0][0], FloorDiv) and monomial[0][1] == 1:
                atom = monomial[0][0]
                value = self.put_in(Expr.from_atom(atom) - size + known)
                if _put_in(value, {atom: Expr.const(0)}) is value:
                    values = {key: _put_in(old, {atom: value}) for key, old in self.quotients.items()}
                    self.quotients = {**values, atom: value}
                    return

    def put_in(self, size: Expr) -> Expr:
        """The size with every quotient written as what it is known to be."""
        return _put_in(size, self.quotients) if self.quotients else size

    def _learn_value(self, difference: Expr) -> None:
        for monomial, coefficient in difference.terms:
            if len(monomial) == 1 and abs(coefficient) == 1 and monomial[0][1] == 1:
                symbol = monomial[0][0]
                if not isinstance(symbol, Symbol):
                    continue
                value = Expr.symbol(symbol.name, symbol.value) - coefficient * difference
                if symbol not in value.symbols and not value.symbols & self.values.keys():
                    known = {key: old.replace({symbol: value}) for key, old in self.values.items()}
                    self.values = {**known, symbol: value}
                    return

    def suppose(self, size: Expr, least: int) -> None:
        """Take a size as at least `least`, as the generic run does with every axis."""
        _limit(self.supposed, size - least)

    def narrow(self, symbol: Symbol, low: int, high: int | None) -> tuple[int, int | None]:
        """The bounds `low`, `high` made tighter by what is known of `symbol`."""
        known_low, known_high = self.limits.get(symbol, (None, None))
        low = low if known_low is None else max(low, known_low)
        return low, known_high if high is None else high if known_high is None else min(high, known_high)

    def decide(self, relation: Relation) -> bool | None:
        """The answer when the very question was learnt."""
        difference = relation.difference
        if relation.operator == ">=":
            return True if difference in self.nonnegative or difference in self.zero else None
        if difference in self.zero:
            return relation.operator == "=="
        return relation.operator == "!=" if difference in self.nonzero else None

    def simplify(self, relation: Relation) -> Relation:
        """The relation with known values put in and divisions that leave no rest carried out."""
        difference = self._divide(self.put_in(relation.difference))
        if self.values and difference.symbols & self.values.keys():
            difference = self._divide(difference.replace(self.values))  # `d % h == 0` is known of d, not of 2*(d/2)
        return relation if difference is relation.difference else Relation(relation.operator, difference)

    def whole(self, size: Expr) -> Expr:
        """The size with `k * (n // k)` as `n`, where `k` is known to divide `n`; it is equal."""
        for numerator, denominator in self.divisible:
            size = _multiplied_out(size, numerator, denominator)
        return size

    def _divide(self, difference: Expr) -> Expr:
        """`difference` with `n % k` as 0, and times `k` with `k * (n // k)` as `n`: the sign stays, as `k > 0`."""
        for numerator, denominator in self.divisible:
            gone = difference.map_atoms(lambda atom, n=numerator, k=denominator: _no_rest(atom, n, k))
            whole = Expr.symbol("\0whole")
            (symbol,) = whole.symbols
            marked = gone.map_atoms(lambda atom, n=numerator, k=denominator, w=whole: w if _is(atom, n, k) else None)
            if symbol in marked.symbols and _linear_in(marked, symbol):
                rest = marked.replace({symbol: Expr.const(0)})
                difference = denominator * rest + numerator * (marked.replace({symbol: Expr.const(1)}) - rest)
            else:
                difference = gone
        return difference

    def decide_by_difference(self, relation: Relation, bounds: Callable[[Expr], Bounds]) -> bool | None:
        """The answer when a known inequality implies it: `d >= f >= 0`."""
        difference = relation.difference
        if self._implied(difference, bounds) and relation.operator == ">=":
            return True
        if relation.operator == ">=":
            return False if self._implied(-difference - 1, bounds) else None
        apart = self._implied(difference - 1, bounds) or self._implied(-difference - 1, bounds)
        return (relation.operator == "!=") if apart else None

    def _implied(self, difference: Expr, bounds: Callable[[Expr], Bounds]) -> bool:
        symbols = difference.symbols
        for fact in self.nonnegative[-LATEST:]:
            if fact.symbols & symbols:
                low, _ = bounds(difference - fact)
                if low is not None and low >= 0:
                    return True
        return False


def _limit(table: dict[Atom, Bounds], difference: Expr) -> None:
    """`c*x + r >= 0` bounds the atom `x`."""
    linear = [(m, c) for m, c in difference.terms if m]
    if len(linear) != 1 or len(linear[0][0]) != 1 or linear[0][0][0][1] != 1:
        return
    (((atom, _),), coefficient) = linear[0]
    rest = sum(c for m, c in difference.terms if not m)
    low, high = table.get(atom, (None, None))
    if coefficient > 0:
        bound = -(rest // coefficient)
        table[atom] = (bound if low is None else max(low, bound), high)
    else:
        bound = rest // -coefficient
        table[atom] = (low, bound if high is None else min(high, bound))


def _multiplied_out(size: Expr, numerator: Expr, denominator: Expr) -> Expr:
    for monomial, coefficient in size.terms:
        quotient = next((Expr.from_atom(atom) for atom, _ in monomial if _is(atom, numerator, denominator)), None)
        if quotient is None:
            continue
        term = Expr.from_terms({monomial: coefficient})
        rest = term // (denominator * quotient)
        if rest * denominator * quotient is term:
            size = size - term + rest * numerator
    return size


def _put_in(size: Expr, known: dict[Atom, Expr]) -> Expr:
    return size.map_atoms(known.get)


def _is(atom: object, numerator: Expr, denominator: Expr) -> bool:
    return isinstance(atom, FloorDiv) and atom.numerator is numerator and atom.denominator is denominator


def _no_rest(atom: object, numerator: Expr, denominator: Expr) -> Expr | None:
    same = isinstance(atom, Mod) and atom.numerator is numerator and atom.denominator is denominator
    return Expr.const(0) if same else None


def _linear_in(expr: Expr, symbol: Symbol) -> bool:
    """Whether `symbol` stands in `expr` only as a factor of terms, to the first power, and in no atom."""
    for monomial, _ in expr.terms:
        for atom, power in monomial:
            if atom is symbol:
                if power != 1:
                    return False
            elif any(symbol in part.symbols for part in children(atom)):
                return False
    return True
