"""From the texts of a command line to a model, to its trace or a saved one, and the sizes to show with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from shapeflow.arguments import parse_inputs, parse_keywords, parse_sizes
from shapeflow.cli.console import print_notes
from shapeflow.errors import InputError
from shapeflow.progress import progress

if TYPE_CHECKING:
    from shapeflow.graph.loaded import SavedTrace
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
    for option, given in (("--hint", hints), ("--at", sizes)):
        _check_names(option, given, traced.sizes, traced.free, traced.pinned)
    print_notes(outside(sizes, traced.domain))
    return traced, sizes


def load_target(text: str, with_: list[str] | None, step: Callable[[str], None], *, has_inputs: bool) -> Target:
    arguments = parse_keywords(with_ or [])
    from shapeflow.target import load

    step(f"loading {text}")
    return load(text, arguments=arguments, has_inputs=has_inputs)


def is_saved(text: str) -> bool:
    """Whether a target is a file that `trace.save("x.json")` wrote."""
    return text.lower().endswith(".json")


def drawn_target(
    text: str, inputs: list[str] | None, with_: list[str] | None, hint: list[str] | None, at: list[str] | None
) -> tuple[Trace | SavedTrace, dict[str, int]]:
    """The trace of a target, or one that was saved, to draw or to print; and the sizes to show beside its names."""
    if not is_saved(text):
        return trace_target(text, inputs, with_, hint, at)
    if told := " ".join([*(inputs or []), *(with_ or []), *(hint or [])]):
        raise InputError(
            f"{told}: inputs, --with and --hint are for a target that is traced; {text} was traced already"
        )
    with progress(f"reading {text}"):
        from shapeflow.graph.bounds import bounds_of
        from shapeflow.graph.loaded import load

        saved = load(text)
    facts, sizes = saved.graph, parse_sizes(at or [])
    _check_names("--at", sizes, facts["sizes"], facts["free"], facts["pinned"])
    print_notes(_outside(sizes, facts["domain"], bounds_of(facts["domain"]), "the trace holds for"))
    return saved, sizes


def _check_names(
    option: str, given: Mapping[str, int], sizes: Mapping[str, int], free: Sequence[str], pinned: Mapping[str, int]
) -> None:
    for name, size in given.items():
        if name not in sizes:
            known = ", ".join(free) or "none"
            raise InputError(f"{option} {name}={size}: no size is called {name}; free ones are: {known}")
        if pinned.get(name, size) != size:
            raise InputError(f"{option} {name}={size}: {name} is {pinned[name]} in this model")


def outside(sizes: dict[str, int], domain: Domain, what: str = "the trace holds for") -> list[str]:
    """What to say of sizes that are asked for, but are outside: size 1, as a rule."""
    return _outside(sizes, str(domain), {name: (low, high) for name, low, high in domain.bounds}, what)


def _outside(sizes: dict[str, int], domain: str, bounds: Mapping[str, tuple[int, int | None]], what: str) -> list[str]:
    return [
        f"{what} {domain}: {name} = {sizes[name]} is outside"
        for name, (low, high) in bounds.items()
        if name in sizes and not low <= sizes[name] <= (sizes[name] if high is None else high)
    ]
