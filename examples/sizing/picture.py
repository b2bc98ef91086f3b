"""Costs against T: operations for a token, KV cache, and memory for training."""

from pathlib import Path

from .bill import Bill
from .mistake import Refused
from .tables import ROWS


def refuse_unwritable(path: Path) -> None:
    """Before anything is counted."""
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise Refused(f"--plot {path}: a picture is a .png, .svg or .pdf")
    if not path.absolute().parent.is_dir():
        raise Refused(f"--plot {path}: there is no folder {path.parent}")


def plot(bills: dict[str, Bill], sizes: dict[str, int], farthest: int, path: str) -> None:
    """Three panels against T, to a file."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise Refused('--plot takes matplotlib: pip install "shapeflow[plot]"') from error
    figure = Figure(figsize=(13, 4.5), layout="constrained")
    lengths = sorted({round(farthest ** (step / 64)) for step in range(24, 65)} | {farthest})
    for axes, row in zip(figure.subplots(1, 3), ("forward, a token", "KV cache, a sequence", "training"), strict=True):
        unit, formula = ROWS[row]
        for name, each in bills.items():
            curve = formula(each)
            axes.plot(lengths, [curve.at(**sizes | {"T": length}) for length in lengths], label=name)
        axes.set(yscale="log", xlabel="T", ylabel={"B": "bytes"}.get(unit, unit), title=row)
        axes.set_xscale("log", base=2)
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
    figure.axes[-1].set_title(f"training, B = {sizes['B']}")
    try:
        figure.savefig(path)
    except OSError as error:
        raise Refused(f"--plot {path}: {error}") from error
