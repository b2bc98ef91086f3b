"""What one drawing shows and how, decided before a line of it is written.

>>> sheet = Sheet.of(graph, depth=2, theme="dark")
>>> sheet.graph, sheet.theme, sheet.referred
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count, pairwise
from typing import TYPE_CHECKING

import networkx as nx

from shapeflow.draw.finding import Finding, findings
from shapeflow.draw.label import Labels
from shapeflow.draw.palette import Theme, theme_of
from shapeflow.draw.reference import Tensor, endings, references
from shapeflow.graph.arguments import Texts, gathered
from shapeflow.graph.page import arrange
from shapeflow.graph.spine import spine
from shapeflow.trace.result import Edge, Shape

if TYPE_CHECKING:
    from shapeflow.check.problem import Report


@dataclass(frozen=True, slots=True)
class Sheet:
    """One drawing.

    `referred` are the tensors that are named where they are read, with their names, `ending` the outputs of the model
    that are named where they are made. `straight` are the pairs of nodes on a residual stream, `lanes` the stream that
    a node is on. `findings` are by node, and so are `arguments`, which tooltips tell. `flops` are by module path, in
    words. `parameters` draws weights as boxes.
    """

    graph: nx.MultiDiGraph
    labels: Labels
    theme: Theme
    referred: Mapping[Tensor, str]
    ending: frozenset[Edge]
    straight: frozenset[tuple[str, str]]
    lanes: Mapping[str, int]
    findings: Mapping[str, tuple[Finding, ...]]
    flops: Mapping[str, str]
    parameters: bool
    arguments: Mapping[str, Texts]

    @classmethod
    def of(
        cls,
        graph: nx.MultiDiGraph,
        *,
        depth: int | None = None,
        unfold: bool = False,
        sizes: Mapping[str, int] | None = None,
        theme: str = "light",
        parameters: bool = False,
        report: Report | None = None,
        flops: Mapping[str, str] | None = None,
    ) -> Sheet:
        shown = arrange(graph, depth=depth, unfold=unfold)
        chains = spine(shown)
        straight = frozenset(pair for chain in chains for pair in pairwise(chain))
        return cls(
            shown,
            Labels.of(graph, sizes),
            theme_of(theme),
            references(graph, shown, straight),
            endings(shown),
            straight,
            _lanes(shown, chains),
            findings(graph, shown, report) if report else {},
            flops or {},
            parameters,
            gathered(graph, shown),
        )

    def is_fresh(self, shape: Shape) -> bool:
        """Whether a size of the shape is one that only values decide."""
        return any(symbol.name in self.graph.graph["fresh"] for dim in shape.dims for symbol in dim.symbols)


def _lanes(graph: nx.MultiDiGraph, chains: list[tuple[str, ...]]) -> dict[str, int]:
    """A number for each line on which nodes stand one below the other: streams, and ways without a fork."""
    lanes = {name: lane for lane, chain in enumerate(chains) for name in chain}
    free = count(len(chains))
    for name in graph:
        above = list(graph.predecessors(name))
        if name not in lanes and len(above) == graph.in_degree(name) == 1 and graph.out_degree(above[0]) == 1:
            lanes[name] = lanes[above[0]] if above[0] in lanes else next(free)
            lanes.setdefault(above[0], lanes[name])
    return lanes
