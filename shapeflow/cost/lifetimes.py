"""How much memory one forward holds at its fullest: every storage lives from its operator to the last that reads it.

Views share the storage that they look into; inputs live all the time, outputs to the end, and what a module is handed
until it returns, as its caller still holds it. Variables of the model's code may hold more. Parameters, buffers and
what an operator uses inside it are not counted, and neither is what autograd keeps (`Cost.activation_bytes`).
"""

from __future__ import annotations

from collections.abc import Iterable

from shapeflow.cost.calls import Call, bytes_of, root_of
from shapeflow.dims.env import DimEnv
from shapeflow.dims.expr import Expr, maximum
from shapeflow.torch_private import tree_leaves
from shapeflow.trace.attempt import Attempt
from shapeflow.trace.result import Scope
from shapeflow.trace.traced import Record, Traced

RESIDENT = frozenset({"parameter", "buffer", "constant"})


def fullest(attempt: Attempt, made: tuple[Call, ...]) -> list[Expr]:
    """Bytes alive at each moment that may be the fullest: one of them is, whatever the sizes."""
    return _highest(attempt.env, _levels(attempt, made))


def _levels(attempt: Attempt, made: tuple[Call, ...]) -> Iterable[Expr]:
    """Bytes alive while each operator runs, and at the start and the end."""
    ending: dict[int, list[Traced]] = {}
    for root, number in _last_uses(attempt, made).items():
        ending.setdefault(number, []).append(root)
    alive = {root: bytes_of(root) for root in _inputs(attempt)}
    total = sum(alive.values(), Expr.const(0))
    yield total
    for number, call in enumerate(made):
        for root in map(root_of, call.makes):
            if root not in alive and root.record.kind not in RESIDENT:
                alive[root] = bytes_of(root)
                total = total + alive[root]
        yield total
        for root in ending.get(number, ()):
            total = total - alive.pop(root, Expr.const(0))


def _last_uses(attempt: Attempt, made: tuple[Call, ...]) -> dict[Traced, int]:
    """The number of the operator that reads a storage last; beyond all of them for inputs and outputs."""
    last: dict[Traced, int] = {}
    ends = _ends(made)
    for number, call in enumerate(made):
        last.update((root_of(tensor), number) for tensor in call.makes)
        for root in map(root_of, call.reads):
            last[root] = max(last.get(root, 0), number, _held_by_caller(root, call, ends))
    makers = {(id(call.record), index): tensor for call in made for index, tensor in enumerate(call.makes)}
    results = [makers.get((id(record), index)) for _, record, index, _ in attempt.outputs]
    kept = [*_inputs(attempt), *(root_of(tensor) for tensor in results if tensor is not None)]
    return last | dict.fromkeys(kept, len(made))


def _ends(made: tuple[Call, ...]) -> dict[tuple[Scope, ...], int]:
    """The last operator inside each call of a module."""
    return {
        call.record.scopes[: depth + 1]: number
        for number, call in enumerate(made)
        for depth in range(len(call.record.scopes))
    }


def _held_by_caller(root: Traced, call: Call, ends: dict[tuple[Scope, ...], int]) -> int:
    """A module's arguments live until it returns: until the end of the outermost one that this was handed to."""
    maker, reader = root.record.scopes, call.record.scopes
    shared = next(
        (n for n, (a, b) in enumerate(zip(maker, reader, strict=False)) if a != b), min(len(maker), len(reader))
    )
    return ends[reader[: shared + 1]] if shared < len(reader) else 0


def _inputs(attempt: Attempt) -> list[Traced]:
    records: dict[int, Record] = {id(record): record for _, record in attempt.inputs}
    nodes = [node for node in attempt.recorder.writer.graph.nodes if id(node.meta.get("shapeflow")) in records]
    return [root_of(tensor) for node in nodes for tensor in tree_leaves(node.meta["val"])]


def _highest(env: DimEnv, levels: Iterable[Expr]) -> list[Expr]:
    """Those that no other is at least as great as, at all sizes."""
    left: list[Expr] = []
    for level in sorted(dict.fromkeys(levels), key=env.hint, reverse=True):  # one that is less here is never greater
        if not any(_at_least(env, other, level) for other in left):
            left.append(level)
    return left


def _at_least(env: DimEnv, greater: Expr, lesser: Expr) -> bool:
    difference = (greater - lesser).unpinned
    if all(times >= 0 for _, times in difference.terms):
        return True
    low, _ = env.bounds(difference)
    return low is not None and low >= 0


def highest_of(levels: list[Expr]) -> Expr:
    """The greatest as one formula."""
    found = levels[0]
    for level in levels[1:]:
        found = maximum(found, level)
    return found
