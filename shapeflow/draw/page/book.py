"""All that the page's script reads, as plain data for JSON: sheets with their layout, sizes as formulas, facts.

Sizes and shapes recur on hundreds of edges: they stand once, in `formulas` and `shapes`, and are told by number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import networkx as nx

from shapeflow.dims.expr import Expr
from shapeflow.draw.finding import numbers
from shapeflow.draw.label import Labels, place
from shapeflow.draw.page.formula import tree
from shapeflow.draw.page.layout import Box, Layout, Line, Words, lay_out
from shapeflow.draw.page.sheet import Item, Name, Sheet, Wire, sheets_of
from shapeflow.draw.palette import FAMILIES, family_of
from shapeflow.graph import collapse, fold
from shapeflow.graph.arguments import gathered
from shapeflow.graph.arguments import words as argument_words
from shapeflow.graph.bounds import bounds_of
from shapeflow.graph.operations import Operations
from shapeflow.trace.result import Condition, Location, Shape

if TYPE_CHECKING:
    from shapeflow.check.problem import Problem, Report

LONGEST = 34  # letters of a line on a box; the panel beside the sheet shows all of it
MOST_SHAPES = 3  # on one wire; the panel lists the rest


@dataclass(frozen=True, slots=True)
class _Tables:
    """What is told by number, in the order of its first use."""

    labels: Labels
    formulas: dict[Expr, int] = field(default_factory=dict)
    shapes: dict[Shape, int] = field(default_factory=dict)

    def formula(self, size: Expr | int) -> int:
        size = Expr.const(size) if isinstance(size, int) else size
        return self.formulas.setdefault(size, len(self.formulas))

    def shape(self, shape: Shape) -> int:
        return self.shapes.setdefault(shape, len(self.shapes))


def book(
    graph: nx.MultiDiGraph,
    *,
    depth: int | None,
    sizes: Mapping[str, int] | None,
    operations: Operations | None = None,
    report: Report | None = None,
) -> dict[str, Any]:
    """The data of a page; modules deeper than `depth` do not open, `sizes` are filled in for the reader.

    What a closed module does is not among its `operations`. What the `report` tells stands where it was found.
    """
    folded = fold(graph if depth is None else collapse(graph, depth))
    tables = _Tables(Labels.of(graph))
    found = numbers(graph, folded, report) if report else {}
    sheets = sheets_of(folded, operations.flops if operations else {}, found, gathered(graph, folded))
    words = [_words(sheet, tables) for sheet in sheets]
    placed = lay_out(sheets, words)
    drawn = [_sheet(*each, tables) for each in zip(sheets, words, placed, strict=True)]
    root = graph.graph["modules"].get("")
    facts = {
        "name": graph.graph["name"],
        "parameters": tables.formula(root.parameters if root else 0),
        "counted": operations is not None,
        "unknown": operations.unknown if operations else (),
        "checked": report and _checked(report),
        "findings": [_finding(problem) for problem in report.problems] if report else [],
        "outputs": graph.graph["output_names"],
        "sheets": drawn,
        "families": {family: words for family, (words, _) in FAMILIES.items()},
        **_names(graph, tables, sizes or {}),
        "domain": graph.graph["domain"],
        "bounds": bounds_of(graph.graph["domain"]),
        "conditions": _conditions(graph.graph["conditions"]),
        "assumptions": _conditions(graph.graph["assumptions"]),
    }
    shapes = [_shape(shape, tables) for shape in list(tables.shapes)]
    return facts | {"shapes": shapes, "formulas": [[str(size), tree(size)] for size in tables.formulas]}


def _words(sheet: Sheet, tables: _Tables) -> Words:
    return Words(
        [[_short(line) for line in _lines(item)] for item in sheet.items],
        [[_letters(shape, n, tables) for shape, n in _shown(wire)] for wire in sheet.wires],
    )


def _lines(item: Item) -> list[str]:
    """The title, and what is told in small below it."""
    title = item.title + (f" ({item.call + 1})" if item.call else "")
    title += f"  x{len(item.names)}" if len(item.names) > 1 else ""
    if item.type in ("module", "leaf"):
        about = f"{item.kind} · {_compact(item.parameters)}" if item.parameters else item.kind
        return [title, about]
    return [title, ", ".join(name.text for name, _ in item.reads[:3])] if item.reads else [title]


def _compact(number: int | Expr) -> str:
    """`12.6K`, `124M`: three digits, as a box has no room for more."""
    if isinstance(number, Expr):
        return str(number)
    for size, letter in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "K")):
        if number >= size:
            return f"{number / size:.3g}{letter}" if number < 1000 * size else f"{number // size}{letter}"
    return str(number)


def _short(text: str) -> str:
    """The middle is left out: the end of a name often tells it from its neighbours."""
    half = LONGEST // 2
    return text if len(text) <= LONGEST else f"{text[:half]}…{text[-half + 1 :]}"


def _letters(shape: Shape, n: int, tables: _Tables) -> int:
    """Room for the names on a wire, and for the sizes in their place: four digits for each that is not known."""
    names = len(tables.labels.shape(shape))
    sizes = sum(max(4, len(str(dim.value or ""))) if dim.symbols else len(str(dim)) for dim in shape.dims)
    return max(names, sizes + len(shape.dims) - 1) + (len(f"{n} x ") if n > 1 else 0)


def _shown(wire: Wire) -> list[tuple[Shape, int]]:
    return wire.label[:MOST_SHAPES]


def _sheet(sheet: Sheet, words: Words, layout: Layout, tables: _Tables) -> dict[str, Any]:
    items = zip(sheet.items, words.items, layout.boxes, strict=True)
    return {
        "kind": sheet.kind,
        "operators": sheet.operators,
        "flops": tables.formula(sheet.flops),
        "size": _rounded((layout.width, layout.height)),
        "items": [_item(item, lines, box, tables) for item, lines, box in items],
        "wires": [_wire(wire, line, tables) for wire, line in zip(sheet.wires, layout.lines, strict=True)],
    }


def _item(item: Item, lines: Iterable[str], box: Box, tables: _Tables) -> dict[str, Any]:
    facts = {
        "type": item.type,
        "title": item.title,
        "lines": list(lines),
        "box": _box(box),
        "kind": item.kind,
        "operator": item.operator,
        "family": family_of(item.operator),
        "names": [_name(name) for name in item.names],
        "call": item.call,
        "operators": item.operators,
        "outputs": [tables.shape(shape) for shape in item.outputs],
        "reads": [[_name(name), None if shape is None else tables.shape(shape)] for name, shape in item.reads],
        "port": item.port,
        "code": _code(item.location),
        "findings": item.findings,
        "arguments": argument_words(item.arguments),
    }
    counts = {"parameters": item.parameters, "flops": item.flops}
    told = {key: tables.formula(value) for key, value in counts.items() if value and value != Expr.const(0)}
    opens = {} if item.sheet is None else {"sheet": item.sheet}
    return {key: value for key, value in facts.items() if value} | told | opens


def _name(name: Name) -> str | list[str]:
    """A text counts from the sheet's module; in a list it counts from the model."""
    return name.text if name.below else [name.text]


def _code(location: Location | None) -> list[str] | None:
    return [place(location), location.code] if location else None


def _wire(wire: Wire, line: Line, tables: _Tables) -> dict[str, Any]:
    facts = {
        "from": wire.source,
        "to": wire.target,
        "tensors": [[out, into, tables.shape(shape)] for out, into, shape in wire.tensors],
        "label": [[tables.shape(shape), n] for shape, n in _shown(wire)],
        "more": sum(n for _, n in wire.label[MOST_SHAPES:]),
        "points": _rounded(line.points),
        "at": _rounded(line.label or ()),
        "reference": _box(line.reference) if line.reference else None,
    }
    return {key: value for key, value in facts.items() if value or key in ("from", "to")}


def _box(box: Box) -> list[float]:
    return _rounded((box.x, box.y, box.width, box.height))


def _rounded(numbers: Iterable[float]) -> list[float]:
    """A tenth of a pixel is enough; whole numbers without their `.0`."""
    return [int(n) if n == int(n) else n for n in (round(each, 1) for each in numbers)]


def _shape(shape: Shape, tables: _Tables) -> dict[str, Any]:
    text = tables.labels.shape(shape)
    return {
        "text": text,
        "dtype": shape.dtype,
        "dims": [[_dim(dim, tables), tables.formula(dim)] for dim in shape.dims],
    }


def _dim(dim: Expr, tables: _Tables) -> str:
    return tables.labels.names.get(dim) or str(dim)


def _names(graph: nx.MultiDiGraph, tables: _Tables, sizes: Mapping[str, int]) -> dict[str, Any]:
    """What the names of the shapes mean: those to type a size for, those that have one, those that stand for more."""
    facts = graph.graph
    defined = {name: expr for name, expr in facts["dims"].items() if expr is not None}
    shortened = {name: size for size, name in tables.labels.names.items()}
    return {
        "free": list(facts["free"]),
        "values": facts["fresh"],
        "fixed": facts["pinned"],
        "defined": {name: tables.formula(expr) for name, expr in (defined | shortened).items()},
        "sizes": dict(sizes),
    }


def _conditions(conditions: Iterable[Condition]) -> list[dict[str, Any]]:
    """One entry for what every block asks anew."""
    counted = Counter(conditions).items()
    return [{"text": str(each), "code": _code(each.location), "times": times} for each, times in counted]


def _checked(report: Report) -> str:
    """What the check as a whole says, for a page on which nothing is red."""
    holds = f"checked: holds for all {report.domain}" if report.domain and str(report.domain) else "checked"
    return ", ".join(filter(None, (holds, "" if report.finished else "stopped by its limit of time")))


def _finding(problem: Problem) -> dict[str, Any]:
    """All that the checker tells of one problem, as texts."""
    witness = ", ".join(f"{name} = {size}" for name, size in (problem.witness or {}).items())
    facts = {
        "level": problem.level,
        "rule": problem.rule,
        "message": problem.message,
        "module": problem.module,
        "code": _code(Location(problem.file, problem.line, problem.code)) if problem.file else None,
        "witness": witness,
        "fix": problem.fix,
        "details": problem.details,
    }
    return {key: value for key, value in facts.items() if value}
