"""The line of source that built a submodule, and the text of that call.

>>> constructor_line(model, "head")
Location(file='model.py', line=12, code='self.head = nn.Linear(10, 5)')
>>> written_call(model, "head").changed(in_features="490")
'nn.Linear(490, 5)'
"""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Iterator
from typing import Any

from torch import nn

from shapeflow.check.cause.syntax import Source, Spot, dotted
from shapeflow.check.cause.written import Written, is_class, parameter_names
from shapeflow.trace.result import Location
from shapeflow.trace.source import short_path

ANY = "*"
"""Stands for an item of a container at a position that nobody can tell."""
DEEPEST = 8
"""Names that stand for names that stand for names: farther than this nobody follows."""


def constructor_line(root: nn.Module, path: str) -> Location | None:
    """Where the submodule, parameter or buffer at `path` is built; None where no source says so."""
    spot = _built(root, path)
    if spot is None:
        return None
    line = spot.expr.lineno
    return Location(short_path(spot.source.file), line, linecache.getline(spot.source.file, line).strip())


def written_call(root: nn.Module, path: str) -> Written | None:
    """The call of the class itself, as written; None where a factory calls it elsewhere."""
    spot = _built(root, path)
    module = _get(root, path)
    if spot is None or not isinstance(spot.expr, ast.Call) or not isinstance(module, nn.Module):
        return None
    call = Written(spot.expr, "".join(linecache.getlines(spot.source.file)), type(module))
    return call if is_class(spot.expr.func, module) else None


def _built(root: nn.Module, path: str) -> Spot | None:
    """The expression behind `path`: in the class of the nearest owner that is written by someone else than torch."""
    target = _get(root, path)
    if target is None:
        return None
    names = path.split(".") if path else []
    for depth in range(len(names) - 1, -1, -1):
        owner = _get(root, ".".join(names[:depth]))
        found = _best(_in_owner(root, names[:depth], owner, names[depth:], target), target)
        if found is not None:
            return found
    return _best((spot for spot in _at_top(root, names, target) if _fit(spot.expr, target) > 1), target)


def _in_owner(root: nn.Module, above: list[str], owner: Any, rest: list[str], target: Any) -> Iterator[Spot]:
    for cls in type(owner).__mro__:
        if cls.__module__.startswith("torch.") or cls is object:
            continue
        source = Source.of(cls)
        if source is None:
            continue
        finder = _Finder(root, above, target)
        for spot in source.assigned(rest[0]):
            yield from finder.below(spot, rest[1:])
        for method in source.methods if len(rest) > 1 else ():
            for spot in source.items(f"self.{rest[0]}", method):
                yield from finder.below(spot, rest[2:])
            for spot in source.extended(f"self.{rest[0]}", method):
                yield from finder.below(spot, [ANY, *rest[2:]])


def _at_top(root: nn.Module, names: list[str], target: Any) -> Iterator[Spot]:
    """A model that is built outside of any class: by the module's name for it."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not file or module.__name__.partition(".")[0] == "torch":
            continue
        for name, value in list(vars(module).items()):
            if value is root and (source := Source.of_file(file)) is not None:
                for spot in source.bound(name, None):
                    yield from _Finder(root, [], target).below(spot, names)


class _Finder:
    """Follows the rest of a path into an expression: containers, lists, comprehensions, local names, factories."""

    def __init__(self, root: nn.Module, above: list[str], target: Any) -> None:
        self.root, self.above, self.target = root, above, target

    def below(self, spot: Spot, rest: list[str], depth: int = 0) -> Iterator[Spot]:
        if depth > DEEPEST:
            return
        named = self._named(spot, rest, depth)
        if named is not None:
            yield from named
        elif not rest:
            yield self._core(spot)
        else:
            yield from self._inside(spot, rest, depth + 1)

    def _named(self, spot: Spot, rest: list[str], depth: int) -> Iterator[Spot] | None:
        """A name stands for what is assigned to it, a parameter for what the owner's own constructor was given."""
        expr = spot.expr
        if isinstance(expr, ast.IfExp):
            return self._each(spot, [expr.body, expr.orelse], rest, depth)
        if isinstance(expr, ast.Attribute) and isinstance(expr.value, ast.Name) and expr.value.id == "self":
            return (each for found in spot.source.assigned(expr.attr) for each in self.below(found, rest, depth + 1))
        if isinstance(expr, ast.Name):
            return self._local(spot, expr.id, rest, depth)
        return None

    def _local(self, spot: Spot, name: str, rest: list[str], depth: int) -> Iterator[Spot]:
        found = False
        for each in spot.source.bound(name, spot.function):
            found = True
            yield from self.below(each, rest, depth + 1)
        for each in spot.source.items(name, spot.function) if rest else ():
            found = True
            yield from self.below(each, rest[1:], depth + 1)
        for each in spot.source.extended(name, spot.function) if rest else ():
            yield from self.below(each, [ANY, *rest[1:]], depth + 1)
        if not found and spot.function is not None:
            yield from self._argument(spot, name, rest, depth)

    def _argument(self, spot: Spot, name: str, rest: list[str], depth: int) -> Iterator[Spot]:
        names = [each.arg for each in spot.function.args.args] if spot.function is not None else []
        owner = _built(self.root, ".".join(self.above)) if self.above and name in names else None
        if owner is None or not isinstance(owner.expr, ast.Call):
            return
        at = names.index(name) - 1  # without self
        if at < len(owner.expr.args):
            yield from self.below(owner.at(owner.expr.args[at]), rest, depth + 1)
        for keyword in owner.expr.keywords:
            if keyword.arg == name:
                yield from self.below(owner.at(keyword.value), rest, depth + 1)

    def _each(self, spot: Spot, exprs: list[ast.expr], rest: list[str], depth: int) -> Iterator[Spot]:
        for expr in exprs:
            yield from self.below(spot.at(expr), rest, depth + 1)

    def _inside(self, spot: Spot, rest: list[str], depth: int) -> Iterator[Spot]:
        """The item `rest[0]` of a container."""
        expr, key = spot.expr, rest[0]
        if isinstance(expr, ast.Call):
            yield from self._in_call(spot, expr, rest, depth)
        elif isinstance(expr, ast.List | ast.Tuple):
            yield from self._item(spot, expr.elts, rest, depth)
        elif isinstance(expr, ast.ListComp | ast.GeneratorExp | ast.SetComp):
            yield from self._each(spot, [expr.elt], rest[1:], depth)
        elif isinstance(expr, ast.DictComp):
            yield from self._each(spot, [expr.value], rest[1:], depth)
        elif isinstance(expr, ast.Dict):
            values = [v for k, v in zip(expr.keys, expr.values, strict=True) if key == ANY or _key(k) in (key, None)]
            yield from self._each(spot, values, rest[1:], depth)
        elif isinstance(expr, ast.BinOp):
            for side in (expr.left, expr.right):
                yield from self.below(spot.at(side), rest, depth)

    def _item(self, spot: Spot, items: list[ast.expr], rest: list[str], depth: int) -> Iterator[Spot]:
        """By position; behind a starred item positions are open. Pairs of a name and a value go by name."""
        pairs = [each.elts for each in items if isinstance(each, ast.Tuple) and len(each.elts) == 2]
        if pairs and len(pairs) == len(items):
            named = [value for name, value in pairs if rest[0] in (_key(name), ANY)]
            yield from self._each(spot, named, rest[1:], depth)
            return
        at = int(rest[0]) if rest[0].isdigit() else None
        stars = [index for index, each in enumerate(items) if isinstance(each, ast.Starred)]
        if at is not None and at < min([len(items), *stars]):
            yield from self._each(spot, [items[at]], rest[1:], depth)
            return
        for index, each in enumerate(items):
            if isinstance(each, ast.Starred):
                inner = str(at - index) if at is not None and index == stars[0] else ANY
                yield from self.below(spot.at(each.value), [inner, *rest[1:]], depth)
            else:
                yield from self.below(spot.at(each), rest[1:], depth)

    def _in_call(self, spot: Spot, call: ast.Call, rest: list[str], depth: int) -> Iterator[Spot]:
        name = dotted(call.func)
        last = name.rpartition(".")[2]
        if last in ("Sequential", "OrderedDict", "ModuleDict", "ModuleList", "dict", "list"):
            if len(call.args) == 1 and _is_container(call.args[0], last):
                yield from self.below(spot.at(call.args[0]), rest, depth)
            else:
                yield from self._item(spot, call.args, rest, depth)
            values = [each.value for each in call.keywords if each.arg == rest[0]]
            yield from self._each(spot, values, rest[1:], depth)
            return
        function = spot.source.function(last) if name in (last, f"self.{last}") else None
        if function is None:  # a factory out of sight: the call itself
            yield self._core(spot)
            return
        for node in ast.walk(function):
            if isinstance(node, ast.Return) and node.value is not None:
                yield from self.below(Spot(node.value, function, spot.source), rest, depth)

    def _core(self, spot: Spot) -> Spot:
        """`nn.Linear(3, 4)` of `spectral_norm(nn.Linear(3, 4)).to(device)`."""
        for node in ast.walk(spot.expr):
            if isinstance(node, ast.Call) and is_class(node.func, self.target):
                return spot.at(node)
        return spot


def _is_container(first: ast.expr, name: str) -> bool:
    """Whether the only argument is the container: always, but for Sequential, which takes its items one by one."""
    if name == "Sequential":
        return isinstance(first, ast.Call) and dotted(first.func).endswith("OrderedDict")
    return not isinstance(first, ast.Starred)


def _key(node: ast.expr | None) -> str | None:
    return str(node.value) if isinstance(node, ast.Constant) else None


def _best(spots: Iterator[Spot], target: Any) -> Spot | None:
    """Where several expressions may have built the target, the one whose class and numbers fit best."""
    found = list(spots)
    return max(found, key=lambda spot: _fit(spot.expr, target)) if found else None


def _fit(expr: ast.expr, target: Any) -> int:
    if not isinstance(expr, ast.Call):
        return 0
    if not is_class(expr.func, target):
        return 1
    names = parameter_names(type(target))
    written = [*zip(names, expr.args, strict=False), *((each.arg or "", each.value) for each in expr.keywords)]
    score = 10
    for name, value in written:
        held = getattr(target, name, None)
        if isinstance(value, ast.Constant) and type(held) is type(value.value):
            score += 1 if held == value.value else -9
    return score


def _get(root: nn.Module, path: str) -> Any:
    found: Any = root
    for name in path.split(".") if path else []:
        found = getattr(found, name, None)
    return found
