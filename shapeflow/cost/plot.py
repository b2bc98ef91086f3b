"""A picture of a cost against one size: the whole, and the parts that it is made of.

>>> plot(cost, "T", "cost.svg", sizes={"B": 1}, low=16, high=65536)

matplotlib draws it: `pip install "shapeflow[plot]"`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shapeflow.cost.scaling import scaling
from shapeflow.errors import InputError, OutputError

if TYPE_CHECKING:
    from shapeflow.cost.cost import Cost

FORMATS = ("svg", "png", "pdf")
POINTS = 96
MOST_PARTS = 7
"""Smaller ones than the largest so many are drawn together, as the rest."""
FARTHEST = 65536


def plot(
    cost: Cost,
    dim: str,
    path: str | Path,
    *,
    sizes: Mapping[str, int] | None = None,
    low: int | None = None,
    high: int | None = None,
) -> None:
    """Draw the operations of a forward from `low` to `high` to a file; without those, over the sizes that it takes.

    Raises InputError for a size that no operation depends on, OutputError for a file that cannot be written.
    """
    path = Path(path)
    if path.suffix.removeprefix(".") not in FORMATS:
        raise OutputError(
            f"{path} has no suffix that says how to draw: one of {', '.join(f'.{each}' for each in FORMATS)}"
        )
    along = scaling(cost, dim, sizes)
    bounds = {name: (least, most) for name, least, most in cost.trace.domain.bounds}
    least, _ = bounds[dim]
    ends = low or max(1, least), high or along.highest or FARTHEST
    if ends[0] >= ends[1]:
        raise InputError(f"a plot from {dim} = {ends[0]} to {ends[1]} has no width")
    figure = _figure(cost, dim, _points(*ends), along.fixed)
    try:
        figure.savefig(path)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror}") from error


def _points(low: int, high: int) -> list[int]:
    """Whole sizes, evenly spread on a logarithmic axis."""
    return sorted({round(low * (high / low) ** (step / (POINTS - 1))) for step in range(POINTS)})


def _figure(cost: Cost, dim: str, points: list[int], fixed: Mapping[str, int]) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise OutputError('a plot takes matplotlib: pip install "shapeflow[plot]"') from error
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    axes.plot(points, _curve(cost.flops, dim, points, fixed), color="black", linewidth=2.5, label="whole forward")
    for name, curve in _curves(cost, dim, points, fixed):
        axes.plot(points, curve, label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel(dim)
    axes.set_ylabel("FLOPs of one forward")
    axes.set_title(", ".join([cost.name, *(f"{name} = {size:,}" for name, size in fixed.items())]))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return figure


def _curves(cost: Cost, dim: str, points: list[int], fixed: Mapping[str, int]) -> list[tuple[str, list[int]]]:
    curves = [(part.name, _curve(part.flops, dim, points, fixed)) for part in cost.parts]
    curves.sort(key=lambda each: -max(each[1]))
    rest = [sum(numbers) for numbers in zip(*(curve for _, curve in curves[MOST_PARTS:]), strict=True)]
    return [*curves[:MOST_PARTS], *([("the rest", rest)] if rest else [])]


def _curve(formula: Any, dim: str, points: list[int], fixed: Mapping[str, int]) -> list[int]:
    return [formula.at(**fixed, **{dim: point}) for point in points]
