"""What of a model fits one page: equal neighbours once, and as many modules open as there is room for.

>>> page = one_page(graph)
>>> len(page) <= PAGE.nodes
True
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Set
from dataclasses import dataclass, replace
from math import ceil, prod

import networkx as nx

from shapeflow.graph.block import Block, Scopes, close, collapse, contract, modules_among
from shapeflow.graph.ends import MANY, bundle
from shapeflow.graph.flow import derive, edges, inputs_of, merge, nodes
from shapeflow.graph.naming import variable
from shapeflow.graph.repeat import fold
from shapeflow.trace.result import Node

# What makes no new number: the same ones under another shape, type or order of axes.
VIEWS = frozenset(
    """view reshape transpose permute swapaxes movedim unsqueeze squeeze flatten unflatten expand expand_as contiguous
    to type_as type float half bfloat16 double view_as reshape_as t mT T adjoint clone detach broadcast_to""".split()
)
SLICES = frozenset({"getitem", "narrow", "select", "unbind", "split", "chunk"})


@dataclass(frozen=True, slots=True)
class Budget:
    """The room on a page: nodes in all, and rows on the longest way from an input to an output."""

    nodes: int
    rows: float


# A4 upright with letters of 6 points: a row is some 45 points high, and is drawn at 0.55 of its size.
PAGE = Budget(nodes=40, rows=30)
SPARSE = 0.25  # of the nodes: with less on it a page tells too little
BORDER = 0.25  # of a row, for each border of a module that is crossed


def arrange(graph: nx.MultiDiGraph, *, depth: int | None = None, unfold: bool = False) -> nx.MultiDiGraph:
    """What a drawing shows: one page; or `depth` levels of modules; or, with `unfold`, every block on its own."""
    ends = bundle(graph)
    if depth is None:
        return ends if unfold else one_page(ends)
    return levels(ends if unfold else fold(ends), depth)


def levels(graph: nx.MultiDiGraph, depth: int) -> nx.MultiDiGraph:
    """`depth` levels of modules, as `collapse` shows them, but a module of the last level with one node stays open."""
    if depth < 1:
        return collapse(graph, depth)
    calls = {node.scopes[:i] for node in nodes(graph) for i in range(len(node.scopes) + 1)}
    return close(graph, {call for call in calls if modules_among(graph, call) < depth} | single(graph))


def one_page(ends: nx.MultiDiGraph, budget: Budget = PAGE) -> nx.MultiDiGraph:
    """The bundled graph folded, and closed as far as the budget asks; what is still too long has its middle left out.

    Modules open level by level while there is room; of the last level those that fit. Modules without modules inside
    (a norm that is written out) come last.
    """
    folded = join_views(gather(fold(drop_unread(ends))))
    opened: Set[Scopes] = {()} | single(folded)
    leaves = _leaves(folded)
    for closed in (leaves, frozenset()):
        while (wider := opened | (_frontier(folded, opened) - closed)) != opened:
            if not _fits(close(folded, wider), budget):
                page = shorten(close(folded, _open_kinds(folded, opened, leaves, budget)), budget)
                return page if len(page) >= SPARSE * budget.nodes else _cut(close(folded, wider), page, budget)
            opened = wider
    return shorten(close(folded, opened), budget)


def _cut(wider: nx.MultiDiGraph, page: nx.MultiDiGraph, budget: Budget) -> nx.MultiDiGraph:
    """One level more with its middle left out, where that shows half of it and the page would be all but empty."""
    cut = shorten(wider, budget)
    return cut if 2 * len(cut) >= len(wider) and _fits(cut, budget) else page


def _fits(graph: nx.MultiDiGraph, budget: Budget) -> bool:
    return len(graph) <= budget.nodes and rows(graph) <= budget.rows


def rows(graph: nx.MultiDiGraph) -> float:
    """The nodes on the longest way, with what the borders of modules between them take."""
    alone = single(graph)
    boxes = {node.name: _boxes(node.scopes, alone) for node in nodes(graph)}
    reached: dict[str, float] = {}
    for name in nx.topological_sort(graph):
        above = (reached[source] + BORDER * _borders(boxes[source], boxes[name]) for source in graph.predecessors(name))
        reached[name] = 1 + max(above, default=0)
    return max(reached.values(), default=0)


def _boxes(scopes: Scopes, alone: Set[Scopes]) -> Scopes:
    """The modules whose boxes are drawn around a node: those with more nodes inside."""
    return next((scopes[: i - 1] for i in range(1, len(scopes) + 1) if scopes[:i] in alone), scopes)


def _borders(a: Scopes, b: Scopes) -> int:
    """How many boxes of modules a line between two nodes leaves and enters."""
    shared = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return len(a) + len(b) - 2 * shared


def single(graph: nx.MultiDiGraph) -> set[Scopes]:
    """The module calls with one node inside: drawn open, they take no more room and tell what they do."""
    members = Counter(node.scopes[:i] for node in nodes(graph) for i in range(1, len(node.scopes) + 1))
    return {scopes for scopes, count in members.items() if count == 1}


def _frontier(graph: nx.MultiDiGraph, opened: Set[Scopes]) -> set[Scopes]:
    """The module calls one level below those that are open."""
    return {node.scopes[: i + 1] for node in nodes(graph) for i in range(len(node.scopes)) if node.scopes[:i] in opened}


def _leaves(graph: nx.MultiDiGraph) -> set[Scopes]:
    """The module calls with no module inside."""
    calls = {node.scopes[:i] for node in nodes(graph) for i in range(1, len(node.scopes) + 1)}
    return calls - {scopes[:-1] for scopes in calls}


def _open_kinds(graph: nx.MultiDiGraph, opened: Set[Scopes], leaves: Set[Scopes], budget: Budget) -> Set[Scopes]:
    """Open what fits of the next level: of each class of module all, else one for an example; frequent ones first."""
    for calls in sorted(_kinds(graph, opened, leaves), key=lambda calls: (-len(calls), calls[0].operators)):
        for choice in (calls, [max(calls, key=lambda call: _times(graph, call))]):
            wider = opened | {call.scopes for call in choice}
            if _fits(close(graph, wider), budget):
                opened = wider
                break
    return opened


def _kinds(graph: nx.MultiDiGraph, opened: Set[Scopes], leaves: Set[Scopes]) -> Iterable[list[Block]]:
    """The closed modules by their class."""
    kinds: dict[str, list[Block]] = defaultdict(list)
    for node in nodes(close(graph, opened)):
        if isinstance(node, Block) and node.kind == "module" and node.scopes and node.scopes not in leaves:
            kinds[node.scopes[-1].kind].append(node)
    return kinds.values()


def _times(graph: nx.MultiDiGraph, block: Block) -> int:
    """How many calls a node stands for, with those of all modules around it."""
    repeats = graph.graph["repeats"]
    return prod(len(repeats.get(block.scopes[:i], "1")) for i in range(1, len(block.scopes) + 1))


def drop_unread(graph: nx.MultiDiGraph) -> nx.MultiDiGraph:
    """Without what makes no new number and nobody reads: a slice for its dtype alone, indices of an axis that is not
    masked. `graph.graph["unread"]` counts them."""
    bare, unread = from_sizes(graph), set[str]()
    for node in reversed(list(nodes(graph))):
        idle = node.name in bare or (isinstance(node, Node) and node.operator in VIEWS | SLICES)
        if idle and unread.issuperset(graph.successors(node.name)):
            unread.add(node.name)
    kept = [node for node in nodes(graph) if node.name not in unread]
    tensors = (edge for edge in edges(graph) if edge.target not in unread)
    count = graph.graph.get("unread", 0) + sum(graph.nodes[name]["node"].kind == "operator" for name in unread)
    return merge(derive(graph, kept, tensors, unread=count), graph, {})


def from_sizes(graph: nx.MultiDiGraph) -> set[str]:
    """The operators and constants that no input and no parameter feeds."""
    bare: set[str] = set()
    for node in nodes(graph):
        made = node.kind == "constant" or (node.kind == "operator" and not node.parameters)
        if made and all(edge.source in bare for edge in inputs_of(graph, node.name)):
            bare.add(node.name)
    return bare


def gather(graph: nx.MultiDiGraph) -> nx.MultiDiGraph:
    """Operators that only sizes feed (the triangle of a mask, positions), each group of one module as one node.

    They are a model's bookkeeping, and would stand beside it as a column of their own. Those that are all of a module
    stay: it has a name and can be closed.
    """
    bare, members = from_sizes(graph), dict[str, Block]()
    inside = Counter(node.scopes[:i] for node in nodes(graph) for i in range(len(node.scopes) + 1))
    for group in nx.connected_components(_same_place(graph, bare)):
        ordered = [graph.nodes[name]["node"] for name in graph if name in group]
        if len(group) > 1 and len(group) < inside[ordered[0].scopes] and not _comes_back(graph, group):
            last = _exit(graph, ordered, group)
            block = replace(
                _joined(ordered, "made", last),
                words=(variable(graph, last) or graph.nodes[last]["node"].operator or last,),
            )
            members.update((node.name, block) for node in ordered)
    return _gather_alike(contract(graph, members))


def _gather_alike(graph: nx.MultiDiGraph) -> nx.MultiDiGraph:
    """Tensors made of nothing, alike and for the same readers, as one node: one for each copy of a folded block."""
    groups: dict[Hashable, list[Node]] = defaultdict(list)
    for node in nodes(graph):
        if isinstance(node, Node) and node.kind in ("operator", "constant") and not graph.in_degree(node.name):
            readers = tuple(dict.fromkeys(graph.successors(node.name)))
            groups[node.kind, node.operator, node.scopes, node.outputs, node.parameters, readers].append(node)
    blocks = {
        group[0].name: replace(_joined(group, "made", group[0].name), words=(group[0].operator or "constant",))
        for group in groups.values()
        if len(group) >= MANY
    }
    return contract(graph, {node.name: blocks[g[0].name] for g in groups.values() if len(g) >= MANY for node in g})


def _same_place(graph: nx.MultiDiGraph, names: Set[str]) -> nx.Graph:
    """These nodes, with the edges that stay within one module."""
    found = nx.Graph()
    found.add_nodes_from(name for name in graph if name in names)
    pairs = ((source, target) for source, target in graph.edges() if source in names and target in names)
    found.add_edges_from((a, b) for a, b in pairs if graph.nodes[a]["node"].scopes == graph.nodes[b]["node"].scopes)
    return found


def _comes_back(graph: nx.MultiDiGraph, group: Set[str]) -> bool:
    """Whether a way leads out of the group and into it again."""
    outside = {target for name in group for target in graph.successors(name) if target not in group}
    return any(not group.isdisjoint(nx.descendants(graph, name)) for name in outside)


def _exit(graph: nx.MultiDiGraph, ordered: list[Node], group: Set[str]) -> str:
    """The operator that the rest of the model reads, by which the group is called."""
    read = [node for node in ordered if any(target not in group for target in graph.successors(node.name))]
    return (read or ordered)[-1].name


def join_views(graph: nx.MultiDiGraph) -> nx.MultiDiGraph:
    """Operators that only lay the same numbers out anew (`view` and then `transpose`) as one node, each run of them."""
    chain: dict[str, str] = {}
    for node in nodes(graph):
        before = inputs_of(graph, node.name)
        if _is_view(node) and len(before) == 1 and _leads_on(graph, graph.nodes[before[0].source]["node"], node):
            chain[node.name] = chain.get(before[0].source, before[0].source)
    runs: dict[str, list[Node]] = defaultdict(list)
    for name, first in chain.items():
        runs[first] = [*(runs[first] or [graph.nodes[first]["node"]]), graph.nodes[name]["node"]]
    blocks = {first: replace(_joined(run, "views", first), words=_words(run)) for first, run in runs.items()}
    return contract(graph, {node.name: blocks[first] for first, run in runs.items() for node in run})


def _words(run: list[Node]) -> tuple[str, ...]:
    return tuple(node.operator for node in run)


def _is_view(node: Node | Block) -> bool:
    return isinstance(node, Node) and node.operator in VIEWS and len(node.outputs) == 1


def _leads_on(graph: nx.MultiDiGraph, before: Node | Block, node: Node | Block) -> bool:
    return _is_view(before) and before.scopes == node.scopes and graph.out_degree(before.name) == 1


def shorten(graph: nx.MultiDiGraph, budget: Budget) -> nx.MultiDiGraph:
    """Leave out the middle of what no closing of modules makes short enough: a node tells how much that is."""
    inner = [node for node in nodes(graph) if node.kind not in ("input", "output", "constant")]
    surplus = max(len(graph) - budget.nodes, ceil(rows(graph) - budget.rows))
    if surplus <= 0 or len(inner) <= surplus:
        return graph
    first = (len(inner) - surplus) // 2
    return contract(graph, dict(_middle(inner[first : first + surplus + 1])))


def _middle(left_out: list[Node | Block]) -> Iterator[tuple[str, Block]]:
    block = _joined(left_out, "more", left_out[0].name)
    return ((node.name, block) for node in left_out)


def _joined(members: list, kind: str, name: str) -> Block:
    operators = sum(node.operators if isinstance(node, Block) else node.kind == "operator" for node in members)
    return replace(Block(name, _common(members), operators, 0), kind=kind)


def _common(members: list) -> Scopes:
    """The module calls around all of these nodes."""
    shared = members[0].scopes
    for node in members:
        shared = next(
            (shared[:i] for i, pair in enumerate(zip(shared, node.scopes, strict=False)) if pair[0] != pair[1]), shared
        )
        shared = shared[: len(node.scopes)]
    return shared
