"""A drawing that a notebook shows by itself.

>>> trace.draw(depth=2, theme="dark")          # the last line of a cell

Graphviz lays it out when it is looked at, not before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shapeflow.draw.layout import render


@dataclass(frozen=True, slots=True)
class Drawing:
    """DOT source, as `str` gives it, that shows itself as SVG."""

    source: str

    def __str__(self) -> str:
        return self.source

    def _repr_svg_(self) -> str:
        """The picture without the XML head, as it stands in an HTML page."""
        svg = render(self.source, "svg").decode()
        return svg[svg.index("<svg") :]

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"image/svg+xml": self._repr_svg_(), "text/plain": self.source}
