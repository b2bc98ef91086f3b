"""How long counting takes: side by side with torchinfo and fvcore in one run, and on DeepSeek-V3.

    pip install torchinfo fvcore
    python tests/benchmarks/params_speed.py

Each tool counts in turn, many times; the least time of each is printed, for the count alone, for each module, and for
the printed table. The exit status is 1 where shapeflow is the slower one anywhere, or takes more than 5 seconds for
DeepSeek-V3.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch
from fvcore.nn import parameter_count, parameter_count_table
from torch import nn
from torchinfo import summary
from torchvision.models import resnet50
from transformers import AutoModelForCausalLM, DeepseekV3Config, GPT2Config

import shapeflow as sf

ROUNDS = 60
LIMIT = 5.0  # seconds for DeepSeek-V3


def least(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Milliseconds of the quickest of many runs, the tools taking turns so that they share whatever else runs."""
    times = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name] = min(times[name], 1000 * (time.perf_counter() - start))
    return times


def totals(model: nn.Module) -> dict[str, Callable[[], object]]:
    """What the whole model has; the others count each module on the way."""
    return {
        "shapeflow": lambda: sf.params(model).total,
        "torchinfo": lambda: summary(model, verbose=0).total_params,
        "fvcore": lambda: parameter_count(model)[""],
    }


def modules(model: nn.Module) -> dict[str, Callable[[], object]]:
    """What each module has: fvcore a number, we also what is trainable, buffers, bytes, shared, lazy."""
    return {
        "shapeflow": lambda: [row.parameters for row in sf.params(model).rows],
        "torchinfo": lambda: summary(model, depth=100, verbose=0).summary_list,
        "fvcore": lambda: parameter_count(model),
    }


def tables(model: nn.Module) -> dict[str, Callable[[], object]]:
    """All modules as text."""
    return {
        "shapeflow": lambda: str(sf.params(model)),
        "torchinfo": lambda: str(summary(model, depth=100, verbose=0)),
        "fvcore": lambda: parameter_count_table(model, max_depth=100),
    }


def deepseek_v3() -> float:
    """Seconds for counting 671 billion parameters on the meta device."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(DeepseekV3Config())
    start = time.perf_counter()
    report = sf.params(model)
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    text = str(report)
    print(
        f"DeepSeek-V3: {report.total:,} parameters counted in {seconds:.2f} s, {len(text.splitlines()):,} lines written"
    )
    print(f"in {time.perf_counter() - start:.2f} s more; {len(report.rows):,} modules\n")
    return time.perf_counter() - start + seconds


def main() -> int:
    models = {"resnet50": resnet50(), "GPT-2": AutoModelForCausalLM.from_config(GPT2Config())}
    slower = deepseek_v3() > LIMIT
    for name, model in models.items():
        for what, calls in (("counted", totals(model)), ("by module", modules(model)), ("as a table", tables(model))):
            times = least(calls)
            line = ", ".join(f"{tool} {milliseconds:.2f} ms" for tool, milliseconds in times.items())
            print(f"{name} {what}: {line}")
            slower |= times["shapeflow"] > min(times["torchinfo"], times["fvcore"])
    return int(slower)


if __name__ == "__main__":
    sys.exit(main())
