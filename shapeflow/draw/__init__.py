"""A graph for people: the printed shape trace, and pictures.

>>> print(render_text(graph))
>>> save(graph, "gpt.svg", depth=2)
"""

from shapeflow.draw.dot import to_dot
from shapeflow.draw.render import save
from shapeflow.draw.text import render_rich, render_text

__all__ = ["render_rich", "render_text", "save", "to_dot"]
