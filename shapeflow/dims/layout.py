"""Layout questions over plain numbers: is a tensor of these sizes and strides contiguous, channels-last, dense?

>>> is_contiguous([2, 3], [3, 1])
True
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Question = Callable[[Sequence[int], Sequence[int]], bool]


def _dense_in_order(sizes: Sequence[int], strides: Sequence[int], order: Sequence[int]) -> bool:
    """Whether the axes, taken from the innermost of `order`, follow one another without a gap."""
    expected = 1
    for axis in order:
        if sizes[axis] != 1:
            if strides[axis] != expected:
                return False
            expected *= sizes[axis]
    return True


def is_contiguous(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Row-major, without gaps."""
    return 0 in sizes or _dense_in_order(sizes, strides, range(len(sizes) - 1, -1, -1))


def _channels_last_order(rank: int) -> list[int]:
    return [1, *range(rank - 1, 1, -1), 0]


def is_channels_last_contiguous(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Dense with the channel axis innermost, for 4 (images) or 5 (volumes) axes."""
    return len(sizes) in (4, 5) and _dense_in_order(sizes, strides, _channels_last_order(len(sizes)))


def is_channels_last_strides(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Strides that say channels-last, gaps allowed. Mirrors c10/core/MemoryFormat.h, ties included."""
    if len(sizes) not in (4, 5) or strides[1] == 0:
        return False
    least = 0
    for axis in _channels_last_order(len(sizes)):
        if sizes[axis] == 0 or strides[axis] < least or (axis == 0 and least == strides[1]):
            return False
        least = strides[axis] * max(sizes[axis], 1)
    return True


def is_non_overlapping_and_dense(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Some order of the axes is without gaps and overlaps."""
    if len(sizes) == 1:
        return sizes[0] < 2 or strides[0] == 1
    order = sorted(range(len(sizes)), key=lambda axis: (sizes[axis] < 2, strides[axis]))
    return _dense_in_order(sizes, strides, order)
