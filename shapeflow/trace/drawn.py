"""What a trace and a saved trace show of themselves: drawings, files, text, and what a notebook displays.

The layers above are imported when somebody asks for them: a trace may never be drawn.
"""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

from shapeflow.trace.collecting import without_collection

if TYPE_CHECKING:
    from shapeflow.draw.drawing import Drawing
    from shapeflow.graph.operations import Operations


class Drawn:
    """What has a graph, `to_networkx()`, and the operations that its nodes take."""

    def to_networkx(self) -> Any:
        """The graph that everything draws and reports from: a `networkx.MultiDiGraph`."""
        raise NotImplementedError

    def _operations(self) -> Operations:
        """Raises ShapeflowError where nobody can tell them."""
        raise NotImplementedError

    @without_collection()
    def to_dot(self, *, depth: int | None = None, **options: Any) -> str:
        """DOT source of the drawing: one page, or `depth` levels of modules; the options are those of `save`."""
        from shapeflow.draw.dot import to_dot

        graph = self.to_networkx()
        return to_dot(graph, depth=depth, **self._priced(graph, options))

    def draw(self, *, depth: int | None = None, **options: Any) -> Drawing:
        """The drawing for a notebook, where a trace shows itself as one page; the options are those of `save`."""
        from shapeflow.draw.drawing import Drawing

        return Drawing(self.to_dot(depth=depth, **options))

    @without_collection()
    def save(self, path: str | PathLike[str], *, depth: int | None = None, **options: Any) -> None:
        """Write a file; the suffix says how: `.svg .png .pdf .dot .mmd`, a page `.html`, data `.json` and `.graphml`.

        Equal neighbours are drawn once, and modules open as far as a page has room. `depth` shows so many levels of
        modules instead; `unfold=True` draws every block on its own. `sizes` (name -> number) stand below the names.
        `theme` is `"light"` or `"dark"`. `parameters=True` draws weights and buffers. `report=sf.check(...)` marks what
        was found in red. `flops=True` tells what modules cost, which a page of html does anyway; JSON keeps it for what
        `sf.load` draws of it, and a saved trace has to hold it. Raises DrawError.
        """
        from shapeflow.draw.render import save

        graph = self.to_networkx()
        save(graph, path, depth=depth, **self._priced(graph, options, path=path))

    def _priced(self, graph: Any, options: dict[str, Any], *, path: str | PathLike[str] = "") -> dict[str, Any]:
        """The options of a drawing with what modules cost, where that is asked for."""
        from shapeflow.draw.price import priced
        from shapeflow.graph import nodes

        return priced(options, nodes(graph), self._operations, path=path)

    def _repr_svg_(self) -> str:
        return self.draw()._repr_svg_()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"image/svg+xml": self._repr_svg_(), "text/plain": repr(self)}

    def __str__(self) -> str:
        from shapeflow.draw.text import render_text

        return render_text(self.to_networkx())
