"""The command line: `shapeflow trace | draw | check | params TARGET [INPUT ...]`, `shapeflow rules`.

Exit status: 0 fine, 1 problems found, 2 could not run. torch, and all that needs it, is imported by the
commands, not here: `shapeflow --help` has to answer at once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from shapeflow import __version__
from shapeflow.arguments import parse_inputs, parse_keywords, parse_sizes
from shapeflow.errors import InputError, OutputError, ShapeflowError
from shapeflow.importer import closest
from shapeflow.progress import progress

if TYPE_CHECKING:
    from rich.console import Console

    from shapeflow.check.config import Config, Wanted
    from shapeflow.check.outcome import Outcome
    from shapeflow.check.problem import Report
    from shapeflow.check.rules import Rule
    from shapeflow.target import Target
    from shapeflow.trace.result import Domain, Trace

COULD_NOT_RUN = 2


class Format(StrEnum):
    """What a check is written as."""

    text = "text"
    json = "json"
    sarif = "sarif"
    github = "github"
    junit = "junit"


class _Group(TyperGroup):
    """A user's mistake is one message on stderr; any other exception is ours and keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ShapeflowError as error:
            _stderr().print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
            raise typer.Exit(COULD_NOT_RUN) from error


app = typer.Typer(
    cls=_Group,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,  # rich's help would take longer to import than everything else
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

TargetText = Annotated[
    str, typer.Argument(metavar="TARGET", help="file.py:name, package.module:name, or torchvision:NAME, timm:NAME, ...")
]
InputTexts = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[INPUT]...", help='"B T:int64", name="B T", batch.ids="B T:int64", or name:=2 for what is no tensor'
    ),
]
WithTexts = Annotated[
    list[str] | None, typer.Option("--with", metavar="NAME=VALUE,...", help="Arguments for a class or a factory.")
]
HintTexts = Annotated[
    list[str] | None,
    typer.Option("--hint", metavar="NAME=SIZE,...", help="Sizes to trace at, where the model is picky."),
]
AtTexts = Annotated[
    list[str] | None, typer.Option("--at", metavar="NAME=SIZE,...", help="Show these sizes beside the names.")
]
Limit = Annotated[
    float | None,
    typer.Option("--limit", min=0.1, metavar="SECONDS", help="Stop a target after this time, with what was found; 60."),
]
Strict = Annotated[bool, typer.Option("--strict", help="Warnings too make the exit status 1.")]
Depth = Annotated[int | None, typer.Option("--depth", min=0, help="Do not go deeper into modules than this.")]


def main() -> None:
    """The `shapeflow` command."""
    try:
        app(prog_name="shapeflow")
    except Exception:  # a fault of our own: the traceback is for the report; status 1 would say "problems found"
        import traceback

        traceback.print_exc()
        print("\nThis is a fault in shapeflow: please report it with the lines above.", file=sys.stderr)
        sys.exit(COULD_NOT_RUN)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"shapeflow {__version__}")
        raise typer.Exit


@app.callback()
def shapeflow(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Shapes of a PyTorch model on every edge, in the model's own names.

    Exit status: 0 fine, 1 problems found, 2 could not run.
    """


@app.command()
def trace(
    target: TargetText,
    inputs: InputTexts = None,
    at: AtTexts = None,
    depth: Depth = None,
    with_: WithTexts = None,
    hint: HintTexts = None,
) -> None:
    """Print every operator with the shapes that it makes."""
    from shapeflow.draw.text import render_rich

    traced, sizes = _trace(target, inputs, with_, hint, at)
    _stdout().print(render_rich(traced.to_networkx(), depth=depth, sizes=sizes), soft_wrap=True)


@app.command()
def draw(
    target: TargetText,
    inputs: InputTexts = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="svg, png, pdf or dot, by suffix; else NAME.svg here.")
    ] = None,
    at: AtTexts = None,
    depth: Depth = None,
    with_: WithTexts = None,
    hint: HintTexts = None,
) -> None:
    """Draw the graph with a shape on every edge."""
    from shapeflow.draw.render import save

    traced, sizes = _trace(target, inputs, with_, hint, at)
    path = output or Path(f"{traced.name}.svg")
    with progress(f"drawing {path}"):
        save(traced.to_networkx(), path, depth=depth, sizes=sizes)
    print(path)


@app.command()
def check(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[TARGET|FILE|FOLDER]",
            help="One target, all of a file, or the files of a folder; without it, the targets of pyproject.toml.",
        ),
    ] = None,
    inputs: InputTexts = None,
    at: AtTexts = None,
    form: Annotated[Format, typer.Option("--format", help="For people, or for programs.")] = Format.text,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to this file; people get their text all the same.")
    ] = None,
    limit: Limit = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="Processes for files and folders; one a core by default.")
    ] = None,
    strict: Strict = False,
    with_: WithTexts = None,
    hint: HintTexts = None,
) -> None:
    """Tell for which sizes the shapes hold, and what is probably wrong.

    Files are imported to be checked. A comment silences a rule on its line: # shapeflow: ignore[SF301]
    """
    from shapeflow.check.config import Wanted, read_config

    config = read_config(Path.cwd(), _rules)
    strict = strict or config.strict
    wanted = Wanted(target or "", tuple(inputs or ()), parse_keywords(with_ or []), parse_sizes(hint or []))
    outcome = _check(wanted, config, limit, jobs)
    _write_outcome(outcome, form, output, strict=strict)
    _print_notes(outcome.notes)
    _tell_of_sizes(parse_sizes(at or []), outcome.reports)
    for failed in outcome.failed:
        _stderr().print(failed, style="red", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(outcome.status(strict=strict))


@app.command()
def rules(
    rule: Annotated[str | None, typer.Argument(metavar="[RULE]", help="An id, such as SF301; else all.")] = None,
) -> None:
    """List what the check can find, or explain one rule with a wrong and a right example."""
    from shapeflow.check.text import render_rule, render_rules

    with progress("importing torch"):
        known = _rules()
    name = (rule or "").upper()
    if rule is not None and name not in known:
        raise InputError(f"no rule is called {rule}{closest(name, known)}")
    _stdout().print(render_rules(known.values()) if rule is None else render_rule(known[name]), soft_wrap=True)


@app.command()
def params(
    target: TargetText,
    inputs: InputTexts = None,  # counting needs none: taken, so that one command line serves all commands
    depth: Depth = None,
    with_: WithTexts = None,
) -> None:
    """Count parameters and buffers, each tensor once."""
    with progress("importing torch") as step:
        found = _load(target, with_, step, has_inputs=bool(inputs))
        from shapeflow.cost import params as count
        from shapeflow.cost.table import table

        step("counting")
        counted = table(count(found.model), depth=depth)
    _print_notes(found.notes)
    _stdout().print(counted, soft_wrap=True)


def _trace(
    text: str, inputs: list[str] | None, with_: list[str] | None, hint: list[str] | None, at: list[str] | None
) -> tuple[Trace, dict[str, int]]:
    """The trace, and the sizes to show beside its names."""
    hints, sizes = parse_sizes(hint or []), parse_sizes(at or [])
    with progress("importing torch") as step:
        found = _load(text, with_, step, has_inputs=bool(inputs))
        from shapeflow.trace.tracer import trace as trace_model

        positional, named = parse_inputs(inputs or [], found.signature)
        step(f"tracing {text}")
        traced = trace_model(found.value, *positional, progress=step, hints=hints, **named)
    _print_notes(found.notes)
    _check_names("--hint", hints, traced)
    _check_names("--at", sizes, traced)
    _print_notes(_outside(sizes, traced.domain))
    return traced, sizes


def _check(wanted: Wanted, config: Config, limit: float | None, processes: int | None) -> Outcome:
    """One target is checked in this process, where a debugger reaches it; files and folders in others."""
    from shapeflow.check.project import check_jobs, check_one, jobs_for, resolved

    jobs = jobs_for(resolved(wanted, config), config, limit)
    with progress("importing torch") as step:
        if wanted.target and len(jobs) == 1 and not jobs[0].is_file:
            with redirect_stdout(sys.stderr):  # what the model prints is no part of the document
                return check_one(jobs[0], config, _rules, step)

        def tell(done: int, name: str) -> None:
            step(f"checked {done} of {len(jobs)}" + (f", now {name}" if name else ""))

        return check_jobs(jobs, config, _rules, processes=processes, tell=tell)


def _rules() -> dict[str, Rule]:
    from shapeflow.check.rules import RULES

    return RULES


def _write_outcome(outcome: Outcome, form: Format, output: Path | None, *, strict: bool) -> None:
    """The document to stdout; or to a file, with the text for people on stdout beside it."""
    from shapeflow.check.formats import document
    from shapeflow.check.text import render_outcome

    text = render_outcome(outcome.reports, ignored=outcome.ignored)
    is_text = form is Format.text
    written = f"{text.plain}\n" if is_text else document(form, outcome.reports, strict=strict)
    if output is None and not is_text:
        sys.stdout.write(written)
        return
    if output is not None:
        _write(output, written)
    _stdout().print(text, soft_wrap=True)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror}") from error


def _tell_of_sizes(sizes: dict[str, int], reports: Iterable[Report]) -> None:
    """Whether the sizes that the user asks for are within what each target holds for."""
    for report in reports:
        if report.domain is None:
            continue
        names = [name for name, _, _ in report.domain.bounds]
        for name in sizes:
            if name not in names:
                raise InputError(f"--at {name}={sizes[name]}: no size is called {name}; there are: {', '.join(names)}")
        _print_notes(_outside(sizes, report.domain, f"{report.name} holds for"))


def _load(text: str, with_: list[str] | None, step: Callable[[str], None], *, has_inputs: bool) -> Target:
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


def _outside(sizes: dict[str, int], domain: Domain, what: str = "the trace holds for") -> list[str]:
    """What to say of sizes that are asked for, but are outside: size 1, as a rule."""
    return [
        f"{what} {domain}: {name} = {sizes[name]} is outside"
        for name, low, high in domain.bounds
        if name in sizes and not low <= sizes[name] <= (sizes[name] if high is None else high)
    ]


def _print_notes(notes: Iterable[str]) -> None:
    for note in notes:
        _stderr().print(f"note: {note}", style="yellow", markup=False, highlight=False, soft_wrap=True)


def _stdout() -> Console:
    from rich.console import Console

    return Console(highlight=False)


def _stderr() -> Console:
    from rich.console import Console

    return Console(stderr=True)
