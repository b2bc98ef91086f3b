"""How one node of a drawing looks: the lines of its label, its colours, its tooltip.

>>> look(sheet, node, around=())
Look(lines=(Line('softmax'),), style='fillcolor="#fbf4c6", color="#97830a"', tooltip='blocks.0.attn')
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from textwrap import wrap

from shapeflow.draw.cluster import Scopes
from shapeflow.draw.label import copies_of, counted, parameters_of, place, reads_of, tied_of, title_of
from shapeflow.draw.markup import Line
from shapeflow.draw.palette import Paint, family_of
from shapeflow.draw.sheet import Sheet
from shapeflow.graph import Block
from shapeflow.graph.arguments import words
from shapeflow.graph.ends import spoken
from shapeflow.trace.result import Node

SMALL = 9
WRITTEN_OUT = 14  # operators of a norm, at most
LETTERS = 44  # in one line of a finding


@dataclass(frozen=True, slots=True)
class Look:
    """The words and the attributes of one node."""

    lines: tuple[Line, ...]
    style: str
    tooltip: str


def look(sheet: Sheet, node: Node | Block, around: Scopes) -> Look:
    """The look of a node in the box of `around`; what the checker found at it is in its colours and words."""
    plain = _block(sheet, node, around) if isinstance(node, Block) else _node(sheet, node, around)
    found = sheet.findings.get(node.name, ())
    if not found:
        return plain
    paint = sheet.theme.error if any(each.level == "error" for each in found) else sheet.theme.warning
    words = tuple(line for each in found for line in wrap(each.text, LETTERS))
    red = tuple(Line(text, size=SMALL, color=paint.line) for text in words)
    return Look((*plain.lines, *red), f"{_painted(paint)}, penwidth=2", plain.tooltip)


def title(sheet: Sheet, scopes: Scopes, around: Scopes, *, apart: bool = False) -> tuple[Line, ...]:
    """What a module is called: its path from the boxes around it, how often, class and numbers, `apart` a line each."""
    copies = copies_of(sheet.graph, scopes)
    name = title_of(sheet.graph, scopes, _nearest(scopes, around))
    heading = Line(name, bold=True, mark=f"x{copies}" if copies else "", mark_color=sheet.theme.mark)
    parameters = parameters_of(sheet.graph, path(scopes))
    each = " each" if len({copy.path for copy in sheet.graph.graph["repeats"].get(scopes, ())}) > 1 else ""
    learned = counted(parameters, "parameter") + each if parameters else ""
    words = [scopes[-1].kind, learned] if apart else [", ".join(filter(None, (scopes[-1].kind, learned)))]
    return (heading, *(_small(sheet, word) for word in [*words, sheet.flops.get(path(scopes), "")]))


def path(scopes: Scopes) -> str:
    return scopes[-1].path if scopes else ""


def _nearest(scopes: Scopes, around: Scopes) -> str:
    """The innermost box whose path the module's begins with: a block may hand one of its parts to another to run."""
    return next((scope.path for scope in reversed(around) if path(scopes).startswith(f"{scope.path}.")), "")


def _painted(paint: Paint) -> str:
    return f'fillcolor="{paint.fill}", color="{paint.line}"'


def _small(sheet: Sheet, text: str) -> Line:
    return Line(text, size=SMALL, color=sheet.theme.faint)


def _node(sheet: Sheet, node: Node, around: Scopes) -> Look:
    if node.kind in ("input", "output"):
        return _end(sheet, node)
    if node.kind == "constant":
        return Look((Line(node.name),), f"shape=note, {_painted(sheet.theme.made)}", place(node.location) or "constant")
    family = family_of(node.operator)
    paint = sheet.theme.fills.get(family) or (sheet.theme.fills["weights"] if node.parameters else sheet.theme.plain)
    style = _painted(paint)
    if node.scopes != around:
        return Look(_alone(sheet, node, around), style, _tooltip(sheet, node))
    if not family and not node.parameters:
        style += ", height=0.22, fontsize=10"
    return Look((Line(node.operator), _small(sheet, reads_of(node))), style, _tooltip(sheet, node))


def _alone(sheet: Sheet, node: Node, around: Scopes) -> tuple[Line, ...]:
    """An operator that is all of its module is drawn as the module, and named where the class does not tell it."""
    told = node.scopes[-1].kind.lower().startswith(node.operator.replace("_", ""))
    named = () if told else (_small(sheet, node.operator),)
    tied = tied_of(node)
    return (*title(sheet, node.scopes, around), *named, *([_small(sheet, f"tied to {tied}")] if tied else []))


def _end(sheet: Sheet, node: Node) -> Look:
    """An input or an output of the model, or all those of one kind."""
    names = sheet.graph.graph.get("ends", {}).get(node.name, ())
    name = (spoken(names) if names else node.name) or node.kind
    count = f"  x{len(names)}" if len(names) > 1 else ""
    line = Line(name + count, bold=True, color=sheet.theme.end_text)
    double = ", peripheries=2" if node.kind == "output" else ""
    return Look((line,), f'style=filled, shape=box, margin="0.16,0.06"{double}, {_painted(sheet.theme.end)}', node.kind)


def _block(sheet: Sheet, block: Block, around: Scopes) -> Look:
    if block.kind == "views":
        return Look(
            (Line(" · ".join(block.words)),),
            f"{_painted(sheet.theme.plain)}, height=0.22, fontsize=10",
            path(block.scopes),
        )
    if block.kind in ("made", "more"):
        return _gathered(sheet, block)
    operators = counted(block.operators, "operator")
    tooltip = "\n".join((path(block.scopes) or sheet.graph.graph["name"], operators))
    if not block.scopes:
        name, learned = sheet.graph.graph["name"], counted(block.parameters, "parameter")
        lines = (Line(name, bold=True), _small(sheet, learned), _small(sheet, operators))
        return Look(lines, f"{_painted(sheet.theme.block)}, penwidth=1.6", tooltip)
    paint = sheet.theme.fills["norm"] if _is_norm(block) else sheet.theme.block
    twice = ", peripheries=2" if copies_of(sheet.graph, block.scopes) else ""
    lines = title(sheet, block.scopes, around)
    return Look(lines, f"{_painted(paint)}, penwidth=1.6{twice}", tooltip)


def _is_norm(block: Block) -> bool:
    """A norm that is written out, as RMSNorm often is; not a residual block that has one inside."""
    return "norm" in block.scopes[-1].kind.lower() and block.operators <= WRITTEN_OUT


def _gathered(sheet: Sheet, block: Block) -> Look:
    operators = counted(block.operators, "operator")
    if block.kind == "more":
        return Look((Line("..."), _small(sheet, f"{operators} more")), 'style="rounded,dashed"', "left out")
    return Look(
        (Line("".join(block.words)), _small(sheet, f"from sizes, {operators}")),
        _painted(sheet.theme.made),
        path(block.scopes),
    )


def _tooltip(sheet: Sheet, node: Node) -> str:
    where = f"{place(node.location)}\n{node.location.code}" if node.location else ""
    given = ", ".join(words(sheet.arguments.get(node.name, ())))
    return "\n".join(filter(None, (node.module, given, where))) or node.operator


def families(sheet: Sheet) -> list[str]:
    """The families of operators that are drawn, most frequent ones first."""
    counts = Counter(family_of(node.operator) for node in _operators(sheet))
    return [family for family in sheet.theme.fills if counts[family]]


def _operators(sheet: Sheet) -> list[Node]:
    nodes = (sheet.graph.nodes[name]["node"] for name in sheet.graph)
    return [node for node in nodes if isinstance(node, Node)]
