"""The source of a class as a syntax tree, and the expressions that its methods assign to an attribute.

>>> [ast.unparse(spot.expr) for spot in Source.of(Net).assigned("head")]
['nn.Linear(10, 5)']
"""

from __future__ import annotations

import ast
import inspect
import linecache
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

Function = ast.FunctionDef | ast.AsyncFunctionDef
REGISTERING = ("add_module", "register_module", "register_buffer", "register_parameter")


@dataclass(frozen=True, slots=True)
class Spot:
    """An expression with the function that it stands in, whose local names it reads, and the class around."""

    expr: ast.expr
    function: Function | None
    source: Source

    def at(self, expr: ast.expr) -> Spot:
        return Spot(expr, self.function, self.source)


@dataclass(frozen=True, eq=False)
class Source:
    """A file, and the class in it that is looked at (None: the module's own level)."""

    file: str
    tree: ast.Module
    definition: ast.ClassDef | None = None

    @staticmethod
    def of(kind: type) -> Source | None:
        """The source of a class; None where there is none (made by hand, typed at a prompt)."""
        for method in vars(kind).values():
            code = getattr(inspect.unwrap(method), "__code__", None) if callable(method) else None
            tree = _parsed(code.co_filename) if code is not None else None
            definition = _class_at(tree, kind, code.co_firstlineno) if tree is not None and code is not None else None
            if definition is not None and tree is not None and code is not None:
                return Source(code.co_filename, tree, definition)
        return None

    @staticmethod
    def of_file(file: str) -> Source | None:
        tree = _parsed(file)
        return None if tree is None else Source(file, tree)

    @property
    def methods(self) -> list[Function]:
        return [] if self.definition is None else _methods(self.definition)

    def function(self, name: str) -> Function | None:
        """The method of the class, or the function of the file, with this name."""
        for each in [*self.methods, *self.tree.body]:
            if isinstance(each, Function) and each.name == name:
                return each
        return None

    def assigned(self, name: str) -> Iterator[Spot]:
        """What methods of the class assign to `self.<name>`, or register under this name."""
        for expr, method in _assignments(self.definition, name) if self.definition is not None else ():
            yield Spot(expr, method, self)

    def bound(self, name: str, function: Function | None) -> Iterator[Spot]:
        """What a function (None: the file) assigns to a local name."""
        for node in ast.walk(self.tree if function is None else function):
            for expr in _bound(node, name):
                yield Spot(expr, function, self)

    def extended(self, name: str, function: Function | None) -> Iterator[Spot]:
        """What a function adds to the container of this name, several at once: `layers += [x, y]`."""
        for node in ast.walk(self.tree if function is None else function):
            for expr in _extended(node, name):
                yield Spot(expr, function, self)

    def items(self, name: str, function: Function | None) -> Iterator[Spot]:
        """What a function puts into the container of this name: `layers.append(x)`, `layers["a"] = x`."""
        for node in ast.walk(self.tree if function is None else function):
            for expr in _items(node, name):
                yield Spot(expr, function, self)


def _methods(definition: ast.ClassDef) -> list[Function]:
    return [each for each in definition.body if isinstance(each, Function)]


@lru_cache(maxsize=4096)
def _assignments(definition: ast.ClassDef, name: str) -> tuple[tuple[ast.expr, Function], ...]:
    """What methods of a class assign to `self.<name>`; a model asks for the same name once a block."""
    methods = [method for method in _methods(definition) if method.args.args]
    return tuple(
        (expr, method)
        for method in methods
        for node in ast.walk(method)
        for expr in _assigned(node, method.args.args[0].arg, name)
    )


def _assigned(node: ast.AST, owner: str, name: str) -> Iterator[ast.expr]:
    for target, value in _pairs(node):
        if dotted(target) == f"{owner}.{name}":
            yield value
    if not isinstance(node, ast.Call) or len(node.args) < 2:
        return
    if isinstance(node.func, ast.Attribute) and node.func.attr in REGISTERING:
        if dotted(node.func.value) == owner and _spells(node.args[0], name):
            yield node.args[1]
    elif dotted(node.func) == "setattr" and dotted(node.args[0]) == owner and _spells(node.args[1], name):
        yield node.args[-1]


def _bound(node: ast.AST, name: str) -> Iterator[ast.expr]:
    for target, value in _pairs(node):
        if dotted(target) == name:
            yield value


def _extended(node: ast.AST, name: str) -> Iterator[ast.expr]:
    if isinstance(node, ast.AugAssign) and dotted(node.target) == name:
        yield node.value
    if (extending := _method_call(node, name, ("extend", "update"))) is not None:
        yield extending.args[0]


def _items(node: ast.AST, name: str) -> Iterator[ast.expr]:
    for target, value in _pairs(node):
        if isinstance(target, ast.Subscript) and dotted(target.value) == name:
            yield value
    if (adding := _method_call(node, name, ("append", "insert", "add_module"))) is not None:
        yield adding.args[-1]


def _method_call(node: ast.AST, name: str, methods: tuple[str, ...]) -> ast.Call | None:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
        return None
    return node if node.func.attr in methods and dotted(node.func.value) == name else None


def _pairs(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets and values of an assignment; of tuples, item by item."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _unpacked(target, node.value)
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        yield node.target, node.value


def _unpacked(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    if not isinstance(target, ast.Tuple | ast.List):
        yield target, value
    elif isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
        for each, item in zip(target.elts, value.elts, strict=True):
            yield from _unpacked(each, item)
    else:
        item = value.elt if isinstance(value, ast.GeneratorExp | ast.ListComp) else value
        for each in target.elts:
            yield from _unpacked(each, item)


def dotted(node: ast.AST) -> str:
    """`self.layers` or `nn.Linear` as text, `""` for what is no name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = dotted(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    return ""


def _spells(node: ast.expr, name: str) -> bool:
    """Whether a text gives this name: a constant, or an f-string that can."""
    if isinstance(node, ast.Constant):
        return node.value == name
    if isinstance(node, ast.JoinedStr):
        parts = [re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".*" for part in node.values]
        return re.fullmatch("".join(parts), name) is not None
    return isinstance(node, ast.Name | ast.BinOp | ast.Call)


@lru_cache(maxsize=512)
def _class_at(tree: ast.Module, cls: type, line: int) -> ast.ClassDef | None:
    """The innermost class with this name around the line of one of its methods."""
    found = None
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__ and node.lineno <= line <= _last(node):
            found = node
    return found


def _last(node: Any) -> int:
    return node.end_lineno or node.lineno


def _parsed(file: str) -> ast.Module | None:
    return _parsed_text("".join(linecache.getlines(file)))


@lru_cache(maxsize=256)
def _parsed_text(text: str) -> ast.Module | None:
    if not text:
        return None
    try:
        return ast.parse(text)
    except SyntaxError:  # the file has been edited since it was imported
        return None
