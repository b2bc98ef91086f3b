"""A line of source with marks below the expression that raised.

>>> excerpt(location, statement)
['   17 |         return self.head(x.flatten(1))', '      |                ^^^^^^^^^^^^^^^^^^^^^^^']
"""

from __future__ import annotations

import linecache

from shapeflow.runtime.explain.statement import Statement
from shapeflow.trace.result import Location


def excerpt(where: Location, statement: Statement | None) -> list[str]:
    """The line, and marks where the columns are known; nothing where there is no source."""
    if not where.code:
        return []
    line = statement.line(where.line) if statement is not None else linecache.getline(where.file, where.line)
    line = line.rstrip() or where.code
    shown = [f"{where.line:5} | {line}"]
    span = statement.columns(where.line) if statement is not None else None
    if span is not None:
        start, end = span
        shown.append(f"      | {' ' * start}{'^' * (end - start)}")
    return shown
