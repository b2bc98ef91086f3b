"""Builds and traces one case in a worker process, within a time and never raising: whatever happens is the result.

>>> attempt(case, limit=60).reason       # empty when it was traced
''
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import signal
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from case import Case, on_meta
from torch import nn

import shapeflow as sf

LONGEST_REASON = 150


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a case: `reason` is why it was not traced, in one line; `detail` the whole of it."""

    group: str
    name: str
    spec: str
    reason: str = ""
    detail: str = ""
    nodes: int = 0
    seconds: float = 0.0
    conditions: tuple[str, ...] = ()
    domain: str = ""

    @property
    def traced(self) -> bool:
        return not self.reason


class OutOfTime(BaseException):
    """Not an Exception: the code under trace may catch those."""


def prepare() -> None:
    """Once a process: quiet libraries, and torch's lazy imports out of the way of the first measurement."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    signal.signal(signal.SIGALRM, _ring)
    sf.trace(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(1), nn.LazyLinear(2)), "B 3 32 32")


def _ring(*_: object) -> None:
    raise OutOfTime


@contextmanager
def _within(seconds: int) -> Iterator[None]:
    """Stops Python code after `seconds`; ends the process when torch's C++ code does not come back either."""
    signal.alarm(seconds)
    faulthandler.dump_traceback_later(2 * seconds, exit=True)
    try:
        yield
    finally:
        signal.alarm(0)
        faulthandler.cancel_dump_traceback_later()


def attempt(case: Case, *, limit: int) -> Result:
    """Build and trace; only the trace is timed."""
    step, start = "building", time.process_time()
    try:
        with _within(limit), torch.no_grad():
            model = on_meta(case.build)
            step, start = "tracing", time.process_time()
            trace = sf.trace(model, *case.inputs, hints=case.hints, **case.named)
            seconds = time.process_time() - start
            conditions = tuple(f"{each.text}  [{each.operator}] {each.location}" for each in trace.conditions)
            return Result(
                case.group, case.name, case.spec, "", "", len(trace.nodes), seconds, conditions, str(trace.domain)
            )
    except OutOfTime:
        return _failed(case, f"{step} took over {limit} s", traceback.format_exc(), start)
    except Exception as error:  # any: which one it is, is what the table tells
        return _failed(case, _in_a_line(step, error), traceback.format_exc(), start)
    finally:
        gc.collect()


def _failed(case: Case, reason: str, detail: str, start: float) -> Result:
    return Result(case.group, case.name, case.spec, reason, detail, seconds=time.process_time() - start)


def _in_a_line(step: str, error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, sf.ShapeflowError):
        text = " | ".join(lines[:4])
    else:
        text = f"{step}: {type(error).__name__}: {' '.join(lines)}"
    return text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 3] + "..."
