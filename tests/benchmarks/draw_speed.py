"""How long drawings take after the trace, Graphviz's own process included: python -m tests.benchmarks.draw_speed

The bars: Llama-3-70B as one page in 2 s (1.2 s of processors), GPT-2-XL with every operator as SVG in 15 s, as html in
5 s. On a machine that others use, compare processor time, and not of one run alone.
"""

import os
import tempfile
import time
import warnings
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import shapeflow as sf
from models import llama


def cpu() -> float:
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def measured(name: str, trace: sf.Trace, path: Path, **options: bool) -> None:
    began, before = time.perf_counter(), cpu()
    trace.save(path, **options)
    wall, used = time.perf_counter() - began, cpu() - before
    print(f"{name:<36} {wall:6.2f} s wall  {used:6.2f} s of processors  {path.stat().st_size:>10,} bytes")


def main() -> None:
    warnings.simplefilter("ignore")
    with torch.device("meta"):
        large = llama.Llama(llama.LLAMA_3_70B).eval()
        xl = GPT2LMHeadModel(GPT2Config(n_layer=48, n_embd=1600, n_head=25)).eval()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "drawing.svg"
        measured("Llama-3-70B, one page", sf.trace(large), path)
        trace = sf.trace(xl, input_ids="B T:int64")
        measured("GPT-2-XL, one page", trace, path)
        measured("GPT-2-XL, every operator", trace, path, unfold=True)
        measured("GPT-2-XL, html", trace, path.with_suffix(".html"))


if __name__ == "__main__":
    main()
