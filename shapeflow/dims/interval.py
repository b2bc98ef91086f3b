"""Interval arithmetic on integers; `None` at either end means unbounded.

>>> times((1, None), (-2, 3))
(None, None)
>>> floor_divide((0, 7), (2, None))
(0, 3)
"""

from __future__ import annotations

from itertools import product

Interval = tuple[int | None, int | None]
EVERYTHING: Interval = (None, None)

_INFINITY = float("inf")


def is_natural(a: Interval) -> bool:
    """Whether it holds no negative number."""
    return a[0] is not None and a[0] >= 0


def plus(a: Interval, b: Interval) -> Interval:
    return (
        None if a[0] is None or b[0] is None else a[0] + b[0],
        None if a[1] is None or b[1] is None else a[1] + b[1],
    )


def scaled(a: Interval, factor: int) -> Interval:
    low = None if a[0] is None else a[0] * factor
    high = None if a[1] is None else a[1] * factor
    return (low, high) if factor > 0 else (high, low) if factor else (0, 0)


def times(a: Interval, b: Interval) -> Interval:
    if is_natural(a) and is_natural(b):  # nearly always, and then there is no sign to mind
        (low, high), (other, top) = a, b
        return low * other, 0 if high == 0 or top == 0 else None if high is None or top is None else high * top  # pyright: ignore
    return _hull([_product(x, y) for x, y in product(_ends(a), _ends(b))])


def power(a: Interval, exponent: int) -> Interval:
    """`a ** exponent` for a natural exponent; an even power is never negative."""
    if exponent == 0:
        return 1, 1
    low, high = a
    ends = (None if low is None else low**exponent, None if high is None else high**exponent)
    if exponent % 2 or (low is not None and low >= 0):
        return ends
    if high is not None and high <= 0:
        return ends[1], ends[0]
    return 0, None if ends[0] is None or ends[1] is None else max(ends[0], ends[1])


def floor_divide(a: Interval, b: Interval) -> Interval:
    """Quotients `x // y` for x in a, y in b except 0."""
    corners = [_quotient(x, y) for part in _signed_parts(b) for x, y in product(_ends(a), _ends(part))]
    return _hull(corners) if corners else EVERYTHING


def modulo(a: Interval, b: Interval) -> Interval:
    """Remainders `x % y` for x in a, y in b except 0; they bear the sign of y."""
    parts = [_modulo_by_positive(a, part) for part in _signed_parts(b) if part[0] is not None and part[0] > 0]
    parts += [
        scaled(_modulo_by_positive(scaled(a, -1), scaled(part, -1)), -1)
        for part in _signed_parts(b)
        if part[1] is not None and part[1] < 0
    ]
    return union(parts) if parts else EVERYTHING


def largest(parts: list[Interval]) -> Interval:
    """Where the maximum of one number from each part lies."""
    lows = [low for low, _ in parts if low is not None]
    return max(lows, default=None), _greatest([high for _, high in parts])


def smallest(parts: list[Interval]) -> Interval:
    """Where the minimum of one number from each part lies."""
    highs = [high for _, high in parts if high is not None]
    return _least([low for low, _ in parts]), min(highs, default=None)


def union(parts: list[Interval]) -> Interval:
    return _least([low for low, _ in parts]), _greatest([high for _, high in parts])


def intersection(a: Interval, b: Interval) -> Interval:
    """What both say; of two bounds on one number the tighter."""
    lows = [low for low in (a[0], b[0]) if low is not None]
    highs = [high for high in (a[1], b[1]) if high is not None]
    return max(lows, default=None), min(highs, default=None)


def _least(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return min(known) if len(known) == len(values) else None


def _greatest(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return max(known) if len(known) == len(values) else None


def _ends(a: Interval) -> tuple[float, float]:
    """Both ends as numbers, unbounded ones as infinities; ints stay ints, whatever the type says."""
    return (-_INFINITY if a[0] is None else a[0]), (_INFINITY if a[1] is None else a[1])


def _hull(values: list[float]) -> Interval:
    low, high = min(values), max(values)
    return (None if low == -_INFINITY else int(low)), (None if high == _INFINITY else int(high))


def _product(x: float, y: float) -> float:
    if x == 0 or y == 0:
        return 0
    if isinstance(x, float) or isinstance(y, float):
        return _INFINITY if (x > 0) == (y > 0) else -_INFINITY
    return x * y


def _quotient(x: float, y: float) -> float:
    """`x // y` where either may be infinite; y is not 0."""
    same_sign = (x > 0) == (y > 0)
    if isinstance(y, float):
        return 0 if x == 0 or same_sign else -1
    if isinstance(x, float):
        return _INFINITY if same_sign else -_INFINITY
    return x // y


def _signed_parts(b: Interval) -> list[Interval]:
    low, high = b
    negative: list[Interval] = [] if low is not None and low >= 0 else [(low, -1 if high is None else min(high, -1))]
    positive: list[Interval] = [] if high is not None and high <= 0 else [(1 if low is None else max(low, 1), high)]
    return negative + positive


def _modulo_by_positive(a: Interval, b: Interval) -> Interval:
    top = None if b[1] is None else b[1] - 1
    if a[0] is None or a[0] < 0:
        return 0, top
    if a[1] is not None and b[0] is not None and a[1] < b[0]:
        return a
    return intersection((0, a[1]), (0, top))
