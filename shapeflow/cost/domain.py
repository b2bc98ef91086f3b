"""Sizes that are asked for, against those that a trace holds for.

>>> check_sizes(trace, {"T": 4096})
InputError: GPT was traced for T <= 64: T = 4096 is outside
"""

from __future__ import annotations

from collections.abc import Mapping

from shapeflow.errors import InputError
from shapeflow.importer import closest
from shapeflow.trace.conditions import of_sizes
from shapeflow.trace.result import Trace

GENERIC = 2
"""The run takes every size as at least 2: at 1 nothing is known to be wrong, and the formulas still count."""


def check_sizes(trace: Trace, sizes: Mapping[str, int]) -> None:
    """Raises InputError for a name that the trace does not have, a size that is none, or one outside of its domain."""
    for name, size in sizes.items():
        if name not in trace.sizes:
            names = [*trace.free, *trace.fresh]
            raise InputError(
                f"{trace.name} has no size {name}{closest(name, names)}; its sizes are: {', '.join(names) or 'none'}"
            )
        if type(size) is not int or size < 0:
            raise InputError(f"a size is a whole number of at least 0, not {name} = {size!r}")
        if trace.pinned.get(name, size) != size:
            raise InputError(f"{name} is {trace.pinned[name]} in {trace.name}, not {size}")
    for name, low, high in trace.domain.bounds:
        if name in sizes:
            _check_bound(trace, name, sizes[name], low, high)
    _check_relations(trace, sizes)


def _check_bound(trace: Trace, name: str, size: int, low: int, high: int | None) -> None:
    if (size < low and not 0 < size < low <= GENERIC) or (high is not None and size > high):
        bound = f"{low} <= {name}" if high is None else f"{low} <= {name} <= {high}"
        raise InputError(f"{trace.name} was traced for {bound}: {name} = {size} is outside")


def _check_relations(trace: Trace, sizes: Mapping[str, int]) -> None:
    env = trace._attempt.env
    for guard in of_sizes(env):
        difference = guard.relation.difference
        given = {symbol: sizes[symbol.name] for symbol in difference.symbols if symbol.name in sizes}
        if len(given) < len(difference.symbols) or 1 in given.values():
            continue
        if not guard.relation.holds(difference.evaluate(given)):
            shown = ", ".join(f"{symbol.name} = {size}" for symbol, size in given.items())
            raise InputError(f"{trace.name} was traced for {guard.relation}: {shown} is outside")
