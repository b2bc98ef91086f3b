"""The interactive page: one html file with a sheet for each distinct module, to open in a browser.

>>> html = to_html(graph)      # all of it is in the text: no network, no other file
"""

from shapeflow.draw.page.html import to_html
from shapeflow.draw.page.operations import operations_of

__all__ = ["operations_of", "to_html"]
