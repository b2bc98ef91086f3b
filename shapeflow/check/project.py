"""Files, folders and the targets of pyproject.toml: everything that is to be checked, and what came of it.

>>> config = read_config(Path.cwd())
>>> outcome = check_jobs(jobs_for([Wanted("models")], config), config, lambda: RULES, processes=2)
>>> outcome.status(strict=False)
0
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from shapeflow.check.config import Config, Wanted
from shapeflow.check.files import python_files
from shapeflow.check.jobs import Done, Job
from shapeflow.check.outcome import Outcome, settle
from shapeflow.check.pool import Tell, run
from shapeflow.errors import ConfigError, TargetError

LIMIT = 60.0
"""Seconds for one target, where nobody says another number."""


def is_place(text: str) -> bool:
    """Whether a target is a file or a folder, rather than one target in a file or a package."""
    return Path(text).is_dir() or (text.endswith(".py") and ":" not in text)


def jobs_for(wanted: Iterable[Wanted], config: Config, limit: float | None = None) -> list[Job]:
    """A job for each file and each single target; `limit` goes before that of the settings."""
    jobs: list[Job] = []
    for each in wanted:
        seconds = limit or each.limit or config.limit or LIMIT
        for job in _jobs(each, config):
            jobs.append(replace(job, limit=seconds, ignore=each.ignore))
    return [job for index, job in enumerate(jobs) if job not in jobs[:index]]


def _jobs(wanted: Wanted, config: Config) -> Iterator[Job]:
    if not is_place(wanted.target):
        yield Job(wanted.target, inputs=wanted.inputs, arguments=dict(wanted.arguments), hints=dict(wanted.hints))
        return
    if wanted.inputs or wanted.arguments:
        raise TargetError(f"{wanted.target} has many targets: inputs and arguments go with one, as in net.py:Net")
    path = Path(wanted.target)
    if not path.is_dir():
        yield Job(wanted.target, is_file=True, hints=dict(wanted.hints))
        return
    for file in python_files(path, exclude=config.exclude, root=config.root):
        yield Job(str(file), is_file=True, hints=dict(wanted.hints), is_named=False)


def resolved(wanted: Wanted, config: Config) -> list[Wanted]:
    """What to check: the target, several files and folders, or without one the targets of the settings."""
    if not wanted.target:
        if not config.targets:
            raise ConfigError(
                f"nothing to check: give a target, a file or a folder, or targets in [tool.shapeflow] of "
                f'{config.root / "pyproject.toml"}, as in: targets = ["models"]'
            )
        return [replace(each, target=_from_root(each.target, config.root)) for each in config.targets]
    if is_place(wanted.target) and wanted.inputs and all(map(is_place, wanted.inputs)):
        return [replace(wanted, target=each, inputs=()) for each in (wanted.target, *wanted.inputs)]
    return [wanted]


def _from_root(target: str, root: Path) -> str:
    """A path of the settings is seen from their file; here it is seen from where we run."""
    path, colon, name = target.partition(":") if ".py:" in target else (target, "", "")
    return os.path.relpath(root / path) + colon + name if (root / path).exists() else target


def check_one(job: Job, config: Config, rules: Callable[[], Collection[str]], step: Callable[[str], None]) -> Outcome:
    """Check a single target in this process; `rules` gives the ids of all rules. Raises the user's mistakes."""
    from shapeflow.check.work import Bench

    step(f"checking {job.target}")
    return settle([Done(job, (Bench(job, tell=step).one(),))], config, rules)


def check_jobs(
    jobs: Sequence[Job],
    config: Config,
    rules: Callable[[], Collection[str]],
    *,
    processes: int | None = None,
    tell: Tell = lambda done, name: None,
) -> Outcome:
    """Do the jobs in processes of their own, as many as there are cores by default, and apply what is ignored."""
    count = min(processes or os.cpu_count() or 1, len(jobs))
    done = run(jobs, processes=count, paths=[config.root], tell=tell)
    return settle(done, config, rules)
