"""`trace`: run a model's real code on fake tensors with symbolic sizes, and record what it does.

>>> trace = sf.trace(model, "B T:int64")
>>> print(trace)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from shapeflow.errors import InputError
from shapeflow.torch_private import class_of, is_scripted, real_module
from shapeflow.trace.attempt import Attempt, Subject
from shapeflow.trace.construct import Recipe
from shapeflow.trace.distributed import ranks_of_model
from shapeflow.trace.failure import failure
from shapeflow.trace.hints import RUNGS, Hints
from shapeflow.trace.inputs import Bound, bind
from shapeflow.trace.lazy import materialised
from shapeflow.trace.recorder import Failure
from shapeflow.trace.rescue import Rescue
from shapeflow.trace.result import Trace
from shapeflow.trace.source import Place, raised_by_us, raised_by_user

MOST_FLIPS = 24
MOST_REPAIRS = 6


def trace(
    target: Any,
    /,
    *inputs: Any,
    hints: Mapping[str, int] | None = None,
    progress: Callable[[str], None] | None = None,
    **named: Any,
) -> Trace:
    """Follow the shapes through a module or a function.

    Inputs are specs (`"B T:int64"`), tensors, structures of them, or plain values; with jaxtyping annotations they
    may be left out. `hints` chooses the numbers that stand for free sizes in the run (`{"H": 224}`); `progress` is
    called with a line of text now and then. Raises InputError, SpecError, or TraceError when the model's code raises.
    """
    subject, bound = prepared(target, inputs, named, hints or {})
    attempt = Search(subject, bound, hints or {}, progress).run()
    if attempt.error is not None:
        failed = attempt.recorder.failed
        if (failed is None or failed.error is not attempt.error) and raised_by_us(attempt.error):
            raise attempt.error
        raise failure(attempt) from attempt.error
    if not attempt.outputs:
        raise InputError(f"{subject.name} returns no tensor but {type(attempt.result).__name__}: nothing to follow")
    return Trace(attempt)


def prepared(
    target: Any, inputs: tuple[Any, ...], named: Mapping[str, Any], hints: Mapping[str, int]
) -> tuple[Subject, Bound]:
    """What is traced, and what with. Raises InputError and SpecError."""
    if isinstance(target, Recipe):
        subject, free = target.subject(hints)
    else:
        subject, free = _subject(target), ()
    bound = replace(bind(subject.function, inputs, named, subject.name), made_of=free)
    return materialised(subject, bound, Hints(0, frozenset(), given=hints)), bound


def _subject(target: Any) -> Subject:
    model = real_module(target)
    if is_scripted(model):
        raise InputError(
            f"{type(target).__name__} is TorchScript: its code is no longer Python, so it cannot be followed; "
            "give the module that was scripted"
        )
    if isinstance(model, nn.Module):
        for path, part in model.named_modules():
            if is_scripted(part):
                raise InputError(
                    f"{path} of {type(model).__name__} is TorchScript: its code is no longer Python, so it cannot be "
                    "followed; give the module with its Python parts"
                )
        return Subject(model, model, class_of(model).__name__)
    if isinstance(model, type):
        raise InputError(f"{model.__name__} is a class: give an instance, as in sf.trace({model.__name__}(...), ...)")
    if not callable(model):
        raise InputError(f"a module or a function can be traced, not {type(model).__name__}")
    return Subject(model, None, getattr(model, "__name__", type(model).__name__))


class Search:
    """Runs attempts until one gets through: other branches, sizes that the code demands, larger sizes."""

    def __init__(
        self, subject: Subject, bound: Bound, given: Mapping[str, int], progress: Callable[[str], None] | None
    ) -> None:
        self.subject, self.bound, self.given, self.progress = subject, bound, given, progress
        self.constants = _constants(subject.root)
        self.ranks = 1 if subject.root is None else ranks_of_model(subject.root)
        self.start: Mapping[str, int] = {} if subject.maker is None else subject.maker.symbols
        self.flips: dict[Place, bool] = {}
        self.fixed: dict[str, int] = {}
        self.first: Attempt | None = None
        self.best: Attempt | None = None

    def run(self) -> Attempt:
        for rung in range(len(RUNGS)):
            self.fixed = {}
            attempt = self._with_repairs(rung)
            if attempt.error is None:
                return attempt
            if self.best is None or len(attempt.recorder.ledger.records) > len(self.best.recorder.ledger.records):
                self.best = attempt
            free = attempt.hints.chosen.keys() - self.given.keys()
            if not free or not (attempt.env.guards or isinstance(attempt.error, ArithmeticError)):
                break  # no size was asked for: other sizes change nothing
        assert self.best is not None
        return self.best

    def _with_repairs(self, rung: int) -> Attempt:
        """The rung's first attempt; then with sizes fixed to what a failed comparison asked for."""
        first = attempt = self._with_flips(lambda: self._hints(rung))
        if self.first is None:
            self.first = first
        asked = [] if self.subject.maker is None else [*self.subject.maker.demands]
        for _ in range(MOST_REPAIRS):
            if attempt.error is None:
                return attempt
            demanded = attempt.demanded(asked)
            if demanded is None or demanded[0] in self.given or demanded[0] in self.fixed.keys() - self.start.keys():
                break
            self.fixed[demanded[0]] = demanded[1]
            attempt = self._with_flips(lambda: self._hints(rung))
        return first

    def _hints(self, rung: int) -> Hints:
        fixed = {**self.start, **self.fixed}
        return Hints(rung, self.constants, given=self.given, fixed=fixed, multiple=self.ranks)

    def at(self, sizes: Mapping[str, int], *, pinned: bool = False) -> Attempt:
        """One attempt at these sizes. `pinned`: the names stand for these numbers alone, as in a real run."""
        sizes = {**self.start, **sizes}
        return self._with_flips(lambda: Hints(0, self.constants, given=sizes, pinned=sizes if pinned else {}))

    def beyond(self, sizes: Mapping[str, int]) -> tuple[Attempt, list[Failure]]:
        """One run at these sizes that goes on behind a module that raised, where it can; and every failure of it."""
        hints = Hints(0, self.constants, given={**self.start, **sizes})
        attempt = Attempt(self.subject, self.bound, hints, dict(self.flips))
        rescue = attempt.stack.rescue = Rescue(attempt)
        attempt.run()
        last, failures = attempt.recorder.failed, rescue.failures
        if attempt.error is not None and last is not None and last.error is attempt.error and last not in failures:
            failures = [*failures, last]
        return attempt, failures

    def _with_flips(self, hints: Callable[[], Hints]) -> Attempt:
        """An attempt; where the code itself raised behind a branch on a value, the other side of that branch."""
        first = attempt = self._attempt(hints())
        for _ in range(MOST_FLIPS):
            error = attempt.error
            if error is None:
                return attempt
            taken = [(where, answer) for where, answer in attempt.values.taken if where not in self.flips]
            if not taken or not raised_by_user(error.__traceback__):
                break
            where, answer = taken[-1]
            self.flips[where] = not answer
            attempt = self._attempt(hints())
        self.flips = {}
        return first

    def _attempt(self, hints: Hints) -> Attempt:
        attempt = Attempt(self.subject, self.bound, hints, dict(self.flips))
        if self.progress is not None:
            self.progress(f"tracing {self.subject.name}")
            attempt.recorder.progress = self.progress
        attempt.run()
        return attempt


def _constants(root: nn.Module | None) -> frozenset[int]:
    """Sizes of parameters and integer attributes of the model: a hint keeps away from them."""
    if root is None:
        return frozenset()
    found: set[int] = set()
    for module in root.modules():
        found.update(value for value in vars(module).values() if type(value) is int)
        for tensor in [*vars(module)["_parameters"].values(), *vars(module)["_buffers"].values()]:
            if isinstance(tensor, torch.Tensor) and not nn.parameter.is_lazy(tensor):
                found.update(size for size in tensor.shape if type(size) is int)
    return frozenset(found)
