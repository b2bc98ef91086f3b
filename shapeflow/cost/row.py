"""A line of a parameter report for each module: what is in it and below it, each tensor once.

>>> [(row.path, row.parameters) for row in params(model).rows]
[('', 33), ('0', 33), ('1', 33)]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from shapeflow.cost.formula import formula
from shapeflow.cost.inventory import Count, Inventory, joined, new

if TYPE_CHECKING:
    from shapeflow.trace.result import Trace


class ParamRow(NamedTuple):
    """One module with all that is below it.

    `parameters`, `trainable` and `buffers` count the different numbers in it, `own` those that it holds itself.
    `shared` says which of its own tensors belong to a module above it in the table as well (`weight is
    embedding.weight`), and `lazy` which have no shape yet. With a trace, `calls` counts the calls of its forward, and
    `reached` is False where the traced forward neither calls it, nor anything in it, nor reads a parameter of it.
    """

    path: str  # "" for the whole model
    kind: str
    parameters: Count
    trainable: Count
    buffers: Count
    shared: tuple[str, ...] = ()
    lazy: tuple[str, ...] = ()
    own: Count = 0
    nbytes: Count = 0  # of the parameters
    calls: int | None = None
    reached: bool | None = None

    @property
    def frozen(self) -> Count:
        return formula(self.parameters - self.trainable, ())

    @property
    def depth(self) -> int:
        """0 for the model, 1 for its children, ..."""
        return self.path.count(".") + 1 if self.path else 0


def rows(found: Inventory, names: tuple[str, ...], trace: Trace | None = None) -> list[ParamRow]:
    """One row for each module, in definition order."""
    tensors = found.tensors
    trained = [number for number in found.parameters if tensors.trainable[number]]
    ties = [*_ties(found)]
    parameters = _below(found, tensors.count, found.parameters, ties)
    trainable = parameters
    if len(trained) < len(found.parameters):
        trainable = _below(found, tensors.count, trained, ties)
    buffers = _below(found, tensors.count, found.buffers, ties)
    nbytes = _below(found, tensors.nbytes, found.parameters, ties)
    counts = [parameters, trainable, buffers, _own(found), nbytes]
    if names:
        counts = [[formula(each, names) for each in column] for column in counts]
    shared, lazy = _notes(found)
    calls, reached = ([None] * len(parameters),) * 2 if trace is None else _traced(found, trace)
    columns = (found.paths, found.modules.kind, *counts[:3], shared, lazy, *counts[3:], calls, reached)
    return [new(ParamRow, each) for each in zip(*columns, strict=True)]


def _direct(found: Inventory, values: Sequence[Count], numbers: Iterable[int]) -> list[Count]:
    """For each module the sum over those of these tensors that are first met in it."""
    sums: list[Count] = [0] * len(found.modules.name)
    places = found.tensors.module
    for number in numbers:
        sums[places[number]] += values[number]
    return sums


def _below(found: Inventory, values: Sequence[Count], numbers: Sequence[int], ties: list[Tie]) -> list[Count]:
    """For each module the sum over those of these tensors that are in it or below it, each once."""
    sums = _direct(found, values, numbers)
    wanted = {*numbers} if ties else ()
    for number, place, times in ties:
        if number in wanted:
            sums[place] += times * values[number]
    parents = found.modules.parent
    for number in range(len(sums) - 1, 0, -1):
        sums[parents[number]] += sums[number]
    return sums


def _own(found: Inventory) -> list[Count]:
    """Parameters that each module holds itself, whether or not another one holds them too."""
    own = _direct(found, found.tensors.count, found.parameters)
    if found.is_plain:
        return own
    columns = found.tensors
    again = {(columns.module[place], first) for place, first in enumerate(columns.first) if first != place}
    for place, first in again:
        if place != columns.module[first] and not columns.is_buffer[first]:
            own[place] += columns.count[first] or 0
    return [own[first] for first in found.modules.first]


Tie: TypeAlias = tuple[int, int, int]
"""A tensor, a module in which it counts again, and 1; or one in which it would count twice so, and -1."""


def _ties(found: Inventory) -> Iterator[Tie]:
    """What tensors in several places add to sums that know the first place only.

    A tensor in two modules counts in both, and in the innermost one that has both in it only once.
    """
    for number, holders in _holders(found).items():
        for holder in holders - {found.tensors.module[number]}:
            yield number, holder, 1
        for left, right in pairwise(sorted(holders)):
            yield number, _common(found.modules.parent, left, right), -1


def _holders(found: Inventory) -> dict[int, set[int]]:
    """The modules that hold a tensor, by its number, for those that several do."""
    if found.is_plain:
        return {}
    columns, holders = found.tensors, {}
    for place, first in enumerate(columns.first):
        if first != place and columns.count[first] is not None:
            holders.setdefault(first, {columns.module[first]}).add(columns.module[place])
    below: dict[int, set[int]] = {}
    for number, first in enumerate(found.modules.first):
        if first != number:
            for each in _tensors_below(found, first, below):
                holders.setdefault(each, {columns.module[each]}).add(number)
    return holders


def _tensors_below(found: Inventory, top: int, known: dict[int, set[int]]) -> set[int]:
    """The tensors in a module, where it is met first, and in all below it."""
    if top in known:
        return known[top]
    tensors = known[top] = set()
    modules, columns = found.modules, found.tensors
    end = next((each for each in range(top + 1, len(modules.name)) if modules.parent[each] < top), len(modules.name))
    for number, place in enumerate(columns.module):
        if top <= place < end and columns.count[number] is not None:
            tensors.add(columns.first[number])
    for number in range(top, end):
        if modules.first[number] != number:
            tensors |= _tensors_below(found, modules.first[number], known)
    return tensors


def _common(parents: Sequence[int], left: int, right: int) -> int:
    """The innermost module that has both in it: one is always numbered before what is in it."""
    while left != right:
        left, right = (parents[left], right) if left > right else (left, parents[right])
    return left


def _notes(found: Inventory) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """For each module what it shares with one above it in the table, and which of its tensors are lazy."""
    shared: list[tuple[str, ...]] = [()] * len(found.modules.name)
    lazy = [*shared]
    if found.is_plain:
        return shared, lazy
    places, names, firsts, _, counts, *_ = found.tensors
    for number, first in enumerate(firsts):
        if first != number:
            home = joined(found.paths[places[first]], names[first])
            shared[places[number]] += (f"{names[number]} is {home}",)
        if counts[number] is None:
            lazy[places[number]] += (names[number],)
    for number, first in enumerate(found.modules.first):
        if first != number:
            shared[number] = (f"all of it is {found.paths[first] or 'the model'}",)
    return shared, lazy


def paths_above(path: str) -> set[str]:
    """Of the modules that this one is in, without the model itself."""
    return {path[:end] for end, letter in enumerate(path) if letter == "."}


def _traced(found: Inventory, trace: Trace) -> tuple[list[Any], list[Any]]:
    """How often each module was called, and whether it was reached."""
    reached = _reached(found, trace)
    infos = [trace.modules.get(path) for path in found.paths]
    return [None if each is None else each.called for each in infos], [path in reached for path in found.paths]


def _reached(found: Inventory, trace: Trace) -> set[str]:
    """Paths of modules that were called, or of which a parameter was read, and of those that they are in."""
    read = {path for node in trace.nodes for path in node.parameters}
    holders = {found.paths[each.module] for each in found.holdings if found.path(found.holdings[each.first]) in read}
    firsts = found.modules.first
    called = {path for path, first in zip(found.paths, firsts, strict=True) if _calls(trace, path, found.paths[first])}
    direct = holders | called
    return {"", *direct, *(above for path in direct for above in paths_above(path))}


def _calls(trace: Trace, *paths: str) -> int:
    return max(trace.modules[each].called for each in paths if each in trace.modules)
