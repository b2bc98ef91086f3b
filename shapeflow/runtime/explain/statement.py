"""The statement that raised, as a syntax tree, and what can be looked up in it.

>>> statement = Statement.of(step)
>>> statement.node, [ast.unparse(leaf) for leaf in statement.leaves]
(<ast.BinOp>, ['q', 'k'])
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from shapeflow.runtime.explain.stack import Step

Positions = tuple[int | None, int | None, int | None, int | None]


@dataclass(frozen=True, slots=True)
class Statement:
    """`node` is the expression that raised (None where a statement did), `stands` the statement that it stands in.

    `whole` is that too, or the `if` around a `raise`.
    """

    source: str
    node: ast.expr | None
    whole: ast.stmt | None
    positions: Positions
    stands: ast.stmt | None = None

    @staticmethod
    def of(step: Step) -> Statement | None:
        """The statement of a frame; None where there is no source (typed at a prompt, edited since)."""
        source = "".join(linecache.getlines(step.code.co_filename))
        tree = tree_of(source)
        if tree is None:
            return None
        nothing: Positions = (None, None, None, None)
        positions = next(islice(step.code.co_positions(), step.instruction // 2, None), nothing)
        stack = list(_around(tree, step.line))
        whole = stands = stack[-1] if stack else None
        if isinstance(whole, ast.Raise) and len(stack) > 1 and isinstance(stack[-2], ast.If):
            whole = stack[-2]  # the condition tells what the error is about
        return Statement(source, None if whole is None else _at(whole, positions), whole, positions, stands)

    def text(self, node: ast.AST) -> str:
        """The source of an expression in one line."""
        found = ast.get_source_segment(self.source, node)
        return found if found is not None and "\n" not in found else ast.unparse(node)

    def line(self, number: int) -> str:
        """A line of the file as it is."""
        lines = self.source.splitlines()
        return lines[number - 1] if number <= len(lines) else ""

    def columns(self, number: int) -> tuple[int, int] | None:
        """First and last column of what raised, in characters, where it starts on this line."""
        first, last, start, end = self.positions
        if first != number or start is None or end is None:
            return None
        line = self.line(number).encode()
        stop = end if last == first else len(line.rstrip())
        return len(line[:start].decode()), len(line[:stop].decode())

    @property
    def operands(self) -> list[ast.expr]:
        """The parts that went into what raised, in the order of the source."""
        node = self.node
        if isinstance(node, ast.BinOp):
            return [node.left, node.right]
        if isinstance(node, ast.Compare):
            return [node.left, *node.comparators]
        if isinstance(node, ast.Subscript):
            return [node.value, node.slice, *self._written]
        if isinstance(node, ast.UnaryOp):
            return [node.operand]
        if not isinstance(node, ast.Call):
            return []
        held = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        return [*held, *node.args, *(keyword.value for keyword in node.keywords)]

    @property
    def _written(self) -> list[ast.expr]:
        """What is written to an item: `y` of `x[0] = y`."""
        if isinstance(self.node, ast.Subscript) and isinstance(self.node.ctx, ast.Store):
            value = getattr(self.whole, "value", None)
            return [value] if isinstance(value, ast.expr) else []
        return []

    @property
    def written(self) -> ast.expr | None:
        return next(iter(self._written), None)

    @property
    def leaves(self) -> list[ast.expr]:
        """Names and attributes that the statement reads, the failing expression's first, each once."""
        found: dict[str, ast.expr] = {}
        for part in ([self.node] if self.node is not None else []) + _read_by(self.whole):
            for node in _leaves(part):
                found.setdefault(ast.dump(node), node)
        return list(found.values())


@lru_cache(maxsize=64)
def tree_of(source: str) -> ast.Module | None:
    if not source:
        return None
    try:
        return ast.parse(source)
    except SyntaxError:  # edited since it was imported
        return None


def _around(tree: ast.AST, line: int) -> Iterator[ast.stmt]:
    """The statements around a line, outermost first."""
    for node in ast.iter_child_nodes(tree):
        decorators = [each.lineno for each in getattr(node, "decorator_list", [])]
        first = min([getattr(node, "lineno", line), *decorators])
        if first <= line <= (getattr(node, "end_lineno", None) or line):
            if isinstance(node, ast.stmt):
                yield node
            yield from _around(node, line)


def _at(whole: ast.stmt, positions: Positions) -> ast.expr | None:
    """The expression at a place; of `a += b`, the sum."""
    line, last, start, end = positions
    for node in ast.walk(whole):
        place = [getattr(node, name, None) for name in ("lineno", "end_lineno", "col_offset", "end_col_offset")]
        if place != [line, last, start, end]:
            continue
        if isinstance(node, ast.AugAssign):
            return ast.copy_location(ast.BinOp(node.target, node.op, node.value), node)
        if isinstance(node, ast.expr):
            return node
    return None


def _read_by(whole: ast.stmt | None) -> list[ast.AST]:
    """The expressions of a statement that its own line evaluates: of `if`, `for` and `with` not their bodies."""
    if whole is None:
        return []
    if isinstance(whole, ast.If | ast.While):
        return [whole.test]
    if isinstance(whole, ast.For | ast.AsyncFor):
        return [whole.iter]
    if isinstance(whole, ast.With | ast.AsyncWith):
        return [item.context_expr for item in whole.items]
    if isinstance(whole, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Try | ast.Match):
        return []
    return [whole]


def _leaves(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and _is_dotted(node)):
        if isinstance(node.ctx, ast.Load):
            yield node
        if isinstance(node, ast.Attribute):
            yield from _leaves(node.value)  # `x` of `x.shape`
        return
    for child in ast.iter_child_nodes(node):
        yield from _leaves(child)


def _is_dotted(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)
