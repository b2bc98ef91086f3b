"""How many rows experts see, where each takes the tokens that chose it: together, one for each choice.

A loop over experts finds its rows by value (`torch.where(chosen == expert)`), so each count is a name of its own: `u0`,
`u1`, ... Every entry of `chosen` names exactly one expert: the counts add up to its number of entries.

>>> dispatched(attempt, lineage)
{u0: 2*B*T, u1: 0, u2: 0}
"""

from __future__ import annotations

import torch

from shapeflow.cost.attention import Lineage
from shapeflow.cost.calls import Call, numbers
from shapeflow.dims.atoms import Symbol
from shapeflow.dims.expr import Expr
from shapeflow.trace.attempt import Attempt
from shapeflow.trace.traced import Record, Signature, size_key

COUNTED = frozenset({"sum", "mean", "count_nonzero", "amax", "max", "cumsum", "bincount", "histc"})
"""What is found behind these are experts, not rows: which of them any token chose."""
CHOICES = frozenset({"topk", "argmax", "max", "sort", "argsort", "multinomial"})

Choice = tuple[Record, int, Signature]


def dispatched(attempt: Attempt, lineage: Lineage) -> dict[Symbol, Expr]:
    """For counts that share out one tensor of choices: all of its entries for the first of them, none for the others.

    Formulas that are linear in the counts, with one cost a row, are exact in sum; which expert gets what is not known.
    """
    groups: dict[tuple[int, int], tuple[Choice, list[Symbol]]] = {}
    seen: set[Symbol] = set()
    for call in lineage.calls:
        for symbol in _counts(attempt, call):
            if symbol not in seen and (choice := _choice(lineage, call)) is not None:
                groups.setdefault((id(choice[0]), choice[1]), (choice, []))[1].append(symbol)
            seen.add(symbol)
    shares: dict[Symbol, Expr] = {}
    for (_, _, signature), symbols in groups.values():
        if len(symbols) > 1:
            shares.update(dict.fromkeys(symbols, Expr.const(0)))
            shares[symbols[0]] = numbers(signature.sizes)
    return shares


def _counts(attempt: Attempt, call: Call) -> list[Symbol]:
    """Names that values decide and that are the size of an axis of what this call makes."""
    sizes = [size_key(size) for tensor in call.makes for size in tensor.shape]
    symbols = [symbol for size in sizes if type(size) is not int for symbol in size.symbols]
    return [symbol for symbol in dict.fromkeys(symbols) if symbol in attempt.env.fresh]


def _choice(lineage: Lineage, call: Call) -> Choice | None:
    """The tensor of choices that a mask compares with one expert, or spreads over all, if a router made it."""
    while True:
        sources = call.record.sources
        if call.record.operator in ("eq", "one_hot"):
            return _of_router(lineage, call)
        if not sources or call.record.operator in COUNTED:
            return None
        masks = [n for n, (_, _, signature) in enumerate(sources) if signature.dtype is torch.bool]
        above = lineage.makers(call)[masks[0] if masks else 0]
        if above is None:
            return None
        call = above


def _of_router(lineage: Lineage, call: Call) -> Choice | None:
    """What the call reads that was chosen: seen through reshapes, it is what `topk` or `argmax` gave."""
    for choice, maker in zip(call.record.sources, lineage.makers(call), strict=True):
        origin = choice
        while maker is not None:
            if maker.record.operator in CHOICES:
                return origin
            origin = maker.record.sources[0] if maker.record.sources else origin
            maker = next(iter(lineage.makers(maker)), None)
    return None
