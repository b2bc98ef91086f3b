"""The sizes of one run: what each symbol is taken to be, what is known of it, what was asked of it.

>>> env = DimEnv()
>>> T = env.symbol("T", hint=7)
>>> env.decide(Relation("<=", T - 512))       # None: bounds and facts do not tell
>>> env.ask(Relation("<=", T - 512))          # so the hint answers, and a guard is recorded
True
>>> [str(guard) for guard in env.guards]
['T <= 512']
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from shapeflow.dims.atoms import Symbol
from shapeflow.dims.boolean import BoolNode
from shapeflow.dims.bounds import bounds
from shapeflow.dims.expr import Expr
from shapeflow.dims.facts import Facts
from shapeflow.dims.floating import FLOAT_OPERATIONS, Call, FloatNode, Formula, Ratio
from shapeflow.dims.node import IntNode
from shapeflow.dims.relation import Relation

MAX_TERMS = 12
"""An expression with more terms gets a name of its own."""
MAX_OPERAND_TERMS = 4
"""A longer operand of `//` and `%` is named before it is divided."""


@dataclass(frozen=True, slots=True)
class Guard:
    """A relation that held in this run and that nothing else decides; `where` is whatever `DimEnv.where` gave."""

    relation: Relation
    where: object = None
    demanded: bool = False

    def __str__(self) -> str:
        return str(self.relation)


@dataclass(slots=True)
class DimEnv:
    """Symbols with their hints, facts, and guards. An `Expr` knows none of these.

    `where` is called for each new guard: it tells who asked. While `quiet`, questions are answered and not recorded:
    they are the tool's own.
    """

    where: Callable[[], object] = lambda: None
    lowest: int = 2
    hints: dict[Symbol, int] = field(default_factory=dict)
    ranges: dict[Symbol, tuple[int, int | None]] = field(default_factory=dict)
    fresh: dict[Symbol, str] = field(default_factory=dict)
    definitions: dict[Symbol, Expr] = field(default_factory=dict)
    guards: dict[Relation, Guard] = field(default_factory=dict)
    facts: Facts = field(default_factory=Facts)
    computed: dict[Symbol, Call] = field(default_factory=dict)
    lost: dict[Formula, float] = field(default_factory=dict)
    unknown: Callable[[FloatNode, str, FloatNode], bool] | None = None
    unequal: list[Expr] = field(default_factory=list)
    quiet: bool = False
    _named: dict[Expr, Expr] = field(default_factory=dict)
    _decided: dict[Relation, bool | None] = field(default_factory=dict)
    _generic: set[Expr] = field(default_factory=set)
    _integers: dict[int, IntNode] = field(default_factory=dict)
    _truths: dict[bool, BoolNode] = field(default_factory=dict)

    def symbol(self, name: str, *, hint: int, low: int | None = None, high: int | None = None) -> Expr:
        """A free size: `hint` answers what bounds and facts leave open; the generic run takes it as at least 2."""
        expr = Expr.symbol(name)
        (symbol,) = expr.symbols
        self.hints[symbol] = hint
        self.ranges[symbol] = (self.lowest if low is None else low, high)
        return expr

    def fresh_symbol(self, stem: str, *, hint: int, origin: str, low: int = 0, high: int | None = None) -> Expr:
        """A size that only values decide, such as the rows of `nonzero`: `u0`, `u1`, ... by `stem`."""
        taken = {symbol.name for symbol in self.hints}
        name = next(name for n in range(len(taken) + 1) if (name := f"{stem}{n}") not in taken)
        expr = self.symbol(name, hint=hint, low=low, high=high)
        (symbol,) = expr.symbols
        self.fresh[symbol] = origin
        return expr

    def hint(self, expr: Expr) -> int:
        """The number that stands for `expr` in this run."""
        return expr.evaluate(self.hints)

    def short(self, expr: Expr) -> Expr:
        """`expr`, or a name for it when it has grown too long."""
        return expr if expr.n_terms <= MAX_TERMS else self.name(expr)

    def name(self, expr: Expr) -> Expr:
        """A symbol defined as `expr` (`H1 = ...`), the same one each time."""
        if expr not in self._named:
            stem = min((symbol.name for symbol in expr.symbols), key=len)
            taken = {symbol.name for symbol in self.hints}
            name = next(f"{stem}{n}" for n in range(1, len(taken) + 2) if f"{stem}{n}" not in taken)
            low, high = self.bounds(expr)
            named = self.symbol(name, hint=self.hint(expr), low=low if low is not None else -(2**62), high=high)
            (symbol,) = named.symbols
            self.definitions[symbol] = expr
            self._named[expr] = named
        return self._named[expr]

    def range(self, symbol: Symbol) -> tuple[int, int | None]:
        """Bounds of a symbol, facts included."""
        if symbol.value is not None:
            return symbol.value, symbol.value
        low, high = self.ranges.get(symbol, (1, None))
        return self.facts.narrow(symbol, low, high)

    def bounds(self, expr: Expr) -> tuple[int | None, int | None]:
        """What the expression can be, by what is known of its symbols and of the divisions in it."""
        return bounds(expr, self._supposed_range, self.facts.supposed)

    def generic(self, size: Expr) -> None:
        """An axis of this size came up. The generic run takes it as at least 2, unless it is not so here."""
        size = size.unpinned
        if size.constant is None and size not in self._generic:
            self._generic.add(size)
            if self.hint(size) >= self.lowest and (self.bounds(size)[0] or 0) < self.lowest:
                self.facts.suppose(size, self.lowest)
                self._decided.clear()

    def _supposed_range(self, symbol: Symbol) -> tuple[int, int | None]:
        """Bounds of a symbol, with what the generic run supposes."""
        low, high = self.range(symbol)
        supposed = self.facts.supposed.get(symbol, (None, None))[0]
        return low if supposed is None else max(low, supposed), high

    def decide(self, relation: Relation) -> bool | None:
        """What values, bounds and facts tell of `relation`; None when they leave it open."""
        relation = relation.unpinned
        if (known := relation.constant) is not None:
            return known
        if relation not in self._decided:
            self._decided[relation] = self._decide(relation)
        return self._decided[relation]

    def _decide(self, relation: Relation) -> bool | None:
        if (known := self.facts.decide(relation)) is not None:
            return known
        simple = self.facts.simplify(relation)
        if simple.constant is not None:
            return simple.constant
        for form in (simple,) if simple is relation else (simple, relation):  # bounds may be known of either
            if (known := form.within(*self.bounds(form.difference))) is not None:
                return known
        return self.facts.decide_by_difference(simple, self.bounds)

    def ask(self, relation: Relation, *, demanded: bool = False) -> bool:
        """Whether `relation` holds in this run. What nothing else decides is answered by the hints and recorded.

        `demanded`: whoever asks raises if it does not hold.
        """
        known = self.decide(relation)
        if known is not None:
            return known
        relation = relation.unpinned
        answer = relation.holds(self.hint(relation.difference))
        if demanded and relation.operator == "==" and relation.difference.symbols <= self.fresh.keys():
            answer = True  # two counts that only values decide: equal, or an error that no shape can tell
        if self.quiet:
            return answer
        if (relation.operator == "==" and not answer) or (relation.operator == "!=" and answer):
            self.unequal.append(relation.difference)
        self.assume(relation if answer else relation.negated, demanded=demanded)
        return answer

    def assume(self, relation: Relation, *, demanded: bool = False) -> None:
        """Record that `relation` holds: a guard of this run and a fact for the rest of it."""
        if relation not in self.guards and not self.quiet:
            self.guards[relation] = Guard(relation, self.where(), demanded)
            self.facts.learn(relation)
            self._decided.clear()

    def quietly(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call the function; what it asks of the sizes is no property of the model."""
        before, self.quiet = self.quiet, True
        try:
            return function(*args)
        finally:
            self.quiet = before

    # What the nodes make of one another.

    def node(self, expr: Expr) -> IntNode:
        """The node that carries `expr` through torch."""
        return IntNode(self, expr)

    def integer(self, number: int) -> IntNode:
        """A plain number as a node."""
        if number not in self._integers:
            self._integers[number] = IntNode(self, Expr.const(number), number)
        return self._integers[number]

    def truth(self, answer: bool) -> BoolNode:
        """A plain answer as a node."""
        if answer not in self._truths:
            self._truths[answer] = BoolNode(self, Relation("==", Expr.const(not answer)))
        return self._truths[answer]

    def real(self, number: float) -> FloatNode:
        """A plain float as a node."""
        return FloatNode(self, Ratio.number(number), number)

    def divide(self, numerator: Expr, denominator: Expr) -> Expr:
        """`numerator // denominator`; a long operand is named first, so that the quotient stays readable.

        The denominator is taken as at least 1 where it is so in this run: a condition, if nothing else says it.
        """
        if denominator.constant is None and self.hint(denominator) >= 1:
            self.ask(Relation(">=", denominator - 1))
        exact = self.exact(numerator, denominator)
        return self._operand(numerator) // self._operand(denominator) if exact is None else exact

    def exact(self, numerator: Expr, denominator: Expr) -> Expr | None:
        """The quotient where known facts make it one without a rest: `(n//4) // (n//32)` is 8 when 8 divides `n//4`."""
        if not self.facts.quotients:
            return None
        whole, part = self.facts.put_in(numerator), self.facts.put_in(denominator)
        quotient = whole // part
        return quotient if quotient * part is whole and (whole is not numerator or part is not denominator) else None

    def whole(self, size: Expr) -> Expr:
        """The size with quotients multiplied out that are known to leave no rest: `32 * (H // 32)` is `H`."""
        return self.facts.whole(size) if self.facts.divisible and size.constant is None else size

    def remainder(self, numerator: Expr, denominator: Expr) -> Expr:
        """`numerator % denominator`, and 0 where a fact says so."""
        rest = self._operand(numerator) % self._operand(denominator)
        return Expr.const(0) if self.decide(Relation("==", rest)) else rest

    def _operand(self, expr: Expr) -> Expr:
        return expr if expr.n_terms <= MAX_OPERAND_TERMS else self.name(expr)

    def rounded(self, real: FloatNode, how: str) -> IntNode:
        """An integer made of a float: a symbol of its own, computed anew where the graph replays."""
        call = Call(how, (real.formula,))
        known = next((symbol for symbol, old in self.computed.items() if old == call), None)
        if known is None:
            hint = int(FLOAT_OPERATIONS[how](real.hint))
            expr = self.fresh_symbol("n", hint=hint, origin=str(call), low=-(2**62))
            (known,) = expr.symbols
            self.computed[known] = call
        return self.node(Expr.symbol(known.name))

    def lose(self, real: FloatNode) -> None:
        """A float left the symbolic world as a plain number: remembered, for the replay to check."""
        if not self.quiet:
            self.lost.setdefault(real.formula, real.hint)

    def symint(self, expr: Expr) -> torch.SymInt:
        """The expression as torch carries it."""
        node: Any = self.node(expr)  # torch's stubs know its own node classes only
        return torch.SymInt(node)

    def number(self, expr: Expr) -> int | torch.SymInt:
        """The expression as torch takes a size: a plain integer where it is constant, else a `SymInt`."""
        return expr.constant if expr.constant is not None else self.symint(expr)
