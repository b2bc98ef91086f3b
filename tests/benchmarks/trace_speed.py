"""How fast and how small a trace is, each figure beside its bar: ratios measured in one run, in fresh processes.

    python tests/benchmarks/trace_speed.py                    every figure, the median of three processes
    python tests/benchmarks/trace_speed.py --only llama --times 5

A ratio compares the whole of `sf.trace` (graph, names, module stack, source lines) with the same model's forward in a
bare FakeTensorMode, at the numbers that the trace takes for hints: both warm, both the median of several runs in the
same process. Times are the process's own (CPU), so that neighbours on the machine do not count.
Needs the extra `[zoo]`: torchvision, transformers.
"""

from __future__ import annotations

import argparse
import json
import operator
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

REPEATS = 5
HINTS = {"B": 5, "T": 67}
IMAGE_HINTS = {"B": 5, "H": 224, "W": 224}
COMPARE = {"<=": operator.le, ">=": operator.ge, "<": operator.lt}


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure that a measurement yields, and what it must keep to; `limit` None is for information."""

    figure: str
    text: str
    sign: str = "<="
    limit: float | None = None
    unit: str = ""

    def verdict(self, value: float) -> str:
        if self.limit is None:
            return ""
        return "kept" if COMPARE[self.sign](value, self.limit) else "MISSED"


# Models: imports are inside, as each process needs one library and its memory is measured.


def gpt2(*, use_cache: bool = True) -> Any:
    """GPT-2 small. torch.export takes no model that returns a cache of keys and values: without one for that."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(use_cache=use_cache)).eval()


def llama_70b() -> Any:
    """Llama-3-70B."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=128256,
        hidden_size=8192,
        intermediate_size=28672,
        num_hidden_layers=80,
        num_attention_heads=64,
        num_key_value_heads=8,
        max_position_embeddings=8192,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
    )
    return LlamaForCausalLM(config).eval()


def deepseek_671b() -> Any:
    """DeepSeek-V3 in its own configuration and type."""
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

    return DeepseekV3ForCausalLM(DeepseekV3Config()).eval().bfloat16()


def torchvision_model(name: str) -> Any:
    """A model of torchvision, without weights."""
    from torchvision.models import get_model

    return get_model(name, weights=None).eval()


# Measurements


def seconds_of(run: Callable[[], Any]) -> float:
    """Median time of `run` after a first, uncounted one."""
    run()
    return statistics.median(_seconds(run) for _ in range(REPEATS))


def _seconds(run: Callable[[], Any]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def full_trace(model: Any, *specs: str, hints: Mapping[str, int]) -> Any:
    """A trace with everything in it that is made on demand."""
    import shapeflow as sf

    trace = sf.trace(model, *specs, hints=hints)
    _ = trace.graph, trace.nodes, trace.edges, trace.conditions
    return trace


def on_meta(build: Callable[[], Any]) -> Any:
    """The model without memory for its weights."""
    import torch

    with torch.device("meta"):
        return build()


def against_fake(
    build: Callable[[], Any], spec: str, make: Callable[[], Any], hints: Mapping[str, int]
) -> dict[str, float]:
    """The trace against a forward of the same model built from fakes: no weights are swapped in the timed part."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(), torch.no_grad():
        model, tensor = build(), make()
        bare = seconds_of(lambda: model(tensor))
    model = on_meta(build)
    first = _seconds(lambda: full_trace(model, spec, hints=hints))
    traced = seconds_of(lambda: full_trace(model, spec, hints=hints))
    return {"bare": bare, "traced": traced, "ratio": traced / bare, "first": first / bare}


def decoder_against_fake(build: Callable[[], Any]) -> dict[str, float]:
    """Token ids, symbolic batch and length."""
    import torch

    shape = tuple(HINTS.values())
    return against_fake(build, "B T:int64", lambda: torch.zeros(shape, dtype=torch.int64), HINTS)


def image_against_fake(name: str) -> dict[str, float]:
    """Images, all but the channels symbolic."""
    import torch

    sizes = IMAGE_HINTS
    return against_fake(
        lambda: torchvision_model(name), "B 3 H W", lambda: torch.zeros(sizes["B"], 3, sizes["H"], sizes["W"]), sizes
    )


def against_export() -> dict[str, float]:
    """torch.export with dynamic shapes: several seconds, so one run after a small one that loads what it needs."""
    import torch
    from torch.export import Dim, export

    export(torch.nn.Linear(2, 2), (torch.zeros(3, 2),), dynamic_shapes=({0: Dim("B")},))
    model = on_meta(lambda: gpt2(use_cache=False))
    ids = torch.zeros(tuple(HINTS.values()), dtype=torch.int64, device="meta")
    dims = {"input_ids": {0: Dim("B"), 1: Dim("T", max=1024)}}
    exported = _seconds(lambda: export(model, (), {"input_ids": ids}, dynamic_shapes=dims))
    traced = seconds_of(lambda: full_trace(model, "B T:int64", hints=HINTS))
    return {"exported": exported, "traced": traced, "ratio": exported / traced}


def maxvit() -> dict[str, float]:
    """A net of windows and grids: the hardest arithmetic on H and W in torchvision."""
    model = on_meta(lambda: torchvision_model("maxvit_t"))
    full_trace(on_meta(lambda: torchvision_model("resnet18")), "B 3 64 64", hints={})
    start = time.process_time()
    trace = full_trace(model, "B 3 H W", hints=IMAGE_HINTS)
    return {"seconds": time.process_time() - start, "conditions": len(trace.conditions)}


def memory(build: Callable[[], Any]) -> dict[str, float]:
    """The process's largest resident size, from its start to a whole trace."""
    model = on_meta(build)
    parameters = sum(each.numel() for each in model.parameters())
    trace = full_trace(model, "B T:int64", hints=HINTS)
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"GB": kilobytes * 1024 / 1e9, "billions": parameters / 1e9, "nodes": len(trace.nodes)}


RATIOS = (Bar("bare", "bare FakeTensor forward", unit="s"), Bar("traced", "trace", unit="s"))
FIRST = Bar("first", "the first trace / forward")
SIZE = (Bar("billions", "parameters", unit="billion"), Bar("nodes", "nodes"), Bar("GB", "peak memory", "<=", 1.5, "GB"))
MEASUREMENTS: dict[str, tuple[Callable[[], dict[str, float]], tuple[Bar, ...]]] = {
    "GPT-2": (lambda: decoder_against_fake(gpt2), (*RATIOS, FIRST, Bar("ratio", "trace / forward", "<=", 2.0))),
    "Llama-3-70B": (
        lambda: decoder_against_fake(llama_70b),
        (*RATIOS, FIRST, Bar("ratio", "trace / forward", "<=", 1.5)),
    ),
    "resnet50, any H W": (
        lambda: image_against_fake("resnet50"),
        (*RATIOS, FIRST, Bar("ratio", "trace / forward", "<=", 6.0)),
    ),
    "GPT-2 export": (
        against_export,
        (Bar("exported", "torch.export", unit="s"), Bar("ratio", "export / trace", ">=", 20.0)),
    ),
    "maxvit_t, any H W": (
        maxvit,
        (Bar("seconds", "the first trace", "<=", 5.0, "s"), Bar("conditions", "conditions", "<", 60)),
    ),
    "Llama-3-70B memory": (lambda: memory(llama_70b), SIZE),
    "DeepSeek-V3 671B memory": (lambda: memory(deepseek_671b), SIZE),
}


def main() -> int:
    """Print the table; the status is 1 when a bar is missed."""
    options = _options()
    if options.measure is not None:
        return _measure_here(options.measure)
    missed = False
    print(f"{'model':<24} {'figure':<28} {'median':>9}           {'bar':<10} (smallest to largest of {options.times})")
    for name, (_, bars) in MEASUREMENTS.items():
        if options.only.lower() in name.lower():
            missed |= _print_rows(name, bars, [_measure_apart(name) for _ in range(options.times)])
    return int(missed)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="models whose name contains this")
    parser.add_argument("--times", type=int, default=3, help="processes a measurement (default: 3)")
    parser.add_argument("--measure", choices=MEASUREMENTS, help="one measurement in this process, as JSON")
    return parser.parse_args()


def _measure_here(name: str) -> int:
    warnings.simplefilter("ignore")
    print(json.dumps(MEASUREMENTS[name][0]()))
    return 0


def _measure_apart(name: str) -> dict[str, float] | str:
    """The figures of a fresh process, or the end of what it said when it failed."""
    done = subprocess.run([sys.executable, __file__, "--measure", name], capture_output=True, text=True)
    if done.returncode != 0:
        lines = [
            line.strip()
            for line in done.stderr.splitlines()
            if line.startswith(("shapeflow", "    ")) or "Error" in line
        ]
        return " | ".join(lines[-4:]) or f"status {done.returncode}"
    return json.loads(done.stdout.splitlines()[-1])


def _print_rows(name: str, bars: tuple[Bar, ...], runs: list[dict[str, float] | str]) -> bool:
    failures = [run for run in runs if isinstance(run, str)]
    if failures:
        print(f"{name:<24} failed: {failures[0]}", flush=True)
        return True
    missed = False
    for bar in bars:
        values = sorted(run[bar.figure] for run in runs if isinstance(run, dict))
        median = statistics.median(values)
        wanted = "" if bar.limit is None else f"{bar.sign} {bar.limit:g}"
        spread = f"{values[0]:.3g} to {values[-1]:.3g}"
        print(
            f"{name:<24} {bar.text:<28} {median:>9.3g} {bar.unit:<8}  {wanted:<10} {bar.verdict(median):<7} {spread}",
            flush=True,
        )
        missed |= bar.verdict(median) == "MISSED"
    return missed


if __name__ == "__main__":
    sys.exit(main())
