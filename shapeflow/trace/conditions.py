"""What a run asked of its sizes, as a reader wants it: the domain, and each condition with the line that asked.

>>> [str(condition) for condition in conditions(env)]
['T <= 64']
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from shapeflow.dims.atoms import FloorDiv, Max, Min, Symbol
from shapeflow.dims.env import DimEnv, Guard
from shapeflow.dims.expr import Expr
from shapeflow.dims.relation import Relation
from shapeflow.trace.result import Condition, Domain
from shapeflow.trace.source import location

RESHAPING = frozenset("view reshape contiguous transpose permute flatten unflatten clone to type_as".split())
"""Operators that ask about strides to tell whether a copy is needed."""
INDEXING = frozenset({"getitem", "setitem", "select"})
"""Operators whose shape does not depend on the number that is the index."""
FARTHEST = 2**20


def conditions(env: DimEnv) -> tuple[Condition, ...]:
    """Every guard that tells of the sizes that the model takes."""
    return tuple(_condition(guard) for guard in of_sizes(env))


def _condition(guard: Guard) -> Condition:
    place, operator = guard.where  # type: ignore[misc]
    return Condition(str(guard), location(place), operator)


def telling(env: DimEnv) -> list[Guard]:
    """The guards that tell of the model, in the order of asking."""
    return [guard for guard in env.guards.values() if _tells(guard, env.fresh.keys())]


def of_sizes(env: DimEnv) -> list[Guard]:
    """Those that say something of the inputs' sizes, in the inputs' names."""
    guards = [replace(guard, relation=_spelt_out(env, guard.relation)) for guard in telling(env)]
    return [
        guard
        for guard in guards
        if not guard.relation.difference.symbols <= env.fresh.keys() and guard.relation.constant is None
    ]


def _spelt_out(env: DimEnv, relation: Relation) -> Relation:
    """The relation with names of longer expressions replaced by what they stand for."""
    difference = relation.difference
    while difference.symbols & env.definitions.keys():
        difference = difference.replace(env.definitions)
    return Relation(relation.operator, difference)


def of_values(env: DimEnv) -> tuple[Condition, ...]:
    """Those that only speak of dims that values decide: `u0 == u1`."""
    guards = [guard for guard in telling(env) if guard.relation.difference.symbols <= env.fresh.keys()]
    return tuple(dict.fromkeys(_condition(guard) for guard in guards))


def _tells(guard: Guard, fresh: Set[Symbol]) -> bool:
    """Whether the model's code asked, or raises otherwise; torch asks inside its operators for its own sake too."""
    _, operator = guard.where  # type: ignore[misc]
    relation = guard.relation
    if operator in INDEXING and relation.operator == "==" and relation.difference.symbols <= fresh:
        return False
    if not operator or (guard.demanded and relation.operator != "!="):
        return not _is_generic(guard) or not operator
    return (
        relation.operator != "!="
        and not _is_generic(guard)
        and not (relation.operator == ">=" and operator in RESHAPING)
    )


def _is_generic(guard: Guard) -> bool:
    """`size >= 2`, `size >= 1`: the generic run takes every size as at least 2 anyway."""
    difference = guard.relation.difference
    constant = sum(c for monomial, c in difference.terms if not monomial)
    return guard.relation.operator == ">=" and -2 <= constant <= 0 and all(c > 0 for m, c in difference.terms if m)


def domain(env: DimEnv) -> Domain:
    """Bounds of the free names, and the conditions that are no bounds of one."""
    free = [symbol for symbol in env.hints if symbol not in env.definitions and symbol not in env.fresh]
    least = {symbol: env.range(symbol) for symbol in free}
    relations = []
    for guard in of_sizes(env):
        symbol = _sole_rising(guard)
        if symbol in least:
            low, high = least[symbol]
            least[symbol] = max(low, least_that_holds(guard.relation.difference, symbol)), high
        elif not _is_limit(guard):
            relations.append(str(guard))
    bounds = [(symbol.name, *_fixed(env, symbol, *least[symbol])) for symbol in free]
    return Domain(tuple(bounds), tuple(dict.fromkeys(relations)))


def _fixed(env: DimEnv, symbol: Symbol, low: int, high: int | None) -> tuple[int, int | None]:
    value = env.facts.values.get(symbol)
    return (low, high) if value is None or value.constant is None else (value.constant, value.constant)


def _is_limit(guard: Guard) -> bool:
    """Whether the guard says no more than the bounds of one name do: `T <= 64`, `T == 8`."""
    linear = [monomial for monomial, _ in guard.relation.difference.terms if monomial]
    if guard.relation.operator == "!=" or len(linear) != 1 or len(linear[0]) != 1:
        return False
    atom, power = linear[0][0]
    return isinstance(atom, Symbol) and power == 1


def _sole_rising(guard: Guard) -> Symbol | None:
    """The one name of a `>=` whose left side only grows with it, such as `(H - 1)//32 + 1 >= 4`."""
    difference = guard.relation.difference
    symbols = difference.symbols
    if guard.relation.operator != ">=" or len(symbols) != 1 or not rises(difference):
        return None
    return next(iter(symbols))


def rises(expr: Expr) -> bool:
    """Whether the expression only grows with the names in it."""
    return all(c > 0 for m, c in expr.terms if m) and all(_atom_rises(a) for m, _ in expr.terms for a, _ in m)


def _atom_rises(atom: object) -> bool:
    if isinstance(atom, FloorDiv):
        return rises(atom.numerator) and (atom.denominator.constant or 0) > 0
    if isinstance(atom, Max | Min):
        return all(rises(arg) for arg in atom.args)
    return isinstance(atom, Symbol)


def least_that_holds(difference: Expr, symbol: Symbol) -> int:
    """The least size from which on the difference is not negative."""
    low, high = 0, 1
    while difference.evaluate({symbol: high}) < 0 and high < FARTHEST:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if difference.evaluate({symbol: middle}) < 0 else (low, middle)
    return high
