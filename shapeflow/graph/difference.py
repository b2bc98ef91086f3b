"""What is other in a second graph: modules, operators and parameters that were added, removed or changed.

>>> difference = diff(sf.trace(GPT(n_layers=2)), sf.trace(GPT(n_layers=3)))
>>> print(difference)
GPT -> GPT

+ blocks.2  DecoderBlock, 12,576 parameters, 54 operators

  total       33,764 -> 46,340 parameters (+12,576), 114 -> 168 operators (+54)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import networkx as nx

from shapeflow.dims.atoms import Symbol
from shapeflow.dims.expr import Expr
from shapeflow.graph.alignment import Pair, align
from shapeflow.graph.arguments import changed
from shapeflow.graph.block import Block
from shapeflow.graph.calls import Call, Item, Leaf, call_tree, closed
from shapeflow.graph.flow import build, inputs_of
from shapeflow.graph.loaded import load
from shapeflow.trace.result import Argument, Node, Shape

if TYPE_CHECKING:
    from shapeflow.trace.result import Trace

Reason: TypeAlias = Literal["renamed", "moved", "class", "shapes", "sizes", "arguments", "parameters", "inputs"]


@dataclass(frozen=True, slots=True)
class Change:
    """A node, or a module as a `Block`, that is in both graphs but not as it was.

    `reasons`: it has another name (`renamed`), runs elsewhere (`moved`), is of another class (`class`); its results
    have other `shapes`, or only another value of a named size (`sizes`); it is given other `arguments`, such as the
    axis of a softmax; it reads other `parameters` or `inputs`.
    """

    before: Node | Block
    after: Node | Block
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """The way from one graph to another; true when there is one.

    A module of which all is new (or gone) is one `Block`, whatever it holds. Parameters are told by dotted name,
    changed ones by the new one; those of modules that were only renamed are the same. `sizes` are fixed ones whose
    value changed (before, after), `domain` the sizes that each holds for, None where they are the same.
    """

    added: tuple[Node | Block, ...] = ()
    removed: tuple[Node | Block, ...] = ()
    changed: tuple[Change, ...] = ()
    parameters_added: tuple[str, ...] = ()
    parameters_removed: tuple[str, ...] = ()
    parameters_changed: tuple[str, ...] = ()
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    domain: tuple[str, str] | None = None
    before: nx.MultiDiGraph = field(default_factory=nx.MultiDiGraph, compare=False, repr=False)
    after: nx.MultiDiGraph = field(default_factory=nx.MultiDiGraph, compare=False, repr=False)
    root: Pair = field(default_factory=lambda: Pair(None, None), compare=False, repr=False)
    renamed: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)  # parameters, old name -> new

    def __bool__(self) -> bool:
        parameters = self.parameters_added or self.parameters_removed or self.parameters_changed
        return bool(self.added or self.removed or self.changed or parameters or self.sizes or self.domain)

    def __str__(self) -> str:
        from shapeflow.draw.changes import render_text

        return render_text(self)

    def _repr_html_(self) -> str:
        from shapeflow.draw.changes import render_html

        return render_html(self)

    def save(self, path: str | PathLike[str]) -> Path:
        """One drawing of both graphs, what changed marked: `.svg`, `.png`, `.pdf` or `.dot`, by suffix."""
        from shapeflow.draw.difference import save

        return save(self, path)


Graph: TypeAlias = "Trace | nx.MultiDiGraph | str | PathLike[str]"


def diff(before: Graph, after: Graph) -> Difference:
    """Compare two traces, their graphs, or files that `trace.save("x.json")` wrote.

    Modules and operators are paired by where they are, what they are called and what runs inside, so a block more in a
    stack, a module with a new name or one that runs elsewhere is told as that. Arguments of operators are compared if
    both graphs hold them, which files that were saved before there were any do not.
    """
    old, new = _graph(before), _graph(after)
    return Comparison(old, new, align(call_tree(old), call_tree(new))).difference()


def _graph(given: Graph) -> nx.MultiDiGraph:
    if isinstance(given, nx.MultiDiGraph):
        return given
    return load(given) if isinstance(given, (str, PathLike)) else build(given)


class Comparison:
    """Two graphs, paired; says of each pair what is other in it."""

    def __init__(self, before: nx.MultiDiGraph, after: nx.MultiDiGraph, root: Pair) -> None:
        self.before, self.after, self.root = before, after, root
        leaves = [(pair.before, pair.after) for pair in root.walk() if not isinstance(pair.item, Call)]
        pairs = [(a, b) for a, b in leaves if isinstance(a, Leaf) and isinstance(b, Leaf)]
        self.partner = {a.node.name: b.node.name for a, b in pairs}
        self.matched = frozenset(self.partner.values())
        self.renamed: dict[str, str] = dict(self._renamed())
        self.shapes = Shapes(before, after)
        self.tells_arguments = before.graph.get("arguments", True) and after.graph.get("arguments", True)

    def difference(self) -> Difference:
        changes = tuple(self._changes(self.root))
        old, new = self.before.graph["parameters"], self.after.graph["parameters"]
        stayed: dict[str, str] = {path: path for path in old} | {path: self.renamed[path] for path in self.renamed}
        kept = {new_path: path for path, new_path in stayed.items() if new_path in new}
        facts, new_facts = self.before.graph, self.after.graph
        return Difference(
            added=tuple(_node(self.after, pair.after) for pair in outermost(self.root) if pair.before is None),
            removed=tuple(_node(self.before, pair.before) for pair in outermost(self.root) if pair.after is None),
            changed=changes,
            parameters_added=tuple(path for path in new if path not in kept),
            parameters_removed=tuple(path for path, new_path in stayed.items() if new_path not in new),
            parameters_changed=tuple(
                path for path in new if path in kept and self._resized(old[kept[path]], new[path])
            ),
            sizes=_changed_values(facts["pinned"], new_facts["pinned"]),
            domain=None if facts["domain"] == new_facts["domain"] else (facts["domain"], new_facts["domain"]),
            before=self.before,
            after=self.after,
            root=self.root,
            renamed=self.renamed,
        )

    def _renamed(self) -> Iterator[tuple[str, str]]:
        """The parameters of modules that have another path now, the outermost module first."""
        paths: dict[str, str] = {}
        for pair in self.root.walk():
            if isinstance(pair.before, Call) and isinstance(pair.after, Call):
                paths.setdefault(pair.before.path, pair.after.path)
        path: str
        for path in self.before.graph["parameters"]:
            module = path.rpartition(".")[0]
            while module and module not in paths:
                module = module.rpartition(".")[0]
            new: str = paths.get(module, module)
            if new != module:
                yield path, f"{new}{path[len(module) :]}".removeprefix(".")

    def _resized(self, old: Shape, new: Shape) -> bool:
        return self.shapes.compare(old, new) is not None

    def _changes(self, root: Pair) -> Iterator[Change]:
        for pair in root.walk():
            if pair.before and pair.after and (reasons := tuple(self.reasons(pair))):
                yield Change(_node(self.before, pair.before), _node(self.after, pair.after), reasons)

    def reasons(self, pair: Pair) -> Iterator[Reason]:
        """What is other in the pair itself, not in its parts."""
        before, after = pair.before, pair.after
        if before is None or after is None or not (before.name or after.name):
            return
        if pair.moved:
            yield "moved"
        if before.name != after.name:
            yield "renamed"
        if isinstance(before, Call) and isinstance(after, Call):
            if before.kind != after.kind:
                yield "class"
        elif isinstance(before, Leaf) and isinstance(after, Leaf):
            yield from self._reasons_of_node(before.node, after.node)

    def _reasons_of_node(self, old: Node | Block, new: Node | Block) -> Iterator[Reason]:
        shapes = self.shapes.compare_all(old.outputs, new.outputs)
        if shapes:
            yield shapes
        if isinstance(old, Block) or isinstance(new, Block):
            if (old.parameters, getattr(old, "operators", 1)) != (new.parameters, getattr(new, "operators", 1)):
                yield "parameters"
        elif tuple(self.renamed.get(path, path) for path in old.parameters) != new.parameters:
            yield "parameters"
        if self.arguments(old, new):
            yield "arguments"
        if self._rewired(old.name, new.name):
            yield "inputs"

    def arguments(self, old: Node | Block, new: Node | Block) -> list[tuple[str, Argument | None, Argument | None]]:
        """The arguments that are other: name, before, after."""
        if isinstance(old, Block) or isinstance(new, Block) or not self.tells_arguments:
            return []
        read = inputs_of(self.after, new.name)
        return changed(old.arguments, new.arguments, rank=len(read[0].shape.dims) if read else 0)

    def _rewired(self, old: str, new: str) -> bool:
        """Whether it reads other tensors; a source that was added or removed is told once, at that source."""
        was, now = inputs_of(self.before, old), inputs_of(self.after, new)
        if len(was) != len(now):
            return True
        pairs = [(a, b) for a, b in zip(was, now, strict=True) if a.source in self.partner and b.source in self.matched]
        return any((self.partner[a.source], a.output) != (b.source, b.output) for a, b in pairs)


class Shapes:
    """Compares shapes across two graphs.

    Names that a trace made up itself (`n1`, for a size that values decide), and free names that only one of them has,
    may differ: the first two that meet are the same. So are a fixed size and its name, `32` and `d_model`. A named size
    with another value is the same size; its value is told once, for all.
    """

    def __init__(self, before: nx.MultiDiGraph, after: nx.MultiDiGraph) -> None:
        self._made = _own_names(before, after), _own_names(after, before)
        self._same: dict[Symbol, Symbol] = {}
        self._known: dict[tuple[Shape, Shape], Reason | None] = {}

    def compare_all(self, old: tuple[Shape, ...], new: tuple[Shape, ...]) -> Reason | None:
        if len(old) != len(new):
            return "shapes"
        found = [self.compare(a, b) for a, b in zip(old, new, strict=True)]
        return "shapes" if "shapes" in found else "sizes" if "sizes" in found else None

    def compare(self, old: Shape, new: Shape) -> Reason | None:
        """None when they are the same, `sizes` when only the value of a named size is another, else `shapes`."""
        if old == new:
            return None
        if (old, new) not in self._known:
            self._known[old, new] = self._compare(old, new)
        return self._known[old, new]

    def _compare(self, old: Shape, new: Shape) -> Reason | None:
        if old.dtype != new.dtype or len(old.dims) != len(new.dims):
            return "shapes"
        pairs = list(zip(old.dims, new.dims, strict=True))
        if all(self._is_same(a, b) for a, b in pairs):
            return None
        return "sizes" if all(a is b or str(a) == str(b) or self._is_same(a, b) for a, b in pairs) else "shapes"

    def _is_same(self, old: Expr, new: Expr) -> bool:
        if old.unpinned is new.unpinned:
            return True
        made, new_made = (sorted(_made_in(dim, names)) for dim, names in zip((old, new), self._made, strict=True))
        if not made or len(made) != len(new_made):
            return False
        meeting = {Symbol(a): self._same.get(Symbol(a), Symbol(b)) for a, b in zip(made, new_made, strict=True)}
        same = old.replace({a: Expr.from_atom(b) for a, b in meeting.items()}) is new
        if same:
            self._same.update(meeting)
        return same


def _own_names(graph: nx.MultiDiGraph, other: nx.MultiDiGraph) -> frozenset[str]:
    """The names that may be others in the other graph: made by the trace, or given for this one alone."""
    facts = graph.graph
    made = {*facts["fresh"], *(name for name, size in facts["dims"].items() if size is not None)}
    return frozenset(made | (set(facts["free"]) - set(other.graph["free"])))


def _made_in(dim: Expr, names: frozenset[str]) -> set[str]:
    return {symbol.name for symbol in dim.symbols if symbol.name in names and symbol.value is None}


def outermost(root: Pair) -> Iterator[Pair]:
    """The pairs of which one side is missing: modules as a whole, not what is inside them."""
    for part in root.parts:
        if part.before is None or part.after is None:
            yield part
        else:
            yield from outermost(part)


def _node(graph: nx.MultiDiGraph, item: Item | None) -> Node | Block:
    assert item is not None
    return closed(graph, item) if isinstance(item, Call) else item.node


def _changed_values(old: Mapping[str, int], new: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    return {name: (old[name], new[name]) for name in old if name in new and old[name] != new[name]}
