"""The interactive page: one html file with a sheet for each distinct module, to open in a browser.

>>> html = to_html(graph)      # all of it is in the text: no network, no other file
"""

from shapeflow.draw.page.flops import flops_of
from shapeflow.draw.page.html import to_html

__all__ = ["flops_of", "to_html"]
