"""Traces models that other people wrote, and prints which of them trace, how fast, and under how many conditions.

    python tests/benchmarks/zoo.py --group torchvision --only resnet
    python tests/benchmarks/zoo.py -j 2 --json zoo.json

Seconds are the process's own (CPU), without the time to build the model.
Needs the extra `[zoo]`: torchvision, timm, transformers. Weights are never downloaded.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from case import Case
from workers import run
from zoo_models import GROUPS
from zoo_worker import Result, attempt


def main() -> int:
    """Print the table; the status is 1 when a model was not traced."""
    options = _options()
    cases = islice(_cases(options.group, options.only), options.limit)
    print(_row("model", "spec", "nodes", "seconds", "conditions", "result"))
    results = []
    for result in run(cases, attempt, _died, jobs=options.jobs, seconds=options.seconds):
        results.append(result)
        print(_line(result), flush=True)
    print(_totals(results))
    if options.json is not None:
        options.json.write_text(json.dumps([dataclasses.asdict(result) for result in results], indent=1))
    return 0 if all(result.traced for result in results) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--group", choices=GROUPS, action="append", help="one library; may be given again (default: all)"
    )
    parser.add_argument("--only", default="", metavar="PATTERN", help="a regular expression on `model spec`")
    parser.add_argument("--limit", type=int, metavar="N", help="the first N cases")
    parser.add_argument("--seconds", type=int, default=60, help="the longest that a model may take (default: 60)")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="worker processes (default: 1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write each result with its conditions or its error")
    return parser.parse_args()


def _cases(groups: list[str] | None, pattern: str) -> Iterator[Case]:
    for group in groups or GROUPS:
        for case in GROUPS[group]():
            if re.search(pattern, f"{case.name} {case.spec}", re.IGNORECASE):
                yield case


def _died(case: Case) -> Result:
    return Result(case.group, case.name, case.spec, "its process died", "its process died")


def _row(model: str, spec: str, nodes: str, seconds: str, conditions: str, result: str) -> str:
    return f"{model:<42} {spec:<42} {nodes:>6} {seconds:>8} {conditions:>10}  {result}"


def _line(result: Result) -> str:
    seconds = f"{result.seconds:.2f}"
    if not result.traced:
        return _row(result.name, result.spec, "", seconds, "", result.reason)
    return _row(result.name, result.spec, str(result.nodes), seconds, str(len(result.conditions)), "traced")


def _totals(results: list[Result]) -> str:
    lines = [""]
    for group in [*GROUPS, "all"]:
        own = [result for result in results if group in (result.group, "all")]
        if own:
            good = [result for result in own if result.traced]
            slowest = max(own, key=lambda result: result.seconds)
            lines.append(
                f"{group:<14} {len(good)} of {len(own)} traced ({len(good) / len(own):.1%}), "
                f"{sum(result.seconds for result in own):.1f} s, slowest {slowest.name} {slowest.seconds:.1f} s"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
