"""A line of a parameter report for each module: what is in it and below it, each tensor once.

>>> [(row.path, row.parameters) for row in params(model).rows]
[('', 33), ('0', 33), ('1', 33)]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from shapeflow.cost.formula import formula
from shapeflow.cost.inventory import Count, Holding, Inventory, joined

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


def rows(found: Inventory, names: tuple[str, ...], trace: Trace | None = None) -> Iterator[ParamRow]:
    """One row for each module, in definition order."""
    own: list[list[Holding]] = [[] for _ in found.members]
    for holding in found.holdings:
        own[holding.module].append(holding)
    infos = {} if trace is None else trace.modules
    reached = None if trace is None else _reached(found, trace)
    direct = [_totals(held) if held else NOTHING for held in own]
    alone = _is_alone(found)
    for number, (member, total) in enumerate(zip(found.members, _totals_below(found, own, direct), strict=True)):
        parameters, trainable, buffers, nbytes = (formula(each, names) for each in total) if names else total
        held = own[number]
        info = infos.get(member.path)
        yield ParamRow(
            member.path,
            member.kind,
            parameters,
            trainable,
            buffers,
            () if alone else _shared(found, number, held),
            tuple(each.name for each in held if each.count is None) if held else (),
            formula(direct[number][0], names) if names else direct[number][0],
            nbytes,
            None if info is None else info.called,
            None if reached is None else member.path in reached,
        )


Totals: TypeAlias = tuple[Count, Count, Count, Count]
"""Parameters, trainable ones, numbers in buffers, bytes of the parameters."""
NOTHING: Totals = (0, 0, 0, 0)


def _totals(held: Iterable[Holding]) -> Totals:
    parameters = trainable = buffers = nbytes = 0
    for each in held:
        if each.count is None:
            continue
        if each.is_buffer:
            buffers += each.count
        else:
            parameters += each.count
            nbytes += each.nbytes
            trainable += each.count if each.trainable else 0
    return parameters, trainable, buffers, nbytes


def _is_alone(found: Inventory) -> bool:
    """Whether every tensor and every module has one name."""
    parts = (found.holdings, found.members)
    return all(each.first == number for part in parts for number, each in enumerate(part))


def _totals_below(found: Inventory, own: list[list[Holding]], direct: list[Totals]) -> list[Totals]:
    """For each module of what is in it and below it, each tensor once."""
    if not _is_alone(found):
        return [_totals(found.holdings[each] for each in below) for below in _tensors_below(found, own)]
    total = [*direct]
    for number in range(len(total) - 1, 0, -1):
        a, b, c, d = total[number]
        w, x, y, z = total[found.members[number].parent]
        total[found.members[number].parent] = (a + w, b + x, c + y, d + z)
    return total


def paths_above(path: str) -> set[str]:
    """Of the modules that this one is in, without the model itself."""
    return {path[:end] for end, letter in enumerate(path) if letter == "."}


def _tensors_below(found: Inventory, own: list[list[Holding]]) -> list[set[int]]:
    """For each module the numbers of the different tensors in it and below it."""
    below: list[set[int]] = [{each.first for each in held if each.count is not None} for held in own]
    again = [number for number, member in enumerate(found.members) if member.first != number]
    for number in range(len(below) - 1, 0, -1):
        below[found.members[number].parent] |= below[number]
    for number in again:  # met before: its tensors are those of its first path, and belong to what it is in now too
        tensors = below[found.members[number].first]
        below[number] = tensors
        while number:
            number = found.members[number].parent
            below[number] |= tensors
    return below


def _shared(found: Inventory, number: int, own: list[Holding]) -> tuple[str, ...]:
    member = found.members[number]
    if member.first != number:
        return (f"all of it is {found.members[member.first].path}",)
    return tuple(
        f"{each.name} is {found.path(found.holdings[each.first])}"
        for each in own
        if found.holdings[each.first] is not each
    )


def _reached(found: Inventory, trace: Trace) -> set[str]:
    """Paths of modules that were called, or of which a parameter was read, and of those that they are in."""
    read = {path for node in trace.nodes for path in node.parameters}
    holders = {found.members[each.module].path for each in found.holdings if _first_path(found, each) in read}
    called = {member.path for member in found.members if _calls(found, trace, member.path, member.first)}
    direct = holders | called
    return {"", *direct, *(above for path in direct for above in paths_above(path))}


def _first_path(found: Inventory, holding: Holding) -> str:
    first = found.holdings[holding.first]
    return joined(found.members[first.module].path, first.name)


def _calls(found: Inventory, trace: Trace, path: str, first: int) -> int:
    infos = trace.modules
    return max(infos[each].called for each in (path, found.members[first].path) if each in infos)
