"""Whole numbers that are places of an axis: what `topk` of n scores gives lies in 0 to n - 1, wherever it is read.

>>> places(chosen)          # chosen = scores.topk(2, dim=-1).indices, of 8 scores each
8
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from shapeflow.dims.expr import Expr
from shapeflow.trace.traced import Record, Signature, traced

PICKS = frozenset({"topk", "argmax", "argmin", "max", "min", "sort", "argsort", "multinomial"})
COPIES = frozenset(
    """view reshape permute transpose squeeze unsqueeze flatten t T mT to type type_as long int cpu contiguous clone
    detach movedim ravel""".split()
)
"""What gives the same numbers again."""
SOME = frozenset(
    """expand getitem select unbind chunk split narrow unique unique_consecutive repeat_interleave index_select gather
    masked_select sort""".split()
)
HANDS_ON = COPIES | SOME
"""What gives the same numbers again, or some of them."""
COUNTS = frozenset({"bincount", "histc", "sum", "count_nonzero", "one_hot", "cumsum", "scatter", "scatter_"})
ASKS = frozenset(
    {"eq", "ne", "gt", "ge", "lt", "le", "greater", "less", "not_equal", "any", "where", "nonzero", "bool"}
)
TELLS = HANDS_ON | COUNTS | ASKS
"""What is still about who was chosen."""


def places(tensor: torch.Tensor) -> int | None:
    """The n of which every number in the tensor is one, 0 to n - 1; None where that is not known."""
    note = traced(tensor)
    return None if note is None else _places(note.record, note.index)


def is_about_a_pick(tensor: torch.Tensor) -> bool:
    """Whether a tensor of whole numbers or truth values tells which places were picked."""
    note = traced(tensor)
    return note is not None and any(_picked(record) is not None for record, _ in _behind(note.record, note.index))


@dataclass(frozen=True, slots=True)
class Shared:
    """How often the `place`-th of several was picked: the counts, by their record, of `picks` that they share out."""

    record: int
    place: int
    of: int
    picks: Signature


def shared_out(element: torch.Tensor) -> Shared | None:
    """What an element of a tensor of counts is, where all of the counts add up to the number of picks."""
    note = traced(element)
    if note is None or note.record.operator not in ("unbind", "getitem", "select"):
        return None
    record = note.record
    counts, _, signature = record.sources[0]
    place = note.index if record.operator == "unbind" else record.node.args[-1]
    of = number_of(signature.sizes[0]) if len(signature.sizes) == 1 else None
    if of is None or type(place) is not int or len(record.sources) != 1:
        return None
    counts = _copied(counts)
    picks = _counted(counts)
    return None if picks is None else Shared(id(counts), place % of, of, picks)


def _copied(record: Record) -> Record:
    """What is behind copies and other shapes of it."""
    while record.operator in COPIES and len(record.sources) == 1:
        record = record.sources[0][0]
    return record


def _counted(record: Record) -> Signature | None:
    """The picks that are counted here, each once: by `bincount`, or as the sum of a mask of one place for each."""
    if record.operator == "sum" and record.sources:
        record = _copied(record.sources[0][0])
        if record.operator not in ("one_hot", "scatter", "scatter_"):
            return None
    elif record.operator != "bincount":
        return None
    source, index, signature = record.sources[-1]
    return signature if _places(source, index) is not None else None


def axis_of(record: Record) -> int:
    """The axis along which an operator picks."""
    args, kwargs = record.node.args[1:], record.node.kwargs
    if "dim" in kwargs:
        return kwargs["dim"] if isinstance(kwargs["dim"], int) else -1
    if record.operator in ("topk", "multinomial"):
        args = args[1:]
    return args[0] if args and type(args[0]) is int else -1


def _places(record: Record, index: int) -> int | None:
    column = None
    while True:
        picked = _picked(record)
        if picked is not None:
            return picked if _is_whole(record.outputs[index]) else None
        if record.operator == "nonzero" or (record.operator == "where" and len(record.sources) == 1):
            return _places_of_true(record, index if len(record.outputs) > 1 else column)
        if record.operator not in HANDS_ON or not record.sources or not _is_whole(record.sources[0][2]):
            return None
        if record.operator in ("unique", "sort") and index > 0:
            return None
        if record.operator == "unbind" and len(record.sources[0][2].sizes) == 1:
            column = index
        record, index, _ = record.sources[0]


def _places_of_true(record: Record, axis: int | None) -> int | None:
    """A column of the true places of a mask has places of one axis; the only one of a mask along one."""
    sizes = record.sources[0][2].sizes
    if len(sizes) == 1:
        return number_of(sizes[0])
    return None if axis is None or axis >= len(sizes) else number_of(sizes[axis])


def _behind(record: Record, index: int) -> Iterator[tuple[Record, int]]:
    """The record and those that its numbers were read from, as long as they tell who was chosen."""
    waiting, seen = [(record, index)], set()
    while waiting:
        each, place = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each, place
        if each.operator in TELLS:
            waiting.extend(
                (source, at)
                for source, at, signature in each.sources
                if _is_whole(signature) or source.operator in COUNTS  # weights that were put in the picked places
            )


def _picked(record: Record) -> int | None:
    """How many there were to pick from, for an operator that picks by scores."""
    if record.operator.strip("_") not in PICKS or not record.sources or not record.sources[0][2].sizes:
        return None
    scores: Any = record.sources[0][2]
    if _is_whole(scores) or not any(map(_is_whole, record.outputs)):
        return None
    return number_of(scores.sizes[axis_of(record)])


def number_of(size: Any) -> int | None:
    """A size as a number, where it has one."""
    return size.value if isinstance(size, Expr) else size


def _is_whole(signature: Signature) -> bool:
    return not signature.dtype.is_floating_point and not signature.dtype.is_complex
