"""Bills side by side: as formulas, and as numbers at sizes."""

from collections.abc import Callable

from rich import box
from rich.filesize import pick_unit_and_suffix
from rich.table import Table

from shapeflow.dims.expr import Expr

from .bill import Bill

ROWS: dict[str, tuple[str, Callable[[Bill], Expr]]] = {
    "parameters": ("", lambda bill: bill.parameters),
    "  active for a token": ("", lambda bill: bill.active),
    "forward, a token": ("FLOP", lambda bill: bill.flops_per_token),
    "forward, a sequence": ("FLOP", lambda bill: bill.flops),
    "KV cache, a token": ("B", lambda bill: bill.cache_per_token),
    "KV cache, a sequence": ("B", lambda bill: bill.cache),
    "training": ("B", lambda bill: bill.training),
    "  weights": ("B", lambda bill: bill.weights),
    "  gradients": ("B", lambda bill: bill.gradients),
    "  states of Adam": ("B", lambda bill: bill.states),
    "  activations": ("B", lambda bill: bill.activations),
}


def formulas(bills: dict[str, Bill]) -> Table:
    table = Table("", *(["model"] if len(bills) > 1 else []), "formula", box=box.SIMPLE_HEAD)
    for row, (_, formula) in ROWS.items():
        for at, (name, each) in enumerate(bills.items()):
            table.add_row("" if at else row, *([name] if len(bills) > 1 else []), as_formula(formula(each)))
    return table


def as_formula(formula: Expr) -> str:
    return str(formula) if formula.value is None else f"{formula.value:,}"


def numbers(bills: dict[str, Bill], sizes: dict[str, int]) -> Table:
    table = Table("at " + ", ".join(f"{name}={size}" for name, size in sizes.items()), box=box.SIMPLE_HEAD)
    for name in bills:
        table.add_column(name, justify="right")
    for row, (unit, formula) in ROWS.items():
        table.add_row(row, *(written(formula(each).at(**sizes), unit) for each in bills.values()))
    return table


def written(number: int, unit: str) -> str:
    """Four digits with a prefix; counts of parameters in full."""
    if not unit:
        return f"{number:,}"
    size, prefix = pick_unit_and_suffix(number, ["", "k", "M", "G", "T", "P", "E"], 1000)
    return f"{number / size:.4g} {prefix}{unit}"
