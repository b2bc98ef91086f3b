"""Checks models that are right, and prints what the checker finds all the same: errors, warnings, and how long it took.

    python tests/benchmarks/false_alarms.py --group torchvision
    python tests/benchmarks/false_alarms.py -j 2

The batch is free, and the sizes that a family itself leaves free; image sizes of torchvision and timm are their own.
`KNOWN` explains each error that was looked at. Needs the extra `[zoo]`. Weights are never downloaded.
"""

from __future__ import annotations

import argparse
import re
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import islice

import torch
from case import Case, on_meta
from workers import run
from zoo_models import GROUPS

import shapeflow as sf

TIMM_MODELS = 100
COURSE = (
    "gpt.toy gpt.toy_gpt2 bert.toy t5.toy transformer.toy llama.toy mistral.toy qwen3.toy mixtral.toy switch.toy "
    "deepseek.toy qwen3_moe.toy gpt_oss.toy recurrent.toy word2vec.toy"
).split()
KNOWN: dict[str, str] = {}
"""Errors that were looked at: the model's name, and why it is one."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found in one model. `failed` is set where the check itself raised."""

    name: str
    spec: str
    problems: tuple[str, ...] = ()
    domain: str = ""
    seconds: float = 0.0
    failed: str = ""

    @property
    def errors(self) -> list[str]:
        return [problem for problem in self.problems if problem.startswith("error")]


def main() -> int:
    """Print the table; the status is 1 when more than 1 model in 100 carries an error."""
    options = _options()
    cases = (case for case in _cases(options.group) if re.search(options.only, case.name, re.IGNORECASE))
    found: list[Checked] = []
    for each in run(islice(cases, options.limit), check, _died, jobs=options.jobs, seconds=options.seconds):
        found.append(each)
        print(f"{each.name:36} {each.spec:26} {each.seconds:7.1f}  {each.failed or each.domain}", flush=True)
        for problem in each.problems:
            if options.notes or not problem.startswith("note"):
                print(f"    {problem}")
    wrong = [each for each in found if each.errors]
    counts = Counter(problem.split(" ")[1] for each in found for problem in each.problems)
    print(f"\n{len(found)} models, {len(wrong)} with an error, {sum(bool(each.failed) for each in found)} not checked")
    print(", ".join(f"{rule} {count}" for rule, count in sorted(counts.items())))
    for each in wrong:
        print(f"{each.name}: {KNOWN.get(each.name, 'not explained yet')}")
    return int(100 * len(wrong) > len(found) or any(each.name not in KNOWN for each in wrong))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--group", choices=["models", *GROUPS], action="append", help="default: all")
    parser.add_argument("--only", default="", metavar="PATTERN", help="a regular expression on the name")
    parser.add_argument("--limit", type=int, metavar="N", help="the first N models")
    parser.add_argument("--seconds", type=int, default=60, help="the longest that a model may take (default: 60)")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="worker processes (default: 1)")
    parser.add_argument("--notes", action="store_true", help="print notes too")
    return parser.parse_args()


def _cases(groups: list[str] | None) -> Iterator[Case]:
    for group in groups or ["models", *GROUPS]:
        if group == "models":
            for name in COURSE:
                yield Case("models", name, partial(_toy, name), ())
            continue
        own_size = [case for case in GROUPS[group]() if " H W" not in case.spec]
        yield from own_size[:TIMM_MODELS] if group == "timm" else own_size


def _toy(name: str) -> torch.nn.Module:
    module, _, factory = name.partition(".")
    return getattr(import_module(f"models.{module}"), factory)()


def _died(case: Case) -> Checked:
    return Checked(case.name, case.spec, failed="its process died")


def check(case: Case, *, limit: int) -> Checked:
    """Check one model in evaluation mode; only the check is timed."""
    start = time.process_time()
    try:
        model = on_meta(case.build) if case.group != "models" else case.build()
        start = time.process_time()
        report = sf.check(model.eval(), *case.inputs, hints=case.hints, limit=limit, **case.named)
    except Exception as error:  # any: a fault of ours is what the table is for
        lines = traceback.format_exc().splitlines()
        return Checked(case.name, case.spec, failed=f"{type(error).__name__}: {error} | {lines[-3:-1]}"[:300])
    problems = tuple(
        f"{each.level} {each.rule} {each.message} [{each.file}:{each.line}] witness {each.witness} fix: {each.fix}"
        for each in report.problems
    )
    return Checked(case.name, case.spec, problems, str(report.domain), time.process_time() - start)


if __name__ == "__main__":
    raise SystemExit(main())
