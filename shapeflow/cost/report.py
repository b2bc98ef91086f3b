"""A `Cost` as a table: a row for each module, formulas or the numbers at some sizes, the totals below in words.

>>> print(text(select(sheet(cost, sizes={"B": 2, "T": 5}), depth=1)))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from shapeflow.cost.domain import check_sizes
from shapeflow.cost.sheet import Cell, Column, Line, Sheet, in_bytes
from shapeflow.dims.expr import Expr
from shapeflow.errors import InputError

if TYPE_CHECKING:
    from shapeflow.cost.breakdown import CostRow
    from shapeflow.cost.cost import Cost

COLUMNS = (
    Column("module"),
    Column("kind"),
    Column("calls", hidden=True),
    Column("operators", hidden=True),
    Column("flops"),
    Column("macs", hidden=True),
    Column("share", unit="%"),
    Column("backward", hidden=True),
    Column("training", hidden=True),
    Column("activations", unit="bytes"),
    Column("formula", hidden=True),
)

LONGEST = 400
"""A formula with more characters tells nobody anything; Python has it, and its numbers."""


def sheet(
    cost: Cost,
    *,
    sizes: Mapping[str, int] | None = None,
    optimizer: str = "adam",
    precision: str | None = None,
) -> Sheet:
    """A line for each module that ran. Without `sizes` cells are formulas; with them numbers, in every free name.

    `optimizer` and `precision` are those of `Cost.training_bytes`, for the last line. Raises InputError for names and
    sizes that the trace does not hold for, and for a name without a size.
    """
    sizes = dict(sizes or {})
    check_sizes(cost.trace, sizes)
    whole = cost.flops.at(**_all(cost, sizes)) if sizes else cost.flops.constant
    lines = tuple(Line(row.depth, _cells(row, whole, _all(cost, sizes) if sizes else None)) for row in cost.rows)
    columns = (
        COLUMNS
        if not sizes
        else tuple(replace(each, hidden=each.hidden and each.name != "formula") for each in COLUMNS)
    )
    return Sheet(cost.name, columns, lines, _totals(cost, sizes), tuple(_summary(cost, sizes, optimizer, precision)))


def _all(cost: Cost, sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes, if they are enough for every formula."""
    formulas = [cost.flops, cost.backward_flops, cost.activation_bytes, cost.peak_bytes, cost.kv_cache_bytes]
    needed = {symbol.name: None for formula in formulas for symbol in sorted(formula.symbols, key=str)}
    missing = [name for name in needed if name not in sizes]
    if missing:
        found = [f"{name} (rows that {cost.trace.fresh[name]} finds)" for name in missing if name in cost.trace.fresh]
        shown = [*(name for name in missing if name not in cost.trace.fresh), *found]
        raise InputError(f"no size is given for {', '.join(shown)}: numbers take all of {', '.join(needed)}")
    return dict(sizes)


def _cells(row: CostRow, whole: int | None, sizes: Mapping[str, int] | None) -> tuple[Cell, ...]:
    training = row.flops + row.backward_flops
    flops = _cell(row.flops, sizes)
    share = 100 * flops / whole if isinstance(flops, int) and whole else None
    return (
        row.path or "(all)",
        row.kind,
        row.calls,
        row.operators,
        flops,
        _cell(row.macs, sizes),
        share,
        _cell(row.backward_flops, sizes),
        _cell(training, sizes),
        _cell(row.activation_bytes, sizes),
        row.flops,
    )


def _cell(formula: Expr, sizes: Mapping[str, int] | None) -> Cell:
    if formula.constant is not None:
        return formula.constant
    return formula if sizes is None else formula.at(**sizes)


def _totals(cost: Cost, sizes: Mapping[str, int]) -> dict[str, Cell]:
    return {
        name: _cell(getattr(cost, name), sizes or None)
        for name in (
            "flops",
            "macs",
            "backward_flops",
            "activation_bytes",
            "peak_bytes",
            "kv_cache_bytes",
            "kv_cache_bytes_per_token",
            "parameter_bytes",
        )
    }


def _summary(cost: Cost, sizes: Mapping[str, int], optimizer: str, precision: str | None) -> list[str]:
    """The totals with their formulas, a line each; what is 0 for the model is left out."""
    lines = [
        _line("flops, forward", cost.flops, sizes),
        _line("flops, backward", cost.backward_flops, sizes),
        _line("kept for the backward", cost.activation_bytes, sizes, in_units=True),
        _line("peak of a forward without autograd", cost.peak_bytes, sizes, in_units=True),
    ]
    if cost.kv_cache:
        lines.append(_line("KV cache", cost.kv_cache_bytes, sizes, in_units=True))
        lines.append(_line("KV cache for one more token", cost.kv_cache_bytes_per_token, sizes, in_units=True))
    lines.append(_line("parameters", cost.parameter_bytes, sizes, in_units=True))
    training = cost.training_bytes(optimizer=optimizer, precision=precision)
    what = f"parameters, gradients, states of {optimizer}" + (f" in {precision}" if precision else "")
    lines.append(_line(what, training, sizes, in_units=True))
    if cost.trace.assumptions:
        assumed = "; ".join(dict.fromkeys(map(str, cost.trace.assumptions)))
        lines.append(f"as traced, that is with {assumed}")
    if cost.unknown:
        lines.append(f"not counted, as no rule knows them: {'; '.join(map(str, cost.unknown))}")
    return lines


def _line(what: str, formula: Expr, sizes: Mapping[str, int], *, in_units: bool = False) -> str:
    if formula.constant is not None:
        return f"{what}: {_number(formula.constant, in_units)}"
    written = str(formula)
    if len(written) > LONGEST:
        written = f"a formula of {len(written)} characters"
    if not sizes:
        return f"{what}: {written}{' bytes' if in_units else ''}"
    return f"{what}: {_number(formula.at(**sizes), in_units)} = {written}"


def _number(number: int, in_units: bool) -> str:
    return in_bytes(number) if in_units else f"{number:,}"
