"""`max` and `min` of `Expr`s: nested ones flattened, and arguments dropped that provably never win.

`max(x, x - 2)` is x, `max(B*T, B)` is `B*T`, `min(H % 8, 8)` is `H % 8`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shapeflow.dims.atoms import Max, Min
from shapeflow.dims.bounds import is_natural
from shapeflow.dims.polynomial import sole_atom

if TYPE_CHECKING:
    from shapeflow.dims.expr import Expr


def maximum(*args: Expr) -> Expr:
    kept: list[Expr] = []
    for arg in _flattened(Max, args):
        if not any(is_natural(other - arg) for other in kept):
            kept = [other for other in kept if not is_natural(arg - other)] + [arg]
    return kept[0] if len(kept) == 1 else kept[0].from_atom(Max(frozenset(kept)))


def minimum(*args: Expr) -> Expr:
    kept: list[Expr] = []
    for arg in _flattened(Min, args):
        if not any(is_natural(arg - other) for other in kept):
            kept = [other for other in kept if not is_natural(other - arg)] + [arg]
    return kept[0] if len(kept) == 1 else kept[0].from_atom(Min(frozenset(kept)))


def _flattened(kind: type[Max] | type[Min], args: tuple[Expr, ...]) -> list[Expr]:
    flat: list[Expr] = []
    for arg in args:
        atom = sole_atom(arg.coefficients)
        flat.extend(atom.args if isinstance(atom, Max | Min) and isinstance(atom, kind) else [arg])
    return list(dict.fromkeys(flat))
