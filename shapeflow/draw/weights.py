"""Parameters and buffers as boxes beside the operators that read them, when a drawing is asked for them.

>>> list(Weights.of(sheet).boxes("linear"))
['"parameter head.weight" [label=...]']
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from shapeflow.draw.markup import Line, html, quoted
from shapeflow.draw.sheet import Sheet
from shapeflow.graph import nodes
from shapeflow.trace.result import Node

SMALL = 9


@dataclass(frozen=True, slots=True)
class Weights:
    """The parameters that drawn operators read: `readers` by operator; `tied` are those that several read."""

    sheet: Sheet
    readers: Mapping[str, tuple[str, ...]]
    tied: frozenset[str]

    @classmethod
    def of(cls, sheet: Sheet) -> Weights:
        if not sheet.parameters:
            return cls(sheet, {}, frozenset())
        readers = {node.name: node.parameters for node in nodes(sheet.graph) if isinstance(node, Node)}
        counts = Counter(name for read in readers.values() for name in read)
        return cls(sheet, readers, frozenset(name for name, count in counts.items() if count > 1))

    def boxes(self, reader: str) -> Iterator[str]:
        """A box for each parameter of an operator; one that several operators read is marked as tied at each."""
        for name in self.readers.get(reader, ()):
            yield f"{quoted(_box(name, reader))} [label={self._label(name, reader)}, {self._style()}]"

    def arrows(self) -> Iterator[str]:
        for reader, names in self.readers.items():
            for name in names:
                line = f'color="{self.sheet.theme.fills["weights"].line}", arrowhead=none, style=dotted'
                yield f"{quoted(_box(name, reader))} -> {quoted(reader)} [{line}]"

    def _label(self, name: str, reader: str) -> str:
        node = self.sheet.graph.nodes[reader]["node"]
        shape = self.sheet.graph.graph["parameters"].get(name)
        words = self.sheet.labels.shape(shape) if shape else ""
        tied = "tied" if name in self.tied else ""
        lines = (name.removeprefix(f"{node.module}."), words, tied)
        return html(*(Line(line, size=SMALL, color=self.sheet.theme.faint) for line in lines))

    def _style(self) -> str:
        paint = self.sheet.theme.fills["weights"]
        return (
            f'shape=box, style=filled, fillcolor="{paint.fill}", color="{paint.line}", height=0.2, margin="0.06,0.02"'
        )


def _box(name: str, reader: str) -> str:
    return f"parameter {name} of {reader}"
