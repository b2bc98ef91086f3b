"""Where the source of a class speaks of an attribute, and of a local name: what code may still do with a value.

>>> mentions(Block, "norm2")           # `self.norm2 = nn.LayerNorm(d)` in the constructor, and nowhere else
False
"""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType

from torch import nn

ANY_ATTRIBUTE = frozenset(
    """getattr vars _parameters _modules _buffers __dict__ parameters named_parameters children named_children modules
    named_modules state_dict get_parameter get_submodule""".split()
)
"""Ways to an attribute that do not spell its name."""
MAKING = frozenset("__init__ reset_parameters _reset_parameters init_weights _init_weights".split())
"""Methods that speak of attributes in order to fill them."""


def mentions(owner: type, attribute: str) -> bool:
    """Whether a method may read `self.attribute`; True where the source is unknown or reaches attributes unnamed."""
    classes = [cls for cls in owner.__mro__ if cls not in (object, nn.Module)]
    found = [_attributes(cls) for cls in classes]
    return any(names is None or attribute in names or names & ANY_ATTRIBUTE for names in found)


@lru_cache(maxsize=1024)
def _attributes(cls: type) -> frozenset[str] | None:
    """The attributes, names and strings that the methods of a class read, None where there is no source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError, SyntaxError):  # made at run time, or in a notebook that is gone
        return None
    found: set[str] = set()
    for node in _outside_making(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            found.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return frozenset(found)


def _outside_making(tree: ast.AST) -> Iterator[ast.AST]:
    yield tree
    for child in ast.iter_child_nodes(tree):
        if not isinstance(child, ast.FunctionDef) or child.name not in MAKING:
            yield from _outside_making(child)


def lost_name(code: CodeType, line: int) -> str | None:
    """The local name that this line gives a value and that nobody reads before it gets another; None where one may.

    Only plain assignments outside of loops count: what a loop, a condition or a nested function does is not followed.
    """
    function = _function(code)
    if function is None:
        return None
    for at, statement in enumerate(function.body):
        if statement.lineno <= line <= (statement.end_lineno or line):
            name = _assigned(statement)
            return name if name is not None and not _read_next(function.body[at + 1 :], name) else None
    return None


def _function(code: CodeType) -> ast.FunctionDef | None:
    source = "".join(linecache.getlines(code.co_filename))
    tree = _parsed(source)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            if first == code.co_firstlineno:
                return node
    return None


@lru_cache(maxsize=64)
def _parsed(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except SyntaxError:
        return None


def _assigned(statement: ast.stmt) -> str | None:
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id
    return None


def _read_next(rest: list[ast.stmt], name: str) -> bool:
    """Whether statements read a name before a plain assignment gives it another value."""
    for statement in rest:
        names = [each for each in ast.walk(statement) if isinstance(each, ast.Name) and each.id == name]
        if any(isinstance(each.ctx, ast.Load) for each in names) or "locals" in ast.dump(statement):
            return True
        if _assigned(statement) == name:
            return False
    return False
