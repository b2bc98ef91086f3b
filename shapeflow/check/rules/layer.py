"""Where a function's `dim` is written: in the constructor of `nn.Softmax(dim=1)`, or in the call of `torch.softmax`."""

from __future__ import annotations

from dataclasses import replace

from torch import fx

from shapeflow.check.cause import constructor_line, written_call
from shapeflow.check.nodes import record_of
from shapeflow.check.problem import Problem
from shapeflow.check.rules.scene import Scene, line_of

HOLD_DIM = ("Softmax", "LogSoftmax", "Softmin", "CosineSimilarity")


def at_its_dim(scene: Scene, node: fx.Node, problem: Problem) -> Problem:
    """The problem at the line that says the dim, with the constructor as it should be."""
    path = _path(scene, node)
    where = constructor_line(scene.root, path) if path is not None and scene.root is not None else None
    if where is None or path is None or scene.root is None:
        return problem
    name, _, value = problem.fix.partition("=")
    call = written_call(scene.root, path)
    fix = call.changed(dim=value) if name == "dim" and call is not None else problem.fix
    used = line_of(node)
    details = () if used is None else (f"called at {used}",)
    return replace(problem, fix=fix, details=(*problem.details, *details)).at(where)


def _path(scene: Scene, node: fx.Node) -> str | None:
    """The path of the module of torch that runs the function, where it is called but once."""
    record = record_of(node)
    scope = record.scopes[-1] if record is not None and record.scopes else None
    if scope is None or scope.kind not in HOLD_DIM or scope.call or scene.root is None:
        return None
    again = any(
        _runs(each) == (scope.path, 1)
        for each in scene.operators("softmax", "log_softmax", "softmin", "cosine_similarity")
    )
    return None if again else scope.path


def _runs(node: fx.Node) -> tuple[str, int]:
    """Path and number of the call of the innermost module."""
    record = record_of(node)
    scope = record.scopes[-1] if record is not None and record.scopes else None
    return ("", 0) if scope is None else (scope.path, scope.call)
