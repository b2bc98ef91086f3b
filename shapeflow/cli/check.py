"""`shapeflow check`: for which sizes the shapes hold, and what is probably wrong."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import redirect_stdout
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shapeflow.arguments import parse_keywords, parse_sizes
from shapeflow.cli.command import app
from shapeflow.cli.console import print_notes, stderr, stdout, write_text
from shapeflow.cli.options import AtTexts, HintTexts, InputTexts, Limit, Strict, WithTexts
from shapeflow.cli.rules import all_rules
from shapeflow.cli.target import outside
from shapeflow.errors import InputError
from shapeflow.progress import progress

if TYPE_CHECKING:
    from shapeflow.check.config import Config, Wanted
    from shapeflow.check.outcome import Outcome
    from shapeflow.check.problem import Report


class Format(StrEnum):
    """What a check is written as."""

    text = "text"
    json = "json"
    sarif = "sarif"
    github = "github"
    junit = "junit"


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

    config = read_config(Path.cwd(), all_rules)
    strict = strict or config.strict
    wanted = Wanted(target or "", tuple(inputs or ()), parse_keywords(with_ or []), parse_sizes(hint or []))
    outcome = _check(wanted, config, limit, jobs)
    _write_outcome(outcome, form, output, strict=strict)
    print_notes(outcome.notes)
    _tell_of_sizes(parse_sizes(at or []), outcome.reports)
    for failed in outcome.failed:
        stderr().print(failed, style="red", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(outcome.status(strict=strict))


def _check(wanted: Wanted, config: Config, limit: float | None, processes: int | None) -> Outcome:
    """One target is checked in this process, where a debugger reaches it; files and folders in others."""
    from shapeflow.check.project import check_jobs, check_one, jobs_for, resolved

    jobs = jobs_for(resolved(wanted, config), config, limit)
    with progress("importing torch") as step:
        if wanted.target and len(jobs) == 1 and not jobs[0].is_file:
            with redirect_stdout(sys.stderr):  # what the model prints is no part of the document
                return check_one(jobs[0], config, all_rules, step)

        def tell(done: int, name: str) -> None:
            step(f"checked {done} of {len(jobs)}" + (f", now {name}" if name else ""))

        return check_jobs(jobs, config, all_rules, processes=processes, tell=tell)


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
        write_text(output, written)
    stdout().print(text, soft_wrap=True)


def _tell_of_sizes(sizes: dict[str, int], reports: Iterable[Report]) -> None:
    """Whether the sizes that the user asks for are within what each target holds for."""
    for report in reports:
        if report.domain is None:
            continue
        names = [name for name, _, _ in report.domain.bounds]
        for name in sizes:
            if name not in names:
                raise InputError(f"--at {name}={sizes[name]}: no size is called {name}; there are: {', '.join(names)}")
        print_notes(outside(sizes, report.domain, f"{report.name} holds for"))
