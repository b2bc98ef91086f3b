"""Shapes of PyTorch models: traced with names, drawn, checked for all sizes, counted as formulas.

import shapeflow as sf

trace = sf.trace(model, "B T:int64")
print(trace)
trace.save("model.svg")
print(sf.check(model, "B T:int64"))
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from shapeflow.errors import (
    DrawError,
    EnforceError,
    FormatError,
    InputError,
    ShapeflowError,
    SpecError,
    TargetError,
    TraceError,
)

if TYPE_CHECKING:
    from shapeflow.check.check import check
    from shapeflow.check.problem import Problem, Report
    from shapeflow.cost.cost import Cost, cost
    from shapeflow.cost.params import params
    from shapeflow.graph.difference import diff
    from shapeflow.graph.loaded import SavedTrace, load
    from shapeflow.runtime.enforce import enforce
    from shapeflow.runtime.explain import explain
    from shapeflow.runtime.switch import unenforced
    from shapeflow.runtime.typed import typed
    from shapeflow.trace.result import Trace
    from shapeflow.trace.tracer import trace

__all__ = [
    "Cost",
    "DrawError",
    "EnforceError",
    "FormatError",
    "InputError",
    "Problem",
    "Report",
    "SavedTrace",
    "ShapeflowError",
    "SpecError",
    "TargetError",
    "Trace",
    "TraceError",
    "check",
    "cost",
    "diff",
    "enforce",
    "explain",
    "load",
    "params",
    "trace",
    "typed",
    "unenforced",
]
__version__ = "0.1.0"

_HOMES = {
    "trace": "shapeflow.trace.tracer",
    "Trace": "shapeflow.trace.result",
    "load": "shapeflow.graph.loaded",
    "SavedTrace": "shapeflow.graph.loaded",
    "diff": "shapeflow.graph.difference",
    "check": "shapeflow.check.check",
    "Report": "shapeflow.check.problem",
    "Problem": "shapeflow.check.problem",
    "params": "shapeflow.cost.params",
    "cost": "shapeflow.cost.cost",
    "Cost": "shapeflow.cost.cost",
    "enforce": "shapeflow.runtime.enforce",
    "explain": "shapeflow.runtime.explain",
    "typed": "shapeflow.runtime.typed",
    "unenforced": "shapeflow.runtime.switch",
}


def __getattr__(name: str) -> Any:
    """torch is imported only when it is needed: `shapeflow --help` does without."""
    if name not in _HOMES:
        raise AttributeError(f"module 'shapeflow' has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


class _Package(ModuleType):
    """`sf.trace` is the function: importing the folder `shapeflow/trace/` must not put the folder in its place."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
