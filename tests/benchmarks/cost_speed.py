"""Our cost beside fvcore's and torchinfo's, on the same models and machine, in one run.

    pip install fvcore torchinfo && OMP_NUM_THREADS=1 python tests/benchmarks/cost_speed.py

Each tool counts from a model that is built already, with the weights on the CPU. fvcore and torchinfo run it on
numbers; ours traces it with symbolic sizes and gives formulas. Seconds are the processor's, as others may use the
machine. `flops` is the number at the sizes of the others: fvcore and torchinfo count multiply-adds, so twice theirs
stands here.
"""

from __future__ import annotations

import contextlib
import io
import logging
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torchvision
import transformers
from torch import nn

import shapeflow as sf

REPEATS = 3


def ours(model: nn.Module, specs: tuple[str, ...], sizes: dict[str, int], inputs: torch.Tensor) -> int:
    return sf.cost(model, *specs).flops.at(**sizes)


def of_fvcore(model: nn.Module, specs: tuple[str, ...], sizes: dict[str, int], inputs: torch.Tensor) -> int:
    from fvcore.nn import FlopCountAnalysis

    return 2 * FlopCountAnalysis(model, inputs).unsupported_ops_warnings(False).uncalled_modules_warnings(False).total()


def of_torchinfo(model: nn.Module, specs: tuple[str, ...], sizes: dict[str, int], inputs: torch.Tensor) -> int:
    import torchinfo

    return 2 * torchinfo.summary(model, input_data=inputs, verbose=0).total_mult_adds


TOOLS: dict[str, Callable[..., int]] = {"shapeflow": ours, "fvcore": of_fvcore, "torchinfo": of_torchinfo}


def best(tool: Callable[..., int], *arguments: Any) -> tuple[float, int]:
    """Seconds of the processor in the fastest of several runs, and the count."""
    seconds, found = float("inf"), 0
    for _ in range(REPEATS):
        start = time.process_time()
        with contextlib.redirect_stderr(io.StringIO()):
            found = tool(*arguments)
        seconds = min(seconds, time.process_time() - start)
    return seconds, found


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False)).eval()
    cases = {
        "resnet50": (torchvision.models.resnet50().eval(), ("B 3 224 224",), {"B": 2}, torch.randn(2, 3, 224, 224)),
        "resnet50, any size": (
            torchvision.models.resnet50().eval(), ("B 3 H W",), {"B": 2, "H": 224, "W": 224},
            torch.randn(2, 3, 224, 224),
        ),
        "GPT-2": (gpt2, ("B T:int64",), {"B": 2, "T": 256}, torch.randint(0, 50257, (2, 256))),
    }  # fmt: skip
    print(f"{'model':20} {'tool':10} {'seconds':>8} {'flops':>20}")
    for name, arguments in cases.items():
        for tool, run in TOOLS.items():
            seconds, found = best(run, *arguments)
            print(f"{name:20} {tool:10} {seconds:8.2f} {found:20,}", flush=True)


if __name__ == "__main__":
    main()
