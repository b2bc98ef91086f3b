"""From the texts of a command line to a model, or to its trace and the sizes to show beside its names."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from shapeflow.arguments import parse_inputs, parse_keywords, parse_sizes
from shapeflow.cli.console import print_notes
from shapeflow.errors import InputError
from shapeflow.progress import progress

if TYPE_CHECKING:
    from shapeflow.target import Target
    from shapeflow.trace.result import Domain, Trace


def trace_target(
    text: str, inputs: list[str] | None, with_: list[str] | None, hint: list[str] | None, at: list[str] | None
) -> tuple[Trace, dict[str, int]]:
    """The trace, and the sizes to show beside its names."""
    hints, sizes = parse_sizes(hint or []), parse_sizes(at or [])
    with progress("importing torch") as step:
        found = load_target(text, with_, step, has_inputs=bool(inputs))
        from shapeflow.trace.tracer import trace as trace_model

        positional, named = parse_inputs(inputs or [], found.signature)
        step(f"tracing {text}")
        traced = trace_model(found.value, *positional, progress=step, hints=hints, **named)
    print_notes(found.notes)
    _check_names("--hint", hints, traced)
    _check_names("--at", sizes, traced)
    print_notes(outside(sizes, traced.domain))
    return traced, sizes


def load_target(text: str, with_: list[str] | None, step: Callable[[str], None], *, has_inputs: bool) -> Target:
    arguments = parse_keywords(with_ or [])
    from shapeflow.target import load

    step(f"loading {text}")
    return load(text, arguments=arguments, has_inputs=has_inputs)


def _check_names(option: str, sizes: dict[str, int], traced: Trace) -> None:
    for name, size in sizes.items():
        if name not in traced.sizes:
            known = ", ".join(traced.free) or "none"
            raise InputError(f"{option} {name}={size}: no size is called {name}; free ones are: {known}")
        if traced.pinned.get(name, size) != size:
            raise InputError(f"{option} {name}={size}: {name} is {traced.pinned[name]} in this model")


def outside(sizes: dict[str, int], domain: Domain, what: str = "the trace holds for") -> list[str]:
    """What to say of sizes that are asked for, but are outside: size 1, as a rule."""
    return [
        f"{what} {domain}: {name} = {sizes[name]} is outside"
        for name, low, high in domain.bounds
        if name in sizes and not low <= sizes[name] <= (sizes[name] if high is None else high)
    ]
