"""The arguments of operators as words, as JSON, and compared: those that are no tensors.

>>> words(node.arguments)
['stride = (2, 2)', 'padding = (0, 0)', 'dilation = (1, 1)', 'groups = 1']
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import networkx as nx

from shapeflow.dims.expr import Expr
from shapeflow.dims.tree import to_tree
from shapeflow.graph.document import Item
from shapeflow.graph.flow import members_of
from shapeflow.trace.result import Argument, Arguments, Node

MANY = 5  # values of one argument that are written out

Texts: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]
"""Each argument with its values; more than one where a node stands for several that have others."""

TOLD_BY_SHAPES = frozenset("size shape sizes repeats output_size split_size split_sizes length end".split())
SWAPPED = ("dim0", "dim1")
AXES = frozenset("dim dims dim0 dim1 start_dim end_dim axis source destination".split())


def text(value: Argument) -> str:
    """As it is written in Python, but for texts, which stand without quotes: `(B, T, 4)`, `-inf`, `tanh`."""
    if isinstance(value, tuple):
        return f"({', '.join(map(text, value))}{',' if len(value) == 1 else ''})"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def words(arguments: Arguments | Texts) -> list[str]:
    """`dim = -1`, and `p = 0.1, 0.2` where there are several values."""
    return [f"{name} = {_several(value)}" for name, value in arguments]


def _several(value: Any) -> str:
    if not (isinstance(value, tuple) and value and all(isinstance(each, _Text) for each in value)):
        return text(value)
    more = f", and {len(value) - MANY} more" if len(value) > MANY else ""
    return ", ".join(value[:MANY]) + more


class _Text(str):
    """A value that was written out already."""

    __slots__ = ()


def gathered(graph: nx.MultiDiGraph, shown: nx.MultiDiGraph) -> dict[str, Texts]:
    """The arguments of each operator of `shown` by its name, with the values of all that it stands for in `graph`."""
    found: dict[str, Texts] = {}
    for name in shown:
        if isinstance(shown.nodes[name]["node"], Node):
            members = (graph.nodes[member]["node"] for member in members_of(shown, name) if member in graph)
            texts = merged(written(member.arguments) for member in members if isinstance(member, Node))
            if texts:
                found[name] = texts
    return found


def written(arguments: Arguments) -> Texts:
    return tuple((name, (_Text(text(value)),)) for name, value in arguments)


def merged(all: Iterable[Texts]) -> Texts:
    """All values by argument, each once."""
    values: dict[str, dict[str, None]] = defaultdict(dict)
    for texts in all:
        for name, given in texts:
            values[name].update(dict.fromkeys(given))
    return tuple((name, tuple(given)) for name, given in values.items())


def changed(old: Arguments, new: Arguments, *, rank: int) -> list[tuple[str, Argument | None, Argument | None]]:
    """The arguments that are other in the second: name, value before and after, None where it has none.

    `rank` is how many axes the first tensor has that is read, for axes that are counted from the end. What shapes tell
    is left to them.
    """
    before, after = dict(old), dict(new)
    names = [name for name in dict.fromkeys([*before, *after]) if name not in TOLD_BY_SHAPES]
    was, now = ({name: _canonical(name, given.get(name), rank) for name in names} for given in (before, after))
    if _swapped(was) == _swapped(now):
        names = [name for name in names if name not in SWAPPED]
    return [(name, before.get(name), after.get(name)) for name in names if was[name] != now[name]]


def _swapped(arguments: Mapping[str, Any]) -> set[Any]:
    """The two axes of a transpose, which are the same the other way round."""
    return {arguments.get(name) for name in SWAPPED}


def _canonical(name: str, value: Any, rank: int) -> Any:
    """One way of writing it: -1 is the last axis, `(2, 2)` is 2 each way; of a norm's shape how many axes it has."""
    if isinstance(value, tuple):
        items = tuple(_canonical(name, item, rank) for item in value)
        return len(items) if name == "normalized_shape" else items[0] if len(set(items)) == 1 else items
    if name in AXES and isinstance(value, int) and value < 0:
        return value + rank
    return str(value) if isinstance(value, bool | Expr) or value != value else value  # True is not 1, nan is nan


def to_plain(arguments: Arguments) -> dict[str, Any]:
    return {name: _to_plain(value) for name, value in arguments}


def _to_plain(value: Argument) -> Any:
    if isinstance(value, tuple):
        return [_to_plain(item) for item in value]
    if isinstance(value, Expr):
        return {"text": str(value), "tree": to_tree(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return value


def from_plain(fields: Mapping[str, Item]) -> Arguments:
    return tuple((name, _from_plain(item)) for name, item in fields.items())


def _from_plain(item: Item) -> Argument:
    value = item.value
    if isinstance(value, list):
        return tuple(map(_from_plain, item.items()))
    if isinstance(value, dict):
        return _number(item["float"]) if "float" in value else item["tree"].tree()
    if value is None:
        item.refuse("is null; it has to be a number, a text, true or false, a size, or a list of those")
    return value


def _number(item: Item) -> float:
    known = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
    if item.text() not in known:
        item.refuse(f"is {item.text()!r}; it has to be inf, -inf or nan")
    return known[item.text()]
