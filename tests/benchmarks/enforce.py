"""What enforcing costs: ratios to the bare transformer block, each beside its bar, measured in one run.

    python tests/benchmarks/enforce.py
    python tests/benchmarks/enforce.py --rounds 400

The block is `models.transformer.EncoderLayer`: 18 calls of annotated functions. The same files are imported several
times under other names: bare, with jaxtyping and beartype alone, and enforced. All variants take turns in one loop,
so that whatever else the machine does falls on all of them alike, and times are the thread's own (CPU). A ratio is the
median over the turns of one variant's time to the bare one's in the same turn, with its 95% interval: on a busy machine
a bar may lie inside it, and more turns tell.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch
from jaxtyping import install_import_hook
from torch import Tensor, nn

import shapeflow as sf

MODELS = Path(__file__).parents[2] / "models"
SIZES = {(8, 128, 512): 8, (2, 5, 32): 4}
"""Shapes of the input, each with the number of heads."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run the block; `limits` are bars on the ratio to the bare block, by shape."""

    name: str
    package: str
    around: Callable[[], AbstractContextManager[object]]
    limits: dict[tuple[int, ...], float]


BIG, SMALL = SIZES
VARIANTS = (
    Variant("bare", "bare_models", nullcontext, {}),
    Variant("bare again: the noise", "bare_models", nullcontext, {}),
    Variant("jaxtyping + beartype", "hooked_models", nullcontext, {}),
    Variant("enforced", "enforced_models", nullcontext, {BIG: 1.02}),
    Variant("explained", "bare_models", sf.explain, {}),
    Variant("enforced and explained", "enforced_models", sf.explain, {BIG: 1.02}),
    # of the small block's 18 calls each is one Python call more, and asks Dynamo's flag and a context variable
    Variant("off: unenforced()", "enforced_models", sf.unenforced, {BIG: 1.01, SMALL: 1.05}),
    Variant("off: SHAPEFLOW_ENFORCE=0", "off_models", nullcontext, {BIG: 1.01, SMALL: 1.01}),
)


def main() -> None:
    """Measure, print the table, exit with 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=0, help="turns of each shape (default: 120 and 1000)")
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    import_variants()
    missed = [shape for shape in SIZES if not report(shape, rounds or (120 if shape == BIG else 1000))]
    raise SystemExit(bool(missed))


def import_variants() -> None:
    """The files of `models/` under four names: a package of that name whose folder they are."""
    sf.enforce("enforced_models")
    with environment("SHAPEFLOW_ENFORCE", "off_models=0"):
        sf.enforce("off_models")
        load("off_models")
    load("enforced_models")
    load("bare_models")
    with install_import_hook("hooked_models", "beartype.beartype"):
        load("hooked_models")


def load(package: str) -> None:
    """Import `models/transformer.py` and what it needs under another package, without the hook of `models` itself."""
    module = sys.modules[package] = ModuleType(package)
    module.__path__ = [str(MODELS)]
    importlib.import_module(f"{package}.transformer")


@contextmanager
def environment(name: str, value: str) -> Iterator[None]:
    """A variable of the environment, inside the block."""
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


def block(package: str, shape: tuple[int, ...]) -> nn.Module:
    """The same block from one of the packages."""
    *_, d_model = shape
    layer = sys.modules[f"{package}.transformer"].EncoderLayer(d_model, SIZES[shape], 4 * d_model, dropout=0.0)
    return layer.eval()


@dataclass(frozen=True, slots=True)
class Ratio:
    """A median, and the interval that holds it in 95 of 100 runs."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> Ratio:
        """By the ranks of a sign test: n/2 -+ 1.96 sqrt(n)/2."""
        ranked, spread = sorted(values), 0.98 * len(values) ** 0.5
        low, high = int(len(ranked) / 2 - spread), int(len(ranked) / 2 + spread)
        return cls(statistics.median(ranked), ranked[max(low, 0)], ranked[min(high, len(ranked) - 1)])

    def verdict(self, limit: float) -> str:
        """Whether the median keeps to a bar; a bar inside the interval is told."""
        said = "kept" if self.median <= limit else "MISSED" if self.low > limit else "not told apart from it"
        return f"at most {limit:.3f}: {said}"


def report(shape: tuple[int, ...], rounds: int) -> bool:
    """Print the table of one shape; whether no bar is missed."""
    ratios, bare = measured(shape, rounds)
    limits = {each.name: dict(each.limits) for each in VARIANTS}
    for name in ("enforced", "enforced and explained"):
        limits[name].setdefault(SMALL, ratios["jaxtyping + beartype"].median)
    print(f"\nblock at {shape}: {bare * 1e6:,.0f} us bare, {rounds} turns")
    verdicts = []
    for name, ratio in ratios.items():
        limit = limits[name].get(shape)
        verdicts.append("" if limit is None else ratio.verdict(limit))
        print(f"  {name:26} {ratio.median:6.3f}  ({ratio.low:.3f} to {ratio.high:.3f})   {verdicts[-1]}", flush=True)
    return not any("MISSED" in each for each in verdicts)


def measured(shape: tuple[int, ...], rounds: int) -> tuple[dict[str, Ratio], float]:
    """For each variant the median ratio to the bare block of the same turn, and the bare block's median time."""
    x = torch.randn(shape)
    runs = [(each, block(each.package, shape)) for each in VARIANTS]
    bare_block = runs[0][1]
    expected = bare_block(x)
    for variant, model in runs:
        # one memory for all: where weights lie makes a percent
        model.load_state_dict(bare_block.state_dict(), assign=True)
        assert torch.equal(timed(variant, model, x)[1], expected), variant.name
    times: dict[str, list[float]] = {each.name: [] for each in VARIANTS}
    gc.disable()
    order = random.Random(0)
    for _ in range(rounds):
        order.shuffle(runs)  # no variant always follows the same one
        for variant, model in runs:
            times[variant.name].append(timed(variant, model, x)[0])
    gc.enable()
    bare = times["bare"]
    ratios = {name: Ratio.of([t / b for t, b in zip(each, bare, strict=True)]) for name, each in times.items()}
    return ratios, statistics.median(bare)


def timed(variant: Variant, model: nn.Module, x: Tensor) -> tuple[float, Tensor]:
    """Seconds of one forward, and its result; entering a context manager is part of no call."""
    with torch.no_grad(), variant.around():
        start = time.thread_time()
        out = model(x)
        return time.thread_time() - start, out


if __name__ == "__main__":
    main()
