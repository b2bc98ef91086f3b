"""Active parameters: what of a model one token can touch, where a router picks experts for it.

>>> params(mixtral).active, params(mixtral).active_no_input_embedding
(12879925248, 12748853248)

Both conventions of the papers: with the input embedding in full (Mixtral, Qwen3), and without it (DeepSeek-V3,
gpt-oss), as a token reads one row of it. Found from the graph alone, see `shapeflow.cost.routing`.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.nn.parameter import is_lazy

from shapeflow.cost.choice import Choice
from shapeflow.cost.reduced import reduced
from shapeflow.cost.routing import Touch, touches
from shapeflow.cost.sheet import shown
from shapeflow.errors import InputError, ShapeflowError, TraceError
from shapeflow.trace.picks import PICKS
from shapeflow.trace.result import Trace

if TYPE_CHECKING:
    from shapeflow.cost.params import Parameter, ParamReport

MEASURED = "; seen in runs on one token, as Python code picks experts by numbers"
LARGE = 300
"""Modules from which on equal layers are traced once."""


@dataclass(frozen=True, slots=True)
class Activity:
    """`routed` are parameters of which a token meets a part, `embeddings` those that token ids look rows up in."""

    total: int
    no_input_embedding: int
    whole: int
    routed: Mapping[str, Fraction]
    choices: tuple[tuple[int, int], ...]  # k of n, for each router
    embeddings: tuple[str, ...]
    unread: tuple[str, ...]
    measured: bool = False  # in a run on one token, as Python code picks the experts by their numbers

    def lines(self) -> Iterator[str]:
        """The figures in words."""
        picks = ", ".join(f"{k} of {of} experts" for k, of in dict.fromkeys(self.choices))
        how = f" ({picks})" if picks else ""
        yield (
            f"{shown(self.total)} active parameters, those that one token can touch{how}; "
            f"{shown(self.no_input_embedding)} without the input embedding"
            f"{MEASURED if self.measured else ''}"
        )


def activity(report: ParamReport) -> Activity:
    """Of the report's trace, or of one that is made here. Raises InputError for formulas and what `trace` raises."""
    source = report.source
    if isinstance(source, Trace):
        return _activity(report, touches(source), lambda path: path)
    if source is None:
        raise InputError("active parameters are counted for a model or a trace, not for formulas")
    if not _may_choose(source):
        return _activity(report, None, lambda path: path)
    return _of_module(report, source)


def _activity(report: ParamReport, touched: Mapping[str, Touch] | None, stand_in: Callable[[str], str]) -> Activity:
    """`touched` None: everything is touched in full."""
    total = without = 0
    routed: dict[str, Fraction] = {}
    embeddings: list[str] = []
    unread: list[str] = []
    picked: dict[Choice, None] = {}
    for each in report.parameters:
        touch = Touch(Fraction(1)) if touched is None else _touch(each, touched, stand_in)
        active = each.count * touch.fraction
        total += active
        if touch.is_input_embedding:
            embeddings.append(each.path)
        else:
            without += active
        if touch.choices and touch.fraction < 1:
            routed[each.path] = touch.fraction
            picked |= dict.fromkeys(touch.choices)
        if not touch.fraction:
            unread.append(each.path)
    pairs = tuple((choice.k, choice.of) for choice in picked)
    measured = any(touch.measured for touch in (touched or {}).values())
    return Activity(int(total), int(without), report.total, routed, pairs, tuple(embeddings), tuple(unread), measured)


def _touch(parameter: Parameter, touched: Mapping[str, Touch], stand_in: Callable[[str], str]) -> Touch:
    """By its first name, as the trace knows it; by that of the equal layer that was traced for its own."""
    return touched.get(parameter.path) or touched.get(stand_in(parameter.path)) or Touch()


# Tracing the model for it


def _of_module(report: ParamReport, model: nn.Module) -> Activity:
    """Traced without repeated layers where there are many, as long as the model's code takes that."""
    from shapeflow.trace.tracer import trace

    inputs = _inputs(model)
    if sum(1 for _ in model.modules()) > LARGE and not any(map(is_lazy, model.parameters())):
        for nested in (True, False):
            try:
                with reduced(model, nested=nested) as names:
                    touched = {names.original(path): touch for path, touch in touches(trace(model, **inputs)).items()}
                return _activity(report, touched, names.stand_in)
            except (TraceError, InputError, KeyError):  # code that counts its layers: it is traced as it is
                continue
    try:
        traced = trace(model, **inputs)
    except TraceError:
        raise
    except ShapeflowError as error:
        raise InputError(
            f"active parameters are read off the graph, and {report.name} needs inputs for that: "
            f'params(model, "B T:int64").active\n{error}'
        ) from error
    return _activity(report, touches(traced), lambda path: path)


def _inputs(model: nn.Module) -> dict[str, Any]:
    """What a language model of transformers takes; others have to say it by their annotations."""
    main, config = getattr(model, "main_input_name", None), getattr(model, "config", None)
    if main != "input_ids" or config is None:
        return {}
    decoder = {"decoder_input_ids": "B S:int64"} if getattr(config, "is_encoder_decoder", False) else {}
    return {"input_ids": "B T:int64", **decoder}


WORDS = re.compile(rf"\b({'|'.join(sorted(PICKS))}|kthvalue|gumbel_softmax)\b")


def _may_choose(model: nn.Module) -> bool:
    """Whether any code of the model could pick by scores: where none does, there is no router to look for."""
    homes = {kind.__module__ for module in model.modules() for kind in type(module).__mro__}
    homes = {home for home in homes if not home.startswith(OWN)}
    for home in [*homes]:  # what its functions come from may pick as well
        values = vars(sys.modules[home]).values() if home in sys.modules else ()
        homes |= {name for value in values if (name := _module_of(value)) and not name.startswith(OWN)}
    return any(_mentions(home) for home in homes)


OWN = ("torch.", "builtins", "typing", "collections", "abc", "functools", "dataclasses", "jaxtyping", "math", "numpy")


def _module_of(value: Any) -> str:
    name = getattr(value, "__module__", None) if callable(value) else None
    return name if isinstance(name, str) and name in sys.modules else ""


def _mentions(home: str) -> bool:
    """Whether a module's source names such an operator; one without source may do anything."""
    try:
        return WORDS.search(inspect.getsource(sys.modules[home])) is not None
    except (OSError, TypeError, KeyError):
        return True
