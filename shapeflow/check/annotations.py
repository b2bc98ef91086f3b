"""jaxtyping annotations against what flows through them: axis by axis, which name is what.

>>> [problem.message for problem in annotation_problems(attempt, sizes)]
['the result of Encoder is declared B T d_model, but its axis 1 is T + 1']
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby

from torch import nn

from shapeflow.check.problem import Problem
from shapeflow.check.sizes import Sizes
from shapeflow.dims.dim import Dim
from shapeflow.dims.env import DimEnv
from shapeflow.dims.expr import Expr
from shapeflow.dims.relation import Relation
from shapeflow.trace.attempt import Attempt
from shapeflow.trace.boundaries import RESULT, Declared
from shapeflow.trace.result import shape_text
from shapeflow.trace.source import location


def annotation_problems(attempt: Attempt, sizes: Sizes) -> list[Problem]:
    """What the annotations that this run passed through say wrongly; `sizes` are those of the run."""
    found: dict[tuple[object, ...], Problem] = {}
    for _, declared in groupby(attempt.boundaries.declared_by_call(), key=lambda each: each.call):
        for problem in _Call(attempt.env, sizes).judge(declared):
            found.setdefault((problem.rule, problem.file, problem.line, problem.message), problem)
    return [*found.values(), *_unreadable(attempt)]


def _unreadable(attempt: Attempt) -> Iterator[Problem]:
    for annotation, reason in attempt.names.unreadable.items():
        first, *more = reason.splitlines()
        message = f"the annotation {annotation} cannot be read: {first}"
        yield Problem("SF203", "warning", message, details=tuple(more))


@dataclass(slots=True)
class _Call:
    """One call of a module or function: a name means one size in it."""

    env: DimEnv
    sizes: Sizes
    known: dict[str, tuple[Expr, str]] = field(default_factory=dict)
    groups: dict[str, tuple[Expr, ...]] = field(default_factory=dict)

    def judge(self, declared: Iterable[Declared]) -> Iterator[Problem]:
        for each in declared:
            problem = self._judge(each)
            if problem is not None:
                yield problem

    def _judge(self, each: Declared) -> Problem | None:
        dims = each.spec.dims
        variadic = next((index for index, dim in enumerate(dims) if dim.variadic), None)
        extra = len(each.dims) - (len(dims) - (variadic is not None))
        if extra < 0 or (variadic is None and extra):
            return self._problem(each, "SF204", f"has {len(each.dims)} axes: {_shape(each.dims)}", ())
        for index, dim in enumerate(dims):
            if index == variadic:
                problem = self._group(each, dim, each.dims[index : index + extra])
            else:
                axis = index if variadic is None or index < variadic else index - 1 + extra
                problem = self._axis(each, dim, axis)
            if problem is not None:
                return problem
        return None

    def _group(self, each: Declared, dim: Dim, found: tuple[Expr, ...]) -> Problem | None:
        """`*batch` stands for the same axes wherever it occurs."""
        if dim.name is None or dim.broadcast:
            return None
        known = self.groups.setdefault(dim.name, found)
        same = len(known) == len(found) and all(self._equal(a, b) for a, b in zip(known, found, strict=True))
        if same:
            return None
        return self._problem(each, "SF201", f"*{dim.name} is {_shape(found)} here and {_shape(known)} before", ())

    def _axis(self, each: Declared, dim: Dim, axis: int) -> Problem | None:
        found = each.dims[axis]
        if dim.expr is None or (dim.broadcast and found.value == 1):
            return None
        if dim.name is not None and dim.expr is Expr.symbol(dim.name):
            return self._name(each, dim.name, axis)
        expected = self._meant(dim.expr, each.instance)
        if expected is None or self._equal(expected, found):
            return None
        return self._problem(each, "SF201", f"axis {axis} is {_value(found)}, not {dim.expr}", _names(dim.expr, found))

    def _name(self, each: Declared, name: str, axis: int) -> Problem | None:
        found = each.dims[axis]
        attribute = _attribute(each.instance, name)
        if attribute is not None and not self._equal(Expr.const(attribute), found):
            said = f"axis {axis} is {_value(found)}, and {name} is {attribute} in this {type(each.instance).__name__}"
            return self._problem(each, "SF202", said, (name,))
        known, where = self.known.setdefault(name, (found, f"{each.what}, axis {axis}"))
        if self._equal(known, found):
            return None
        said = f"axis {axis} is {_value(found)}, and {name} is {_value(known)} already ({where})"
        return self._problem(each, "SF201", said, tuple(dict.fromkeys((name, *_names(found)))))

    def _meant(self, expr: Expr, instance: nn.Module | None) -> Expr | None:
        """An expression with the sizes of its names; None where one is not known yet."""
        values: dict = {}
        for symbol in expr.symbols:
            attribute = _attribute(instance, symbol.name)
            if symbol.name in self.known:
                values[symbol] = self.known[symbol.name][0]
            elif attribute is not None:
                values[symbol] = Expr.const(attribute)
            elif symbol.value is None:
                return None
        return expr.replace(values)

    def _equal(self, one: Expr, other: Expr) -> bool:
        """Whether two sizes are equal, or cannot be told apart at the sizes of the run."""
        relation = Relation("==", one - other).unpinned
        decided = self.env.decide(relation)
        return relation.holds(self.env.hint(relation.difference)) if decided is None else decided

    def _problem(self, each: Declared, rule: str, said: str, names: tuple[str, ...]) -> Problem:
        what = f"the result of {each.owner}" if each.what == RESULT else f"{each.what} of {each.owner}"
        problem = Problem(
            rule,
            "error",
            f"{what} is declared {each.spec}, but {said}",
            module=each.module,
            dims=names,
            witness=self.sizes,
            details=(f"its shape is {_shape(each.dims)}",),
        )
        return problem.at(location(each.place))


def _attribute(instance: nn.Module | None, name: str) -> int | None:
    """The integer attribute of this name: pinned while the model ran, and back in its place now."""
    value = None if instance is None else vars(instance).get(name)
    return value if type(value) is int else None


def _names(*sizes: Expr) -> tuple[str, ...]:
    return tuple(sorted({symbol.name for size in sizes for symbol in size.symbols}))


def _shape(dims: Iterable[Expr]) -> str:
    return shape_text(dims) or "a scalar"


def _value(size: Expr) -> str:
    """A size with its number where it has both: `d_model = 32`."""
    value = size.value
    return str(size) if value is None or size.constant is not None else f"{size} = {value}"
