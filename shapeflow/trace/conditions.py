"""What a run asked of its sizes, as a reader wants it: the domain, and each condition with the line that asked.

    >>> [str(condition) for condition in conditions(env)]
    ['T <= 64']
"""

from __future__ import annotations

from shapeflow.dims.atoms import Symbol
from shapeflow.dims.env import DimEnv, Guard
from shapeflow.dims.expr import Expr
from shapeflow.trace.result import Condition, Domain
from shapeflow.trace.source import location


def conditions(env: DimEnv) -> tuple[Condition, ...]:
    """Every guard that tells of the model."""
    found = []
    for guard in env.guards.values():
        if _tells(guard):
            place, operator = guard.where  # type: ignore[misc]
            found.append(Condition(str(guard), location(place), operator))
    return tuple(found)


def _tells(guard: Guard) -> bool:
    """Not torch's own "are these different?", asked inside an operator to pick a layout or a kernel."""
    _, operator = guard.where  # type: ignore[misc]
    return not (operator and guard.relation.operator == "!=")


def domain(env: DimEnv) -> Domain:
    """Bounds of the free names, and the conditions that are no bounds of one."""
    free = [symbol for symbol in env.hints if symbol not in env.definitions and symbol not in env.fresh]
    bounds = []
    for symbol in free:
        value = env.facts.values.get(symbol)
        low, high = env.range(symbol)
        if value is not None and value.constant is not None:
            low = high = value.constant
        bounds.append((symbol.name, low, high))
    relations = [str(guard) for guard in env.guards.values() if _tells(guard) and not _is_bound(guard)]
    return Domain(tuple(bounds), tuple(relations))


def _is_bound(guard: Guard) -> bool:
    """Whether the guard says no more than the bounds of one name do."""
    linear = [monomial for monomial, _ in guard.relation.difference.terms if monomial]
    if guard.relation.operator == "!=" or len(linear) != 1 or len(linear[0]) != 1:
        return False
    atom, power = linear[0][0]
    return isinstance(atom, Symbol) and power == 1 and Expr.from_atom(atom) is not None
