"""The verdict: the sizes that a model holds for, made of the conditions that runs showed to be needed.

>>> str(domain_of(exploration, ranges))
'B >= 1, 1 <= T <= 512, H % 32 == 0'
"""

from __future__ import annotations

from shapeflow.check.explore import Exploration
from shapeflow.check.sizes import Range, Ranges
from shapeflow.dims.atoms import Symbol
from shapeflow.dims.relation import Relation
from shapeflow.trace.conditions import least_that_holds, rises
from shapeflow.trace.result import Domain


def domain_of(found: Exploration, ranges: Ranges) -> Domain:
    """Bounds by name and what else is needed, as in `Trace.domain`, but proved: inside runs, just outside crashes."""
    bounds = {
        name: Range(found.lows.get(name, 2), found.highs.get(name, ranges[name].high)) for name in found.base_sizes
    }
    relations = []
    for need in found.needs:
        narrowed = _narrowed(need.relation, bounds)
        if narrowed is None:
            relations.append(str(need.relation))
        else:
            bounds.update(narrowed)
    for joint in found.joint:
        relations.append(str(joint))
    kept = tuple((name, bound.low, bound.high) for name, bound in bounds.items())
    return Domain(kept, tuple(dict.fromkeys(relations)))


def _narrowed(relation: Relation, bounds: dict[str, Range]) -> dict[str, Range] | None:
    """The bounds of the one name that the relation bounds; None when it says something else."""
    symbol = _sole(relation)
    if symbol is None or symbol.name not in bounds:
        return None
    now, difference = bounds[symbol.name], relation.difference
    if relation.operator == ">=" and rises(difference):
        low = least_that_holds(difference, symbol)
        return {symbol.name: Range(max(now.low, low), now.high)}
    if relation.operator == ">=" and rises(-difference):
        high = least_that_holds(-difference - 1, symbol) - 1
        return {symbol.name: Range(now.low, high if now.high is None else min(now.high, high))}
    fixed = _fixed_size(relation)
    return None if fixed is None else {symbol.name: Range(fixed, fixed)}


def _sole(relation: Relation) -> Symbol | None:
    free = [symbol for symbol in relation.difference.symbols if symbol.value is None]
    return free[0] if len(free) == 1 else None


def _fixed_size(relation: Relation) -> int | None:
    """The 24 of `T == 24`."""
    symbol = _sole(relation)
    difference = relation.difference
    if symbol is None or relation.operator != "==" or not (rises(difference) or rises(-difference)):
        return None
    if not all(isinstance(atom, Symbol) for monomial, _ in difference.terms for atom, _ in monomial):
        return None
    size = least_that_holds(difference if rises(difference) else -difference, symbol)
    return size if difference.evaluate({symbol: size}) == 0 else None
