"""The tables of a parameter report: by module, by kind of layer, by role, by parameter.

>>> print(text(select(sheet(report, "kind"), sort="parameters")))
kind       modules  parameters  share
Linear          49  84,934,656  68.3 %
...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from shapeflow.cost.formula import formula
from shapeflow.cost.inventory import Count
from shapeflow.cost.sheet import Column, Line, Sheet, in_bytes, shown
from shapeflow.errors import InputError
from shapeflow.importer import closest
from shapeflow.trace.result import Trace

if TYPE_CHECKING:
    from shapeflow.cost.params import Parameter, ParamReport
    from shapeflow.cost.row import ParamRow

Share: TypeAlias = Callable[[Count], float | None]
SHARE = Column("share", unit="%")
BYTES = Column("bytes", unit="bytes", hidden=True)
FROZEN = Column("frozen", hidden=True)


def sheet(report: ParamReport, by: str = "module", sizes: Mapping[str, int] | None = None) -> Sheet:
    """A table of the report, with numbers at `sizes` beside its formulas.

    Raises InputError when there is no table by this name, and for sizes that do not fit.
    """
    if by not in SHEETS:
        raise InputError(f"no table by {by}{closest(by, SHEETS)}: there are those by {', '.join(SHEETS)}")
    found = SHEETS[by](report)
    return found if sizes is None else _with_numbers(found, report, sizes)


def _with_numbers(found: Sheet, report: ParamReport, sizes: Mapping[str, int]) -> Sheet:
    from shapeflow.cost.params import check_sizes

    check_sizes(report, sizes)
    place = found.number("parameters")
    title = ", ".join(f"{name}={size}" for name, size in sizes.items())
    lines = []
    for line in found.lines:
        value = line.cells[place]
        number = value if isinstance(value, int) else value.at(**sizes)
        lines.append(Line(line.depth, (*line.cells[: place + 1], number, *line.cells[place + 1 :])))
    columns = (*found.columns[: place + 1], Column("number", f"at {title}"), *found.columns[place + 1 :])
    whole = report.at(**sizes)
    summary = (found.summary[0], f"at {title}: {whole.total:,} parameters", *found.summary[1:])
    return replace(
        found,
        columns=columns,
        lines=tuple(lines),
        summary=summary,
        totals={**found.totals, "sizes": dict(sizes), "number": whole.total},
    )


def by_module(report: ParamReport) -> Sheet:
    """One line for each module, with all that is below it."""
    columns = (
        Column("module"),
        Column("kind"),
        Column("parameters"),
        trainable(report),
        FROZEN,
        Column("own", hidden=True),
        SHARE,
        BYTES,
        Column("buffers", hidden=_is_zero(report.buffers)),
        Column("calls", hidden=all((row.calls or 0) < 2 for row in report.rows)),
        Column("note"),
    )
    share = _share(report)
    lines = tuple(Line(row.depth, _of_module(row, share)) for row in report.rows)
    return _sheet(report, columns, lines)


def _of_module(row: ParamRow, share: Share) -> tuple[Any, ...]:
    return (
        row.path or "(all)",
        row.kind,
        row.parameters,
        row.trainable,
        row.frozen,
        row.own,
        share(row.parameters),
        row.nbytes,
        row.buffers,
        row.calls,
        _note(row) if row.shared or row.lazy or row.reached is False else "",
    )


def trainable(report: ParamReport) -> Column:
    """Shown where some parameters are frozen."""
    return Column("trainable", hidden=_is_zero(report.frozen))


def _is_zero(count: Count) -> bool:
    return isinstance(count, int) and not count


def _note(row: ParamRow) -> str:
    lazy = [f"{name} has no shape yet" for name in row.lazy]
    return "; ".join([*row.shared, *lazy, *(["not reached"] if row.reached is False else [])])


def by_kind(report: ParamReport) -> Sheet:
    """One line for each class of modules that hold parameters, with what they hold themselves."""
    return _grouped(report, "kind", lambda parameter: parameter.kind)


def by_role(report: ParamReport) -> Sheet:
    """Weights, biases, norms, embeddings."""
    return _grouped(report, "role", lambda parameter: parameter.role)


def _grouped(report: ParamReport, name: str, key: Callable[[Parameter], str]) -> Sheet:
    columns = (Column(name), Column("modules"), Column("parameters"), trainable(report), FROZEN, SHARE, BYTES)
    groups: dict[str, list[Parameter]] = {}
    for parameter in report.parameters:
        groups.setdefault(key(parameter), []).append(parameter)
    share = _share(report)
    lines = [Line(0, (title, *_of_group(group, share))) for title, group in groups.items()]
    return _sheet(report, columns, tuple(lines))


def _of_group(group: list[Parameter], share: Share) -> tuple[Any, ...]:
    total, trainable = _sum(group), _sum(each for each in group if each.trainable)
    modules = {each.path.rpartition(".")[0] for each in group}
    nbytes = sum(each.nbytes for each in group)
    return len(modules), total, trainable, formula(total - trainable, ()), share(total), nbytes


def by_parameter(report: ParamReport) -> Sheet:
    """One line for each parameter, under its first name."""
    columns = (
        Column("parameter"),
        Column("shape"),
        Column("dtype"),
        Column("kind", hidden=True),
        Column("role"),
        Column("parameters"),
        trainable(report),
        SHARE,
        BYTES,
        Column("note"),
    )
    share = _share(report)
    lines = tuple(Line(0, _of_parameter(each, share)) for each in report.parameters)
    return _sheet(report, columns, lines)


def _of_parameter(each: Parameter, share: Share) -> tuple[Any, ...]:
    shape = " ".join(f"({text})" if " " in text else text for text in map(str, each.shape))
    trainable = each.count if each.trainable else 0
    note = f"also {', '.join(each.shared)}" if each.shared else ""
    share_of = share(each.count)
    return each.path, shape, each.dtype, each.kind, each.role, each.count, trainable, share_of, each.nbytes, note


SHEETS: dict[str, Callable[[ParamReport], Sheet]] = {
    "module": by_module,
    "kind": by_kind,
    "role": by_role,
    "parameter": by_parameter,
}


def _sheet(report: ParamReport, columns: tuple[Column, ...], lines: tuple[Line, ...]) -> Sheet:
    totals: dict[str, Any] = {
        "total": report.total,
        "trainable": report.trainable,
        "frozen": report.frozen,
        "buffers": report.buffers,
        "bytes": report.parameter_bytes,
        "buffer_bytes": report.buffer_bytes,
    }
    if knows_activity(report):
        totals |= {"active": report.active, "active_no_input_embedding": report.active_no_input_embedding}
    return Sheet(report.name, columns, lines, totals, tuple(summary_of(report)))


def knows_activity(report: ParamReport) -> bool:
    """Whether active parameters were asked for, or cost nothing as there is a trace."""
    return "activity" in vars(report) or isinstance(report.source, Trace)


def summary_of(report: ParamReport) -> Iterable[str]:
    """The totals in words, and what a reader should know about them."""
    if _is_zero(report.frozen) and not isinstance(report.total, int):
        yield f"{report.total} parameters, all trainable" + (
            "" if _is_zero(report.buffers) else f"; {report.buffers} numbers in buffers"
        )
    else:
        yield (
            f"{shown(report.total)} parameters: {shown(report.trainable)} trainable, {shown(report.frozen)} frozen; "
            f"{shown(report.buffers)} numbers in buffers"
        )
    if report.asked:
        yield f"for {', '.join(text for text, _ in report.asked)}"
    if isinstance(report.parameter_bytes, int) and report.parameter_bytes:
        yield _memory(report)
    if knows_activity(report) and (report.activity.routed or not isinstance(report.source, Trace)):
        yield from report.activity.lines()
    yield from report.notes
    if report.lazy:
        yield f"not counted, as they have no shape before a first forward: {', '.join(report.lazy)}"
    for each in report.unregistered:
        yield f"not counted, as it is kept in a plain container that torch does not look into: {each}"
    if report.unreached:
        yield f"not reached by the traced forward: {', '.join(report.unreached)}"


def _memory(report: ParamReport) -> str:
    parts = [f"{dtype} {in_bytes(size)}" for dtype, size in report.bytes.items()]
    buffers = f"; buffers {in_bytes(report.buffer_bytes)}" if report.buffers else ""
    whole = in_bytes(report.parameter_bytes)
    return (f"{whole} of {next(iter(report.bytes))}" if len(parts) == 1 else f"{whole}: {', '.join(parts)}") + buffers


def _share(report: ParamReport) -> Share:
    """Percent of the whole, where both are numbers."""
    total = report.total
    if not isinstance(total, int) or not total:
        return lambda _: None
    return lambda count: round(100 * count / total, 1) if isinstance(count, int) else None


def _sum(parameters: Iterable[Parameter]) -> Count:
    return sum(each.count for each in parameters)
