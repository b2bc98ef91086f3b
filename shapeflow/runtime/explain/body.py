"""Goes through the statements of a function without running it: what each name was worth on a line.

>>> body = Body(evaluator, names)
>>> body.up_to(definition, failing_statement, frame.f_locals)
True

Statements that cannot be followed leave the names that they assign unknown; nothing is guessed.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import types
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from torch import nn

from shapeflow.runtime.explain.evaluate import Evaluator
from shapeflow.runtime.explain.pure import Unseen
from shapeflow.runtime.explain.statement import tree_of
from shapeflow.runtime.explain.tensor import is_tensor

MOST_TURNS = 256
"""Loops with more turns are not followed."""
Definition = ast.FunctionDef | ast.AsyncFunctionDef


class _Returned(Exception):
    """The function ends here; `node` is what it returns."""

    def __init__(self, node: ast.expr | None) -> None:
        super().__init__()
        self.node = node


class _Reached(Exception):
    """The statement that was looked for is next."""


class Body:
    """Statements in an evaluator whose `names` they change."""

    def __init__(self, evaluator: Evaluator, names: dict[str, Any]) -> None:
        self.evaluator, self.names = evaluator, names
        self._target: ast.stmt | None = None
        self._actual: Mapping[str, Any] = {}
        self._counts: Counter[str] = Counter()
        self._fall_back = False

    def result(self, definition: Definition) -> Any:
        """What the function returns. Raises Unseen."""
        try:
            self._block(definition.body)
        except _Returned as returned:
            return None if returned.node is None else self.evaluator.value(returned.node)
        return None

    def up_to(
        self, definition: Definition, target: ast.stmt, actual: Mapping[str, Any], *, fall_back: bool = True
    ) -> bool:
        """Go to a statement as the run whose local names are `actual` came to it; False where there is no way.

        `fall_back`: a name that is assigned once and cannot be followed has its actual value.
        """
        self._target, self._actual, self._fall_back = target, actual, fall_back
        self._counts = Counter(_assigned_in(definition.body))
        try:
            self._block(definition.body)
        except _Reached:
            return True
        except (_Returned, Unseen):
            return False
        return False

    def _block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            if statement is self._target and self._is_there():
                raise _Reached
            self._one(statement)

    def _is_there(self) -> bool:
        """Whether loops around the target are at the turn at which the run was."""
        return all(_same(self.names.get(name, _NOTHING), self._actual.get(name)) for name in self._loops)

    _loops: tuple[str, ...] = ()

    def _one(self, statement: ast.stmt) -> None:
        handler = getattr(self, f"_{type(statement).__name__.lower()}", None)
        if handler is None:
            self._forget([statement])
        else:
            handler(statement)

    def _assign(self, statement: ast.Assign) -> None:
        try:
            value = self.evaluator.value(statement.value)
            for target in statement.targets:
                self._bind(target, value)
        except Unseen:
            self._forget([statement])

    def _annassign(self, statement: ast.AnnAssign) -> None:
        if statement.value is not None:
            self._assign(ast.Assign([statement.target], statement.value))

    def _augassign(self, statement: ast.AugAssign) -> None:
        if not isinstance(statement.target, ast.Name):
            return
        value = ast.copy_location(ast.BinOp(statement.target, statement.op, statement.value), statement)
        self._assign(ast.Assign([statement.target], value))

    def _bind(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            items = list(value)
            if len(items) != len(target.elts) or any(isinstance(each, ast.Starred) for each in target.elts):
                raise Unseen
            for each, item in zip(target.elts, items, strict=True):
                self._bind(each, item)
        # an item or an attribute that is assigned is not followed, and is looked up as it is now

    def _expr(self, statement: ast.Expr) -> None:
        """A call for its effect: what it returns is of no use; one in place leaves the shape."""

    def _pass(self, statement: ast.Pass) -> None: ...

    def _assert(self, statement: ast.Assert) -> None: ...

    def _raise(self, statement: ast.Raise) -> None:
        raise Unseen

    def _return(self, statement: ast.Return) -> None:
        raise _Returned(statement.value)

    def _if(self, statement: ast.If) -> None:
        for branch in (statement.body, statement.orelse):
            if self._holds_target(branch):
                self._block(branch)
                return
        try:
            test = bool(_plain(self.evaluator.value(statement.test)))
        except Unseen:
            if any(isinstance(node, ast.Return) for node in ast.walk(statement)):
                raise
            self._forget([statement])
        else:
            self._block(statement.body if test else statement.orelse)

    def _with(self, statement: ast.With) -> None:
        self._forget([each.optional_vars for each in statement.items if each.optional_vars is not None])
        self._block(statement.body)

    def _try(self, statement: ast.Try) -> None:
        for handler in statement.handlers:
            if self._holds_target(handler.body):
                self._forget(statement.body)
                self._block(handler.body)
        self._block([*statement.body, *statement.orelse, *statement.finalbody])

    def _for(self, statement: ast.For) -> None:
        try:
            held = self._items(statement.iter)
        except Unseen:
            if self._holds_target(statement.body) or any(isinstance(n, ast.Return) for n in ast.walk(statement)):
                raise
            self._forget([statement])
            return
        before, self._loops = self._loops, (*self._loops, *_assigned_in([statement.target]))
        for item in held:
            self._bind(statement.target, item)
            self._block(statement.body)
        self._loops = before
        self._block(statement.orelse)

    def _items(self, node: ast.expr) -> list[Any]:
        held = self.evaluator.value(node)
        if isinstance(held, nn.ModuleDict):
            held = list(held)
        countable = hasattr(held, "__len__") or isinstance(held, zip | enumerate)
        if is_tensor(held) or not countable:
            raise Unseen
        items = list(islice(held, MOST_TURNS + 1))
        if len(items) > MOST_TURNS:
            raise Unseen
        return items

    def _holds_target(self, statements: list[ast.stmt]) -> bool:
        return any(node is self._target for statement in statements for node in ast.walk(statement))

    def _forget(self, nodes: list[Any]) -> None:
        for name in _assigned_in(nodes):
            self.names.pop(name, None)
            if self._fall_back and self._counts[name] == 1 and name in self._actual:
                self.names[name] = self._actual[name]


_NOTHING = object()


def _same(a: Any, b: Any) -> bool:
    return a is b or (type(a) is int and type(b) is int and a == b) or (type(a) is str and a == b)


def _plain(value: Any) -> Any:
    """A value that Python can branch on; a tensor's is not known."""
    if is_tensor(value):
        raise Unseen
    return value


def _assigned_in(nodes: list[Any]) -> Iterator[str]:
    """The names that statements, or targets, assign."""
    for each in nodes:
        for node in ast.walk(each):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
                yield node.id
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                yield node.name
            elif isinstance(node, ast.alias):
                yield (node.asname or node.name).partition(".")[0]


def function_at(code: types.CodeType) -> Definition | None:
    """The definition whose code this is; None for a lambda, or where there is no source."""
    tree = tree_of("".join(linecache.getlines(code.co_filename)))
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, Definition) and node.name == code.co_name:
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            if first == code.co_firstlineno:
                return node
    return None


def parameters_of(function: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The local names with which a call of the function starts, those of functions around it among them."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError) as error:
        raise Unseen from error
    bound.apply_defaults()
    around = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            around[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return {**around, **bound.arguments}
