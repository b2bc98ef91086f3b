"""Counts parameters and buffers: every tensor once, however often and under however many names it is used.

>>> report = params(nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)))
>>> report.total, report.trainable, report.buffers
(14, 14, 5)
>>> str(params(nn.Linear, symbolic=["in_features", "out_features"]).total)
'in_features*out_features + out_features'
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from torch import nn

from shapeflow.cost.active import Activity, activity
from shapeflow.cost.formats import text, to_html
from shapeflow.cost.formula import formula
from shapeflow.cost.inventory import Count, Inventory, inventory
from shapeflow.cost.role import Role, kept, roles
from shapeflow.cost.row import ParamRow, paths_above, rows
from shapeflow.cost.sheet import Sheet
from shapeflow.cost.unregistered import Unregistered, unregistered
from shapeflow.dims.relation import Relation
from shapeflow.errors import InputError
from shapeflow.importer import closest
from shapeflow.torch_private import real_module
from shapeflow.trace.construct import Recipe
from shapeflow.trace.result import Trace


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter under its first name. `shared` are its other names; `count` is a Formula where sizes are symbols."""

    path: str
    kind: str  # of the layer that holds it
    role: Role
    shape: tuple[Count, ...]
    dtype: str
    count: Count
    nbytes: Count
    trainable: bool
    shared: tuple[str, ...] = ()


@dataclass(frozen=True)
class ParamReport:
    """Parameters of a model, `total` = `trainable` + `frozen`; `buffers` are extra.

    Counts, dtypes and what is trainable are read when the report is made, and stay when the model changes; shapes, and
    what lies in plain containers (`unregistered`), are read when they are first asked for.

    Numbers are Formulas (`.at(d_model=512)`) where the model was made of symbols; `names` are those, in order, `notes`
    say how the formulas were found, and `asked` what the constructor asked of the sizes. With a trace, `rows` know what
    its forward reached.
    """

    name: str
    inventory: Inventory = field(repr=False)
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    asked: tuple[tuple[str, Relation], ...] = ()
    source: nn.Module | Trace | None = field(default=None, repr=False, compare=False)

    @cached_property
    def rows(self) -> tuple[ParamRow, ...]:
        """Every module in definition order, the whole model first."""
        trace = self.source if isinstance(self.source, Trace) else None
        return tuple(rows(self.inventory, self.names, trace))

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Every parameter once."""
        return tuple(_parameters(self.inventory, self.names))

    @cached_property
    def total(self) -> Count:
        return self._sum(self.inventory.tensors.count, self.inventory.parameters)

    @cached_property
    def trainable(self) -> Count:
        trainable = self.inventory.tensors.trainable
        return self._sum(self.inventory.tensors.count, [each for each in self.inventory.parameters if trainable[each]])

    @property
    def frozen(self) -> Count:
        return formula(self.total - self.trainable, self.names)

    @cached_property
    def buffers(self) -> Count:
        """Numbers in buffers."""
        return self._sum(self.inventory.tensors.count, self.inventory.buffers)

    @cached_property
    def buffer_bytes(self) -> Count:
        return self._sum(self.inventory.tensors.nbytes, self.inventory.buffers)

    @cached_property
    def parameter_bytes(self) -> Count:
        return self._sum(self.inventory.tensors.nbytes, self.inventory.parameters)

    @cached_property
    def bytes(self) -> Mapping[str, Count]:
        """Bytes of the parameters by dtype (`float32`), the dtype that is met first first."""
        groups: dict[str, list[int]] = {}
        for number in self.inventory.parameters:
            groups.setdefault(self.inventory.tensors.dtype[number], []).append(number)
        return {dtype: self._sum(self.inventory.tensors.nbytes, numbers) for dtype, numbers in groups.items()}

    @cached_property
    def tied(self) -> tuple[tuple[str, ...], ...]:
        """The names of each parameter that has more than one."""
        return tuple((each.path, *each.shared) for each in self.parameters if each.shared)

    @cached_property
    def lazy(self) -> tuple[str, ...]:
        """Names of the parameters and buffers that have no shape yet, and are counted nowhere."""
        found = self.inventory
        return tuple(
            found.path(found.holdings[place]) for place, each in enumerate(found.tensors.count) if each is None
        )

    @cached_property
    def unregistered(self) -> tuple[Unregistered, ...]:
        """What is kept in plain lists and dicts, where `model.parameters()` does not see it: not counted."""
        return () if self.module is None else unregistered(self.module)

    @cached_property
    def unreached(self) -> tuple[str, ...]:
        """With a trace: the outermost modules that its forward did not reach, neither by a call nor a parameter."""
        missed = {row.path for row in self.rows if row.reached is False}
        return tuple(path for path in missed_in_order(self.rows) if missed.isdisjoint(paths_above(path)))

    @cached_property
    def activity(self) -> Activity:
        """What of the parameters one token can touch; see `shapeflow.cost.active`. Raises as `trace` does."""
        return activity(self)

    @property
    def active(self) -> Count:
        """Parameters that one token can touch, the whole of the input embedding among them.

        Less than `total` where a router picks experts. Found by tracing, so models whose annotations do not say what
        they take need inputs: `params(model, "B T:int64")`.
        """
        return self.activity.total

    @property
    def active_no_input_embedding(self) -> Count:
        """The same without the tables that token ids only look rows up in; a table tied to the head stays."""
        return self.activity.no_input_embedding

    @property
    def module(self) -> nn.Module | None:
        """The model that was counted; None for formulas."""
        return self.source if isinstance(self.source, nn.Module) else traced_module(self.source)

    def at(self, **sizes: int) -> ParamReport:
        """The same report with numbers for formulas.

        Raises InputError where a size is missing, for names that are none of the report's, and for sizes that the
        constructor does not take.
        """
        check_sizes(self, sizes)
        holdings = [
            each._replace(
                shape=tuple(_at(size, sizes) for size in each.shape),
                count=_at(each.count, sizes),
                nbytes=_at(each.nbytes, sizes),
            )
            for each in self.inventory.holdings
        ]
        return replace(self, inventory=self.inventory.with_holdings(holdings), names=(), asked=())

    def sheet(self, by: str = "module", sizes: Mapping[str, int] | None = None) -> Sheet:
        """The report as a table: `by` is `module`, `kind` (of layer), `role` or `parameter`.

        With `sizes` the numbers stand beside the formulas. Raises InputError as `at` does, and for an unknown `by`.
        """
        from shapeflow.cost.table import sheet

        return sheet(self, by, sizes)

    def __str__(self) -> str:
        from shapeflow.cost.sheet import select

        return text(select(self.sheet()))

    def _repr_html_(self) -> str:
        from shapeflow.cost.sheet import select

        return to_html(select(self.sheet()))

    def _sum(self, values: Sequence[Count], numbers: Iterable[int]) -> Count:
        return formula(sum([values[number] for number in numbers]), self.names)


def params(
    target: Any,
    /,
    *inputs: Any,
    symbolic: Sequence[str] = (),
    only: Sequence[str] = (),
    exclude: Sequence[str] = (),
    **named: Any,
) -> ParamReport:
    """Counts the parameters of a model, on any device, the meta device among them.

    A tensor that has two names counts once, and so does a module that is used twice. `target` is a model, a trace, or
    with `symbolic` a class or a factory: those of its arguments then become names, the others follow by keyword, and
    the counts are formulas. With `inputs` the model is traced as by `sf.trace`, which tells what is never reached.

    `only` keeps kinds of parameters (`weights`, `biases`, `norms`, `embeddings`), `exclude` drops what matches one of
    its patterns (`"*.bias"`, `"head"`, `"Conv2d"`). Raises InputError for arguments that do not fit, TargetError for
    a constructor that raises, and what `trace` raises.
    """
    if isinstance(symbolic, str):
        symbolic = symbolic.replace(",", " ").split()
    report = _report(target, inputs, tuple(symbolic), named)
    words = [only] if isinstance(only, str) else only
    patterns = [exclude] if isinstance(exclude, str) else exclude
    if not words and not patterns:
        return report
    return replace(
        report, inventory=kept(report.inventory, words, patterns), notes=(*report.notes, *_kept(words, patterns))
    )


def _report(target: Any, inputs: tuple[Any, ...], symbolic: tuple[str, ...], named: dict[str, Any]) -> ParamReport:
    from shapeflow.cost.symbolic import of_recipe, of_symbols

    if symbolic:
        if inputs:
            raise InputError("a class counted by formulas takes no inputs: its other arguments follow by keyword")
        return of_symbols(target, symbolic, named)
    if isinstance(target, Recipe):
        return of_recipe(target)
    if inputs or named:
        from shapeflow.trace.tracer import trace

        target = trace(target, *inputs, **named)
    if isinstance(target, Trace):
        return _of_trace(target)
    return _of_module(real_module(target))


def _of_module(model: Any) -> ParamReport:
    if isinstance(model, type) and issubclass(model, nn.Module):
        raise InputError(
            f"{model.__name__} is a class: give an instance, or names for its arguments, as in "
            f'params({model.__name__}, symbolic=["d_model"])'
        )
    if not isinstance(model, nn.Module):
        raise InputError(f"a module or a trace has parameters, not {type(model).__name__}")
    return ParamReport(type(model).__name__, inventory(model), source=model)


def _of_trace(trace: Trace) -> ParamReport:
    module = traced_module(trace)
    if module is None:
        raise InputError(f"{trace.name} is a function: only modules have parameters")
    return ParamReport(trace.name, inventory(module), trace.free, source=trace)


def traced_module(trace: Trace | None) -> nn.Module | None:
    """The model of a trace; for one with lazy layers the copy that has their shapes."""
    return None if trace is None else trace._attempt.subject.root


def _parameters(found: Inventory, names: tuple[str, ...]) -> Iterator[Parameter]:
    shared: dict[int, list[str]] = {}
    for number, each in enumerate(found.holdings):
        if each.first != number:
            shared.setdefault(each.first, []).append(found.path(each))
    every_role = roles(found)
    for number in found.parameters:
        each = found.holdings[number]
        yield Parameter(
            found.path(each),
            found.members[each.module].kind,
            every_role[number],
            tuple(formula(size, names) for size in each.shape) if names else each.shape,
            each.dtype,
            formula(each.count, names),
            formula(each.nbytes, names),
            each.trainable,
            tuple(shared.get(number, ())),
        )


def check_sizes(report: ParamReport, sizes: Mapping[str, int]) -> None:
    """Raises InputError for sizes that the formulas do not hold for."""
    for name, size in sizes.items():
        if name not in report.names:
            raise InputError(
                f"no size is called {name}{closest(name, report.names)}; there are: {_listed(report.names)}"
            )
        if size < 1:
            raise InputError(f"{name} = {size}: a size is at least 1")
    for condition, relation in report.asked:
        names = sorted(symbol.name for symbol in relation.difference.symbols)
        if sizes.keys() >= set(names) and not relation.holds(relation.difference.at(**sizes)):
            given = ", ".join(f"{name} = {sizes[name]}" for name in names)
            raise InputError(f"{report.name} takes sizes with {condition}: {given} is outside")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none, the counts are numbers"


def missed_in_order(rows: Sequence[ParamRow]) -> list[str]:
    return [row.path for row in rows if row.reached is False]


def _at(value: Any, sizes: Mapping[str, int]) -> Any:
    return value if value is None or isinstance(value, int) else value.at(**sizes)


def _kept(only: Sequence[str], exclude: Sequence[str]) -> list[str]:
    said = [f"only {', '.join(only)}"] if only else []
    return [*said, *([f"without {', '.join(exclude)}"] if exclude else [])]
