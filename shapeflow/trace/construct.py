"""Modules made of symbolic sizes: a class or a factory, and which of its arguments are names instead of numbers.

>>> recipe = construct(nn.Linear, {"in_features": None, "out_features": None})
>>> {path: str(shape) for path, shape in recipe.parameters().items()}
{'weight': 'out_features in_features', 'bias': 'out_features'}
>>> print(construct(MultiHeadAttention, {"d_model": None, "n_heads": None}).built().domain)
d_model >= 2, n_heads >= 2, d_model % n_heads == 0

`sf.trace(recipe)` and `sf.check(recipe)` take it in place of a module: each run makes a module of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

from torch import nn

from shapeflow.dims.expr import Expr
from shapeflow.errors import TargetError
from shapeflow.trace.attempt import Attempt, Subject
from shapeflow.trace.building import modules_around
from shapeflow.trace.conditions import conditions, domain
from shapeflow.trace.constructor import Constructor, constructor_of
from shapeflow.trace.hints import Hints
from shapeflow.trace.inputs import Bound
from shapeflow.trace.result import Condition, Domain, Shape
from shapeflow.trace.source import location, place_of_error
from shapeflow.trace.traced import traced

MOST_REPAIRS = 12
RUNGS = ((0, 1), (0, -1), (1, 1), (1, -1))
"""Small primes and larger ones, each in the order of the names and against it: one size may have to exceed another."""
LARGE = 1
REPEATS = 2
"""What stands for a number that only says how often: 2 layers are as good as 7."""


def construct(maker: Callable[..., nn.Module], names: Mapping[str, int | None], /, **arguments: Any) -> Recipe:
    """A recipe for `maker(**arguments)` with the arguments `names` as symbols; a number says what stands for one.

    A name may also be a field of a configuration: of one that `arguments` hold, or of the dataclass that an argument
    is annotated with. Raises InputError for names that are no integer arguments, and for arguments that are missing.
    """
    return Recipe(constructor_of(maker, tuple(names), arguments), dict(names))


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to make a module from sizes; see `construct`. `training` is the mode that the module is in."""

    constructor: Constructor
    names: Mapping[str, int | None]
    training: bool = True

    @property
    def name(self) -> str:
        return self.constructor.name

    def eval(self) -> Recipe:
        """The same for a module in evaluation mode."""
        return replace(self, training=False)

    def parameters(self) -> dict[str, Shape]:
        """Every parameter's shape by its path; a tied one stands once, under its first path."""
        return self.built().parameters

    def built(self) -> Built:
        """The module, made of symbols. Raises TargetError when the constructor raises for all sizes tried."""
        return Built(self.name, self._made({}))

    def subject(self, given: Mapping[str, int]) -> tuple[Subject, tuple[str, ...]]:
        """What to trace, and the names whose sizes are free; `given` are sizes that the user wants for some."""
        attempt = self._made({name: size for name, size in given.items() if name in self.names})
        fixed = Built(self.name, attempt).fixed
        return attempt.subject, tuple(name for name in self.names if name not in fixed)

    def _made(self, given: Mapping[str, int]) -> Attempt:
        """The run of the constructor at sizes that it takes."""
        given = {**{name: size for name, size in self.names.items() if size is not None}, **given}
        modules = tuple(modules_around(self.constructor.maker, None))
        attempts = []
        for rung, order in RUNGS:
            start = {name: given.get(name, 0) for name in [*self.names][::order]}
            attempts.append(self._repaired(_Making(self.constructor, start, (), modules, self.training), given, rung))
            if attempts[-1].error is None:
                return self._enlarged(attempts[-1], given)
        raise _refused(self, attempts[0]) from attempts[0].error

    def _repaired(self, making: _Making, given: Mapping[str, int], rung: int) -> Attempt:
        """One run after the other, with the sizes that the last one asked for."""
        first = attempt = _run(making, Hints(rung, frozenset(), given=given))
        asked: list[Expr] = []
        fixed: dict[str, int] = {}
        for _ in range(MOST_REPAIRS):
            if attempt.error is None:
                symbols = {name: attempt.hints.chosen[name] for name in self.names}
                return _run(replace(making, symbols=symbols, demands=tuple(asked)), _given(symbols))
            demanded = attempt.demanded(asked)
            if demanded is None or demanded[0] in given:
                break
            fixed[demanded[0]] = demanded[1]
            attempt = _run(making, Hints(rung, frozenset(), given=given, fixed=fixed))
        return first

    def _enlarged(self, attempt: Attempt, given: Mapping[str, int]) -> Attempt:
        """The same at sizes larger than those of the inputs, which a table may limit; 2 for numbers that only count."""
        making: Any = attempt.subject.maker
        counts = {name: REPEATS for name in Built(self.name, attempt).fixed if name not in given}
        making = replace(making, modules=tuple(modules_around(self.constructor.maker, attempt.subject.root)))
        larger = self._repaired(making, {**given, **counts}, LARGE)
        return attempt if larger.error is not None else larger


@dataclass(frozen=True, slots=True)
class _Making:
    """A constructor with the sizes that stand for its symbols: what an `Attempt` makes its module by."""

    constructor: Constructor
    symbols: Mapping[str, int]
    demands: tuple[Expr, ...]
    modules: tuple[ModuleType, ...]
    training: bool

    def make(self, sizes: Mapping[str, Any]) -> nn.Module:
        return self.constructor(sizes).train(self.training)


def _given(sizes: Mapping[str, int]) -> Hints:
    return Hints(0, frozenset(), given=sizes)


def _run(making: _Making, hints: Hints) -> Attempt:
    attempt = Attempt(Subject(None, None, making.constructor.name, making), Bound({}, {}, {}), hints, {})
    attempt.make()
    return attempt


@dataclass(frozen=True, slots=True)
class Built:
    """A module of symbolic sizes. `fixed` are names that became numbers on the way, such as `range(n_layers)`."""

    name: str
    attempt: Attempt = field(repr=False)

    @property
    def module(self) -> nn.Module:
        """The module itself, on fake tensors: `weight.numel()` is a SymInt."""
        assert self.attempt.subject.root is not None
        return self.attempt.subject.root

    @property
    def parameters(self) -> dict[str, Shape]:
        """Every parameter's shape by its path, each once."""
        return {path: _shape(tensor) for path, tensor in self.module.named_parameters()}

    @property
    def buffers(self) -> dict[str, Shape]:
        """Every buffer's shape by its path, each once."""
        return {path: _shape(tensor) for path, tensor in self.module.named_buffers()}

    @property
    def sizes(self) -> dict[str, int]:
        """The number that stands for each name."""
        assert self.attempt.subject.maker is not None
        return dict(self.attempt.subject.maker.symbols)

    @property
    def fixed(self) -> dict[str, int]:
        """Names that hold for one number alone, as the constructor counted with them."""
        return {name: low for name, low, high in self.domain.bounds if low == high}

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """What the constructor asked of the sizes."""
        return conditions(self.attempt.env)

    @property
    def domain(self) -> Domain:
        """The sizes for which the module is made like this."""
        return domain(self.attempt.env)


def _shape(tensor: Any) -> Shape:
    known = traced(tensor)
    assert known is not None
    return known.signature.shape


def _refused(recipe: Recipe, attempt: Attempt) -> TargetError:
    """What the constructor raised, where, and at which sizes."""
    error = attempt.error
    assert error is not None
    sizes = ", ".join(f"{name}={size}" for name, size in attempt.hints.chosen.items())
    where = location(place_of_error(error.__traceback__))
    lines = [f"{recipe.name}({sizes}) could not be built: {type(error).__name__}: {error}"]
    return TargetError("\n".join(lines if where is None else [*lines, f"    {where}"]))
