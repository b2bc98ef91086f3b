"""Which part of each parameter one token can touch, read off the graph of a trace.

>>> touched = routing(trace)
>>> touched["blocks.0.ffn.experts.up"].fraction
Fraction(1, 4)

A parameter is touched in part

* where an operator reads it at chosen places: `weights[ids]`, a product of grouped matrices by the chosen ones' counts;
* where whatever is made of it passes a gate of one expert, on every way to the model's outputs: rows that are put back
  at `where(ids == 3)`, a product with `mask[..., 3]`; or a gate of all experts along an axis that it has itself.

Then k of n experts are: k/n of it. All else that is read is touched, and what is read nowhere is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

from shapeflow.cost.choice import WRITES, Choice, Choices, choices, sizes
from shapeflow.cost.measured import measured
from shapeflow.trace.traced import Record, Signature

if TYPE_CHECKING:
    from shapeflow.trace.result import Trace

VIEWS = frozenset(
    """view reshape permute transpose squeeze unsqueeze expand t T mT to float half bfloat16 double type_as contiguous
    detach clone getitem select unbind chunk split narrow flatten movedim alias data unflatten""".split()
)
"""What hands a parameter on, or a part of it, without having computed anything with it."""
LOOKS_UP = frozenset({"getitem", "embedding", "index_select", "gather", "take_along_dim", "embedding_bag", "take"})
ACCUMULATES = WRITES | {"index_add", "index_add_", "index_copy", "index_copy_", "scatter_reduce", "scatter_reduce_"}
ACCUMULATES |= {"masked_fill", "masked_fill_", "masked_scatter", "masked_scatter_"}
"""What is there already (the first argument) stays where nothing is chosen: no gate for it."""

Gate: TypeAlias = tuple[frozenset[Choice], "int | None"]
"""Open where one of the choices fell on this expert; None: each expert's part along an axis of all of them."""
Tensor: TypeAlias = tuple[int, int]


@dataclass(slots=True)
class Touch:
    """What reads of a parameter there are. `looked_up` counts those of rows at whole numbers that came as inputs;
    `measured` says that the fraction was seen in a run, not in the graph.
    """

    fraction: Fraction = Fraction(0)
    choices: set[Choice] = field(default_factory=set)
    reads: int = 0
    looked_up: int = 0
    measured: bool = False

    @property
    def is_input_embedding(self) -> bool:
        """Whether token ids look rows up in it, and nothing else reads it."""
        return self.reads > 0 and self.looked_up == self.reads


def touches(trace: Trace) -> dict[str, Touch]:
    """By the path of each parameter that a token can touch: from the graph, or where that cannot tell, by running it.

    Raises InputError where neither tells.
    """
    touched = routing(trace)
    if not _is_in_doubt(trace, touched):
        return touched
    known = choices([record for _, record in trace._attempt.inputs], trace._attempt.recorder.ledger.records)
    every = {choice for selection in known.selections.values() for choice in selection}
    for path, part in measured(trace).items():
        touch = touched.setdefault(path, Touch())
        touch.fraction, touch.measured = part, True
        touch.choices = {each for each in every if part < 1 and _factor({each: None}) == part}
    return touched


def _is_in_doubt(trace: Trace, touched: dict[str, Touch]) -> bool:
    """Whether Python code chose which parameters to read: who was picked, or a number while some are never read."""
    read = trace._attempt.values.sizes.read
    return any(read.values()) or (bool(read) and not trace._attempt.parameters.keys() <= touched.keys())


def routing(trace: Trace) -> dict[str, Touch]:
    """By the path of each parameter that the forward reads, from the graph alone."""
    attempt = trace._attempt
    records = attempt.recorder.ledger.records
    found = choices([record for _, record in attempt.inputs], records)
    gates = _gates(records, [(id(record), index) for _, record, index, _ in attempt.outputs], found)
    touched: dict[str, Touch] = {}
    parts: dict[tuple[str, Tensor], list[Read]] = {}
    for path, tensor, read in _reads(records):
        touch = touched.setdefault(path, Touch())
        touch.reads += 1
        touch.looked_up += _is_looked_up(read, found)
        parts.setdefault((path, tensor), []).append(read)
    for (path, _), reads in parts.items():
        touch = touched[path]
        fraction, decided = _fraction(reads, found, gates)
        touch.choices |= decided
        touch.fraction = min(Fraction(1), touch.fraction + fraction)
    return touched


def _fraction(
    reads: list[Read], found: Choices, gates: dict[Tensor, frozenset[Gate] | None]
) -> tuple[Fraction, set[Choice]]:
    """What one token touches of a parameter, or of a part of it, that is read here and there.

    The same tensor behind the gates of two experts is met by tokens of both: only gates that all reads share count.
    """
    chosen = [which for read in reads if (which := _chosen(read, found))]
    ways = [_ways(read, found, gates) for read in reads if not _chosen(read, found)]
    factors = [_factor(which) for which in chosen]
    decided = {choice for which in chosen for choice in which}
    if ways:
        common = _decided(frozenset.intersection(*ways), sizes(reads[0].signature))
        factors.append(_factor(common) if common else Fraction(1))
        decided |= common.keys()
    factor = max(factors)
    return (Fraction(1), set()) if factor == 1 else (reads[0].part * factor, decided)


@dataclass(frozen=True, slots=True)
class Read:
    """One operator that computes with a `part` of a parameter, which is its `place`-th tensor."""

    record: Record
    place: int
    part: Fraction

    @property
    def signature(self) -> Signature:
        return self.record.sources[self.place][2]

    def others(self) -> Iterator[tuple[Record, int, Signature]]:
        """The other tensors that the operator reads."""
        return (each for place, each in enumerate(self.record.sources) if place != self.place)


def _reads(records: Iterable[Record]) -> Iterator[tuple[str, Tensor, Read]]:
    """Each read of a parameter, or of a part of it: its path, which tensor, and who reads it."""
    views: dict[Tensor, tuple[str, Tensor, Fraction]] = {}
    for record in records:
        for place, (source, index, signature) in enumerate(record.sources):
            known = views.get((id(source), index))
            if source.kind == "parameter":
                known = (source.path, (id(source), 0), Fraction(1))
            if known is None:
                continue
            path, tensor, part = known
            if record.operator.strip("_") in VIEWS and len(record.sources) == 1:
                for number, output in enumerate(record.outputs):
                    kept = _kept(signature, output)
                    own = (id(record), number) if kept < 1 else tensor
                    views[id(record), number] = (path, own, part * kept)
            else:
                yield path, tensor, Read(record, place, part)


def _kept(before: Signature, after: Signature) -> Fraction:
    """How large a part a view is: axes of free size count as whole."""
    old, new = _product(before), _product(after)
    return min(Fraction(1), Fraction(new, old)) if old and new else Fraction(1)


def _product(signature: Signature) -> int:
    total = 1
    for size in sizes(signature):
        total *= 0 if size is None else size
    return total


# Reads at chosen places


def _chosen(read: Read, found: Choices) -> dict[Choice, int | None]:
    """By which choices the operator reads only a part: it is given ids, or what was counted of them."""
    chosen: dict[Choice, int | None] = {}
    for source, index, signature in read.others():
        if not signature.dtype.is_floating_point:
            chosen |= found.of(source, index)
    owned: dict[Choice, int | None] = {choice: None for choice in chosen if choice.of in sizes(read.signature)}
    return owned or (chosen if read.record.operator in LOOKS_UP else {})


def _is_looked_up(read: Read, found: Choices) -> bool:
    if read.record.operator not in LOOKS_UP:
        return False
    return any(found.is_given(source, index) for source, index, _ in read.others())


# Gates


def _gates(records: list[Record], outputs: list[Tensor], found: Choices) -> dict[Tensor, frozenset[Gate] | None]:
    """For each tensor the gates that are on every way from it to an output; None where no way leads there."""
    gates: dict[Tensor, frozenset[Gate] | None] = {tensor: frozenset() for tensor in outputs}
    for record in reversed(records):
        behind = _behind(record, gates)
        if behind is None:
            continue
        for place, (source, index, _) in enumerate(record.sources):
            through = _numbered(record, place, behind) | _passed(record, place, found)
            tensor = (id(source), index)
            known = gates.get(tensor)
            gates[tensor] = through if known is None else known & through
    return gates


def _behind(record: Record, gates: dict[Tensor, frozenset[Gate] | None]) -> frozenset[Gate] | None:
    """The gates behind an operator: those on the ways from all its outputs."""
    ways = [way for place in range(len(record.outputs)) if (way := gates.get((id(record), place))) is not None]
    return frozenset.intersection(*ways) if ways else None


def _numbered(record: Record, place: int, behind: frozenset[Gate]) -> frozenset[Gate]:
    """Outputs of all experts that are stacked: a gate of them all is for each the gate of its own place."""
    if record.operator not in ("stack", "cat", "concat", "concatenate"):
        return behind
    count = len(record.sources)
    own = {(which, place) for which, member in behind if member is None and all(each.of == count for each in which)}
    return behind | own


def _passed(record: Record, place: int, found: Choices) -> frozenset[Gate]:
    """The gates that the operator is for its `place`-th tensor."""
    if (place == 0 and record.operator in ACCUMULATES) or (place == 2 and record.operator == "where"):
        return frozenset()
    own = sizes(record.sources[place][2])
    passed = set()
    for other, (source, index, signature) in enumerate(record.sources):
        selected = found.of(source, index) if other != place else {}
        for member in {*selected.values()}:
            which = frozenset(choice for choice, about in selected.items() if about == member)
            if member is None:
                looked_up = record.operator in LOOKS_UP and not signature.dtype.is_floating_point
                which = frozenset(
                    each for each in which if each.of in own and (looked_up or each.of in sizes(signature))
                )
            if which:
                passed.add((which, member))
    return frozenset(passed)


def _ways(read: Read, found: Choices, gates: dict[Tensor, frozenset[Gate] | None]) -> frozenset[Gate]:
    """The gates on every way from what is made of the parameter here to the outputs."""
    return (_behind(read.record, gates) or frozenset()) | _passed(read.record, read.place, found)


def _decided(passed: frozenset[Gate], axes: list[int | None]) -> dict[Choice, int | None]:
    """The choices that decide whether a token meets a tensor of these sizes behind these gates."""
    decided: dict[Choice, int | None] = {}
    for which, member in sorted(passed, key=lambda gate: min(each.number for each in gate[0])):
        fits = member is not None or all(choice.of in axes for choice in which)
        if fits and which.isdisjoint(decided):
            decided |= {choice: min(each.number for each in which) for choice in which}
    return decided


def _factor(chosen: dict[Choice, int | None]) -> Fraction:
    """k/n; the sum for several choices at one gate (the best and the second best), the product for gates in a row."""
    groups: dict[int | None, Fraction] = {}
    for choice, group in chosen.items():
        groups[group] = min(Fraction(1), groups.get(group, Fraction(0)) + Fraction(min(choice.k, choice.of), choice.of))
    total = Fraction(1)
    for factor in groups.values():
        total *= factor
    return total
