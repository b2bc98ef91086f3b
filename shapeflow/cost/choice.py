"""Which tensors of a graph say what a router chose: `topk` of scores, and what is made of its indices.

>>> chosen = choices(records)
>>> chosen.of(record, 1)        # {Choice(k=2, of=8): None}: the ids; {...: 3} for `ids == 3`, a mask of one expert

A choice is the operator that picks k of n by scores (`topk`, `argmax`, a `sort` of which the first k are kept). What
is made of its indices selects: ids, one-hot masks, comparisons with the number of one expert, weights that are zero
where nothing was chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import fx

from shapeflow.trace.picks import PICKS, axis_of, number_of
from shapeflow.trace.traced import Record, Signature

ELEMENTWISE = frozenset(
    """to float half bfloat16 double type type_as mul div add sub where masked_fill softmax exp clone contiguous detach
    mul_ div_ masked_fill_ imul idiv""".split()
)
"""What keeps zeros, or a mask's places, where its output is as large as the mask."""
REARRANGES = frozenset(
    """view reshape permute transpose squeeze unsqueeze expand getitem select unbind chunk split flatten t T mT narrow
    sum any amax repeat_interleave movedim unflatten view_as expand_as""".split()
)
WRITES = frozenset({"scatter", "scatter_", "setitem", "index_put", "index_put_", "scatter_add", "scatter_add_"})
"""What puts values at chosen places: a mask where it fills a tensor with an axis of all choices."""


ONE_HOT = frozenset({"gumbel_softmax"})
COUNTS = frozenset({"histc", "bincount", "cumsum"})
"""How often each was chosen."""


@dataclass(frozen=True, slots=True)
class Choice:
    """`k` of `of`, by the operator of this number."""

    number: int
    k: int
    of: int


Selection: TypeAlias = dict[Choice, int | None]
"""By what a tensor selects, each with the one choice that it is about, if it is about one."""


@dataclass(slots=True)
class Choices:
    """What each tensor selects, and which whole numbers come from the inputs' own (token ids).

    `least` are scores that k of n are at least as great as: what is compared with them is chosen.
    """

    selections: dict[tuple[int, int], Selection] = field(default_factory=dict)
    least: dict[tuple[int, int], Choice] = field(default_factory=dict)
    given: set[tuple[int, int]] = field(default_factory=set)

    def of(self, record: Record, index: int) -> Selection:
        """What the `index`-th output of a record selects."""
        return self.selections.get((id(record), index), {})

    def is_given(self, record: Record, index: int) -> bool:
        return (id(record), index) in self.given


def choices(inputs: Iterable[Record], records: Iterable[Record]) -> Choices:
    """Follows every choice through the operators, in their order."""
    found = Choices()
    found.given.update((id(each), 0) for each in inputs if not each.outputs[0].dtype.is_floating_point)
    for record in records:
        if record.kind != "operator":
            continue
        if any(found.is_given(source, index) for source, index, _ in record.sources):
            found.given.update((id(record), place) for place, each in enumerate(record.outputs) if _is_whole(each))
        picked = _picked(record)
        _follow_least(record, picked, found)
        for place, output in enumerate(record.outputs):
            if picked:
                selected: Selection = {picked: None} if _is_whole(output) or record.operator in ONE_HOT else {}
            else:
                selected = _selected(record, place, found) | _compared(record, found)
            if selected:
                found.selections[id(record), place] = selected
    return found


def sizes(signature: Signature) -> list[int | None]:
    return [number_of(size) for size in signature.sizes]


def _is_whole(signature: Signature) -> bool:
    return not signature.dtype.is_floating_point and not signature.dtype.is_complex


# Where choices arise


def _picked(record: Record) -> Choice | None:
    """The choice that an operator makes among scores."""
    if record.operator in ONE_HOT:
        return _one_hot(record)
    if record.operator.strip("_") not in PICKS or not record.sources or _is_whole(record.sources[0][2]):
        return None
    if record.sources[0][0].kind != "operator" or not any(map(_is_whole, record.outputs)):
        return None  # the largest of a parameter is no choice of a token
    scores = record.sources[0][2]
    if not scores.sizes:
        return None
    axis = axis_of(record)
    of = number_of(scores.sizes[axis])
    index = next(each for each in record.outputs if _is_whole(each))
    kept = len(index.sizes) == len(scores.sizes)
    k = number_of(index.sizes[axis]) if kept else 1
    return None if of is None or k is None else Choice(record.number, k, of)


def _one_hot(record: Record) -> Choice | None:
    """`gumbel_softmax(logits, hard=True)`: a one where the greatest is."""
    args, kwargs = record.node.args, record.node.kwargs
    axis = kwargs.get("dim", args[4] if len(args) > 4 else -1)
    of = number_of(record.outputs[0].sizes[axis])
    hard = kwargs.get("hard", args[2] if len(args) > 2 else False)
    return Choice(record.number, 1, of) if hard and of is not None else None


# The least of the chosen scores


def _follow_least(record: Record, picked: Choice | None, found: Choices) -> None:
    """Note outputs that are scores which k are at least as great as: `topk(k).values[..., -1:]`, `kthvalue`."""
    choice = None
    if picked is not None and record.operator == "topk":
        choice = picked
    elif record.operator == "kthvalue":
        choice = _above(record)
    elif record.operator in REARRANGES | {"min", "amin"} and record.sources:
        source, index, _ = record.sources[0]
        choice = found.least.get((id(source), index))
    if choice is not None:
        found.least.update(
            ((id(record), place), choice) for place, each in enumerate(record.outputs) if not _is_whole(each)
        )


def _above(record: Record) -> Choice | None:
    """How many of n are at least as great as the k-th smallest."""
    args, kwargs = record.node.args, record.node.kwargs
    k = kwargs.get("k", args[1] if len(args) > 1 else None)
    axis = kwargs.get("dim", args[2] if len(args) > 2 else -1)
    of = number_of(record.sources[0][2].sizes[axis])
    return Choice(record.number, of - k + 1, of) if of is not None and type(k) is int else None


def _compared(record: Record, found: Choices) -> Selection:
    """A mask of the scores that are at least as great as the least of the chosen, or of those that are not."""
    if record.operator not in ("lt", "le", "gt", "ge") or len(record.sources) != 2:
        return {}
    known = [found.least.get((id(source), index)) for source, index, _ in record.sources]
    sizes_of_mask = sizes(record.outputs[0])
    return {choice: None for choice in known if choice is not None and choice.of in sizes_of_mask}


# How they go on


def _selected(record: Record, place: int, found: Choices) -> Selection:
    total: Selection = {}
    for source, index, signature in record.sources:
        for choice, member in found.of(source, index).items():
            if _goes_on(record, place, signature, choice, member):
                choice = _narrowed(record, place, signature, choice)
                member = _member(record, place, signature, choice) if member is None else member
                total[choice] = member if total.get(choice, member) == member else None
    return total


def _goes_on(record: Record, place: int, signature: Signature, choice: Choice, member: int | None) -> bool:
    """Whether the output still tells what was chosen, and is not something that was computed for it."""
    output = record.outputs[place]
    if _is_whole(output):
        return True
    name = record.operator
    has_all = choice.of in sizes(output)
    if name in COUNTS:
        return True
    if name in WRITES:
        return has_all and len(output.sizes) <= len(signature.sizes) + 1
    if name in REARRANGES:
        is_own = record.sources[0][2] is signature and not _is_whole(signature)
        return is_own and (has_all or member is not None or name in ("getitem", "select", "unbind", "chunk", "split"))
    return name in ELEMENTWISE and output.sizes == signature.sizes


def _narrowed(record: Record, place: int, before: Signature, choice: Choice) -> Choice:
    """The first k of a sort: `order[..., :k]`."""
    if choice.k != choice.of or record.operator not in ("getitem", "narrow", "split", "chunk"):
        return choice
    old, new = sizes(before), sizes(record.outputs[place])
    kept = new[-1] if len(old) == len(new) and old[-1] == choice.of else None
    return Choice(choice.number, kept, choice.of) if kept is not None and kept < choice.of else choice


def _member(record: Record, place: int, before: Signature, choice: Choice) -> int | None:
    """The one expert that the output is about: `ids == 3`, `mask[..., 3]`, the third part of an unbound mask."""
    name, args = record.operator, record.node.args
    if name == "eq":
        return next((each for each in args if type(each) is int), None)
    if name == "getitem" and len(args) > 1 and before is record.sources[0][2]:
        return next((at for axis, at in _fixed(args[1], len(before.sizes)) if sizes(before)[axis] == choice.of), None)
    if name == "select" and len(args) > 2 and type(args[1]) is int and type(args[2]) is int:
        return args[2] if sizes(before)[args[1]] == choice.of else None
    if name in ("unbind", "chunk", "split") and len(record.outputs) == choice.of:
        return place
    return None


def _fixed(index: Any, rank: int) -> Iterator[tuple[int, int]]:
    """Axes at which an index has one whole number, with it."""
    parts = list(index) if isinstance(index, tuple | list) else [index]
    parts = [Ellipsis if _is_object(part) else part for part in parts]
    consumed = sum(_rank_of_mask(part) for part in parts if part is not None and part is not Ellipsis)
    axis = 0
    for part in parts:
        if part is Ellipsis:
            axis += rank - consumed
        elif part is not None:
            at = _sole(part)
            if at is not None:
                yield axis, at
            axis += _rank_of_mask(part)


def _is_object(part: Any) -> bool:
    """What the graph keeps for `...`, which torch.fx has no argument for."""
    return isinstance(part, fx.Node) and part.op == "get_attr" and str(part.target).startswith("_object")


def _sole(part: Any) -> int | None:
    """The one place that `3` or `3:4` stands for."""
    if type(part) is int:
        return part
    is_one = isinstance(part, slice) and type(part.start) is int and part.stop == part.start + 1
    return part.start if is_one else None


def _rank_of_mask(part: Any) -> int:
    """A mask of two axes takes the place of two."""
    value = part.meta.get("val") if isinstance(part, fx.Node) else None
    return value.dim() if isinstance(value, torch.Tensor) and value.dtype == torch.bool else 1
