"""Parameter counts as formulas: a class or a factory is built with names in the place of some of its arguments.

>>> report = of_symbols(nn.TransformerEncoderLayer, ("d_model", "nhead", "dim_feedforward"), {})
>>> print(report.total)
4*d_model^2 + 2*d_model*dim_feedforward + 9*d_model + dim_feedforward

Where a constructor cannot take symbols, or only counts with one (`range(n_layers)`), the formula is fitted, see
`shapeflow.cost.fitted`, and the report says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from shapeflow.cost.fitted import checked, fitted
from shapeflow.cost.inventory import Inventory, inventory
from shapeflow.dims.atoms import Mod, Symbol
from shapeflow.dims.expr import Expr
from shapeflow.dims.relation import Relation
from shapeflow.errors import TargetError
from shapeflow.trace.conditions import of_sizes
from shapeflow.trace.construct import Built, Recipe, construct

if TYPE_CHECKING:
    from shapeflow.cost.params import ParamReport
    from shapeflow.dims.env import Guard

Asked: TypeAlias = tuple[tuple[str, Relation], ...]


def of_symbols(maker: Any, names: tuple[str, ...], arguments: Mapping[str, Any]) -> ParamReport:
    """The report of `maker(**arguments)` with `names` as symbols. Raises InputError and TargetError."""
    recipe = construct(maker, dict.fromkeys(names), **arguments)
    try:
        built = recipe.built()
    except TargetError as refused:
        found, note = fitted(recipe.constructor, names, refused)
        return _report(recipe, found, names, (note,))
    if built.fixed.keys() & set(names):
        return _of_counted(recipe, built, names)
    if all(_is_general(each.relation) for each in _guards(built)):
        return _report(recipe, inventory(built.module), names, (), _asked(built))
    return _of_special(recipe, built, names)


def _of_counted(recipe: Recipe, built: Built, names: tuple[str, ...]) -> ParamReport:
    """Some names became numbers in the constructor: those are varied, or all where that makes too few builds."""
    counting = tuple(name for name in names if name in built.fixed)
    try:
        found, note = fitted(recipe.constructor, names, None, counting=counting)
    except TargetError as refused:
        found, note = fitted(recipe.constructor, names, refused)
    return _report(recipe, found, names, (note,), _asked(built))


def _of_special(recipe: Recipe, built: Built, names: tuple[str, ...]) -> ParamReport:
    """The constructor went a way that only some sizes go: those sizes are varied, and a formula for all is fitted."""
    special = [each for each in _guards(built) if not _is_general(each.relation)]
    asked = tuple(each for each in _asked(built) if _is_general(each[1]))
    fixed = {symbol.name for each in special for symbol in each.relation.difference.symbols}
    varying = tuple(name for name in names if name in fixed)
    reason = f"it asks whether {', '.join(map(str, special))}"
    here = inventory(built.module)
    known = _tried(lambda: checked(recipe.constructor, names, varying, here))
    if known is None or len(known[0].holdings) < len(here.holdings):
        known = _tried(lambda: fitted(recipe.constructor, names, TargetError(reason), counting=varying)) or known
    if known is None:  # what holds for the sizes that go this way is better than nothing
        return _report(recipe, here, names, (), _asked(built))
    found, note = known
    return _report(recipe, found, names, (note,), asked)


def _tried(find: Callable[[], tuple[Inventory, str] | None]) -> tuple[Inventory, str] | None:
    """What is found, or None where the constructor takes too few sizes or the counts are no polynomial."""
    try:
        return find()
    except TargetError:  # not an end: there is another way to a formula
        return None


def of_recipe(recipe: Recipe) -> ParamReport:
    """The same for a recipe."""
    built = recipe.built()
    return _report(recipe, inventory(built.module), tuple(recipe.names), (), _asked(built))


def _report(
    recipe: Recipe, found: Inventory, names: tuple[str, ...], notes: tuple[str, ...], asked: Asked = ()
) -> ParamReport:
    from shapeflow.cost.params import ParamReport

    return ParamReport(recipe.name, found, names, notes, asked)


def _guards(built: Built) -> list[Guard]:
    return of_sizes(built.attempt.env)


def _asked(built: Built) -> Asked:
    """What the constructor asked of the sizes."""
    return tuple(
        (str(guard), guard.relation)
        for guard in _guards(built)
        if not guard.relation.difference.symbols & _fixed(built)
    )


def _fixed(built: Built) -> set[Symbol]:
    return {symbol for name in built.fixed for symbol in Expr.symbol(name).symbols}


def _is_general(relation: Relation) -> bool:
    """Whether it asks for a multiple or for a larger size, and not for one way of several."""
    if relation.operator != "==":
        return relation.operator == ">="
    return any(isinstance(atom, Mod) for monomial, _ in relation.difference.terms for atom, _ in monomial)
