"""Several processes that check, watched from one: a target that hangs is killed, one that ends its process is told.

>>> [done.checked[0].report.ok for done in run([Job("net.py", is_file=True, limit=60.0)], processes=2)]
[True]

Results come in the order of the jobs, whoever finished first. torch is imported by the processes alone.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, TypeAlias

from shapeflow.check.jobs import Checked, Done, Job
from shapeflow.check.problem import Problem, Report

GRACE = 8.0
"""Seconds after its limit at which a process that did not stop by itself is killed."""

Tell: TypeAlias = Callable[[int, str], None]
"""Called with the number of jobs that are finished, and with the name of a target that is being checked."""


def run(
    jobs: Iterable[Job], *, processes: int, paths: Sequence[Path] = (), tell: Tell = lambda done, name: None
) -> list[Done]:
    """Do all jobs in so many processes; `paths` are folders to import from, before all others."""
    waiting = deque(_Work(index, job) for index, job in enumerate(jobs))
    total, results = len(waiting), dict[int, Done]()
    workers: list[_Worker] = []
    try:
        while len(results) < total:
            while waiting:
                free = next((worker for worker in workers if worker.work is None), None)
                if free is None and len(workers) >= max(processes, 1):
                    break
                if free is None:
                    free = _Worker([str(path) for path in paths])
                    workers.append(free)
                free.take(waiting.popleft())
            for work in _listen(workers):
                if work.again:
                    waiting.appendleft(work.rest())
                else:
                    results[work.index] = work.result()
            workers = [worker for worker in workers if not worker.is_over]
            tell(len(results), next((each.work.name for each in workers if each.work and each.work.name), ""))
    finally:
        for worker in workers:
            worker.stop()
    return [results[index] for index in range(total)]


@dataclass(slots=True)
class _Work:
    """A job on its way, and what was said of it so far. `again`: another process has to do the rest."""

    index: int
    job: Job
    names: list[str] = field(default_factory=list)
    checked: dict[str, Checked] = field(default_factory=dict)
    failed: str = ""
    name: str = ""
    again: bool = False
    began: float = field(default_factory=time.monotonic)

    def rest(self) -> _Work:
        """The same job without the targets that are done."""
        job = replace(self.job, done=self.job.done | self.checked.keys())
        return replace(self, job=job, name="", again=False)

    def result(self) -> Done:
        order = self.names or [*self.checked]
        found = tuple(self.checked[name] for name in order if name in self.checked)
        return Done(self.job, found, self.failed, time.monotonic() - self.began)


class _Worker:
    """One process, and the work that it has."""

    def __init__(self, paths: list[str]) -> None:
        context = _context()
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, paths), daemon=True)
        self.process.start()
        theirs.close()
        self.work: _Work | None = None
        self.deadline: float | None = None
        self.is_ready = False
        self.is_over = False

    def take(self, work: _Work) -> None:
        self.work = work
        with contextlib.suppress(BrokenPipeError):  # it ended already: reading from it will tell
            self.connection.send(work.job)

    def read(self) -> _Work | None:
        """One message; the work when that is finished."""
        work = self.work
        assert work is not None
        try:
            kind, value = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self.process.join(GRACE)
            if not self.is_ready:
                ending = _ending(self.process.exitcode)
                raise RuntimeError(f"a process that was to check ended with {ending} before it began") from None
            return self.give_up(f"the process that checked it ended with {_ending(self.process.exitcode)}", "SF402")
        if kind == "ready":
            self.is_ready = True
        elif kind == "begin":
            work.name = value
            limit = work.job.limit
            self.deadline = None if limit is None else time.monotonic() + limit + GRACE
        elif kind == "targets":
            work.names = value
        elif kind == "checked":
            work.checked[work.name] = value
        elif kind == "failed":
            work.failed = value
        else:
            work.again = kind == "restart"
            return self._free()
        return None

    def give_up(self, reason: str, rule: str) -> _Work:
        """End the process; what it had in hand gets a report, the rest of its job is for another process."""
        work = self.work
        assert work is not None
        if work.name:
            report = Report(work.name, (Problem(rule, "warning", reason),), finished=False)
            work.checked[work.name] = Checked(report)
            work.again = work.job.is_file
        else:
            work.failed = f"{work.job.target} does not import: {reason}"
        self.stop()
        return self._free()

    def _free(self) -> _Work:
        work = self.work
        assert work is not None
        self.work = self.deadline = None
        if work.again:  # its code was interrupted at any place
            self.stop()
        return work

    def stop(self) -> None:
        self.is_over = True
        self.process.kill()
        self.process.join()
        self.connection.close()


def _listen(workers: list[_Worker]) -> list[_Work]:
    """Wait until some process says something, or is late; the works that are finished."""
    busy = [worker for worker in workers if worker.work is not None]
    deadlines = [worker.deadline for worker in busy if worker.deadline is not None]
    patience = max(min(deadlines) - time.monotonic(), 0) if deadlines else None
    ready = wait([worker.connection for worker in busy], timeout=patience)
    finished = [worker.read() for worker in busy if worker.connection in ready]
    now = time.monotonic()
    for worker in busy:
        if worker.connection not in ready and worker.deadline is not None and now >= worker.deadline:
            assert worker.work is not None
            limit = worker.work.job.limit
            finished.append(
                worker.give_up(f"stopped after {limit:g} s: it hangs in code that is not Python's", "SF403")
            )
    return [work for work in finished if work is not None]


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
    return f"status {code}"


def _context() -> Any:
    """Processes as copies of one that has imported torch: those after the first are there at once, and share it.

    Elsewhere than on Linux its libraries are not made to be copied, and each process imports it.
    """
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["shapeflow.check.work"])
    return context


def _serve(connection: Any, paths: list[str]) -> None:
    """The process: torch is imported only here, or was before it was copied. Ctrl-C is for the one that watches."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from shapeflow.check.work import serve

    serve(connection, paths)
