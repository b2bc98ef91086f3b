"""A line of a parameter report for each module: what is in it and below it, each tensor once.

>>> [(row.path, row.parameters) for row in params(model).rows]
[('', 33), ('0', 33), ('1', 33)]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from shapeflow.cost.formula import formula
from shapeflow.cost.inventory import Count, Inventory, joined

if TYPE_CHECKING:
    from shapeflow.trace.result import Trace


class ParamRow:
    """One module with all that is below it.

    `parameters`, `trainable` and `buffers` count the different numbers in it, `own` those that it holds itself;
    `nbytes` are those of its parameters. `shared` says which of its own tensors belong to a module above it in the
    table as well (`weight is embedding.weight`), and `lazy` which have no shape yet. With a trace, `calls` counts the
    calls of its forward, and `reached` is False where the traced forward neither calls it, nor anything in it, nor
    reads a parameter of it.
    """

    __slots__ = ("_number", "_table")

    def __init__(self, table: Table, number: int) -> None:
        self._table = table
        self._number = number

    @property
    def path(self) -> str:
        """The dotted name, "" for the whole model."""
        return self._table.found.paths[self._number]

    @property
    def kind(self) -> str:
        return self._table.found.modules.kind[self._number]

    @property
    def parameters(self) -> Count:
        return self._table.parameters[self._number]

    @property
    def trainable(self) -> Count:
        return self._table.trainable[self._number]

    @property
    def frozen(self) -> Count:
        return formula(self.parameters - self.trainable, ())

    @property
    def buffers(self) -> Count:
        return self._table.buffers[self._number]

    @property
    def own(self) -> Count:
        return self._table.own[self._number]

    @property
    def nbytes(self) -> Count:
        return self._table.nbytes[self._number]

    @property
    def shared(self) -> tuple[str, ...]:
        return self._table.notes[0][self._number]

    @property
    def lazy(self) -> tuple[str, ...]:
        return self._table.notes[1][self._number]

    @property
    def calls(self) -> int | None:
        return self._table.traced[0][self._number]

    @property
    def reached(self) -> bool | None:
        return self._table.traced[1][self._number]

    @property
    def depth(self) -> int:
        """0 for the model, 1 for its children, ..."""
        return self.path.count(".") + 1 if self.path else 0

    def __repr__(self) -> str:
        return f"ParamRow({', '.join(f'{name}={getattr(self, name)!r}' for name in FIELDS)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ParamRow) and all(getattr(self, name) == getattr(other, name) for name in FIELDS)

    def __hash__(self) -> int:
        return hash((self.path, self.kind))


FIELDS = "path kind parameters trainable buffers own nbytes shared lazy calls reached".split()


@dataclass(frozen=True, eq=False)
class Table:
    """What the rows of a report tell, by column; a column is made when the first row is asked for it."""

    found: Inventory
    names: tuple[str, ...]
    trace: Trace | None

    @cached_property
    def parameters(self) -> list[Count]:
        return self._below(self.found.tensors.count, self.found.parameters)

    @cached_property
    def trainable(self) -> list[Count]:
        trained = [number for number in self.found.parameters if self.found.tensors.trainable[number]]
        if len(trained) == len(self.found.parameters):
            return self.parameters
        return self._below(self.found.tensors.count, trained)

    @cached_property
    def buffers(self) -> list[Count]:
        return self._below(self.found.tensors.count, self.found.buffers)

    @cached_property
    def nbytes(self) -> list[Count]:
        return self._below(self.found.tensors.nbytes, self.found.parameters)

    @cached_property
    def own(self) -> list[Count]:
        return self._formulas(_own(self.found))

    @cached_property
    def notes(self) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
        return _notes(self.found)

    @cached_property
    def traced(self) -> tuple[list[Any], list[Any]]:
        if self.trace is None:
            nothing = [None] * len(self.found.modules.name)
            return nothing, nothing
        return _traced(self.found, self.trace)

    @cached_property
    def _ties(self) -> list[Tie]:
        return [*_ties(self.found)]

    def _below(self, values: Sequence[Count], numbers: Sequence[int]) -> list[Count]:
        return self._formulas(_below(self.found, values, numbers, self._ties))

    def _formulas(self, column: list[Count]) -> list[Count]:
        return [formula(each, self.names) for each in column] if self.names else column


def rows(found: Inventory, names: tuple[str, ...], trace: Trace | None = None) -> list[ParamRow]:
    """One row for each module, in definition order."""
    table = Table(found, names, trace)
    return [ParamRow(table, number) for number in range(len(found.modules.name))]


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
