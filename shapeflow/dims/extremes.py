"""`max` and `min` of `Expr`s: nested ones flattened, and arguments dropped that provably never win.

`max(x, x - 2)` is x, `max(B*T, B)` is `B*T`, `min(H % 8, 8)` is `H % 8`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from shapeflow.dims.atoms import Max, Min
from shapeflow.dims.bounds import is_natural
from shapeflow.dims.polynomial import sole_atom

if TYPE_CHECKING:
    from shapeflow.dims.expr import Expr


def maximum(*args: Expr) -> Expr:
    kept = _winners(_flattened(Max, _winners(args, _at_least)), _at_least)
    return kept[0] if len(kept) == 1 else kept[0].from_atom(Max(frozenset(kept)))


def minimum(*args: Expr) -> Expr:
    kept = _winners(_flattened(Min, _winners(args, _at_most)), _at_most)
    return kept[0] if len(kept) == 1 else kept[0].from_atom(Min(frozenset(kept)))


def _at_least(one: Expr, other: Expr) -> bool:
    return is_natural(one - other)


def _at_most(one: Expr, other: Expr) -> bool:
    return is_natural(other - one)


def _winners(args: Iterable[Expr], beats: Callable[[Expr, Expr], bool]) -> list[Expr]:
    kept: list[Expr] = []
    for arg in args:
        if not any(beats(other, arg) for other in kept):
            kept = [other for other in kept if not beats(arg, other)] + [arg]
    return kept


def _flattened(kind: type[Max] | type[Min], args: Iterable[Expr]) -> Iterator[Expr]:
    for arg in args:
        atom = sole_atom(arg.coefficients)
        yield from atom.args if isinstance(atom, Max | Min) and isinstance(atom, kind) else [arg]
