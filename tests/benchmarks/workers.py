"""Runs cases in worker processes that are replaced now and then, and yields what comes of each.

for result in run(cases, attempt, died, jobs=2, seconds=60):
    print(result)

Cases are handed out one at a time: a pool that is given all of them at once may stand still when it replaces a worker.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from typing import Any, TypeVar

from case import Case
from zoo_worker import prepare

CASES_A_PROCESS = 60
"""A worker is replaced after so many: libraries keep some memory of each model."""

Result = TypeVar("Result")


def run(
    cases: Iterator[Case],
    work: Callable[..., Result],
    died: Callable[[Case], Result],
    *,
    jobs: int,
    seconds: int,
) -> Iterator[Result]:
    """`work(case, limit=seconds)` for each, as they come. A process that dies takes the cases it ran with it alone."""
    waiting: dict[Future[Any], Case] = {}
    pool = _pool(jobs)
    while True:
        for case in islice(cases, jobs - len(waiting)):
            waiting[pool.submit(work, case, limit=seconds)] = case
        if not waiting:
            break
        for future in wait(waiting, return_when=FIRST_COMPLETED).done:
            case = waiting.pop(future)
            try:
                yield future.result()
            except BrokenProcessPool:
                yield died(case)
                pool = pool if waiting else _pool(jobs)
    pool.shutdown()


def _pool(jobs: int) -> ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")  # as `max_tasks_per_child` demands
    return ProcessPoolExecutor(jobs, context, prepare, max_tasks_per_child=CASES_A_PROCESS)
