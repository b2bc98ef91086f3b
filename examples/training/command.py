"""The command line of a training example: options from its settings, one line for a mistake, then the run."""

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, NoReturn

import shapeflow as sf

from .batch import Task
from .checkpoint import check_same, load, save
from .loop import Training, reproducible
from .ranks import Ranks, joined
from .screen import Screen, screen
from .settings import RunError, Settings

MakeTask = Callable[[Any], Task[Any]]


def launch(
    program: str,
    presets: Mapping[str, Settings],
    make_task: MakeTask,
    *,
    about: str,
    arguments: Sequence[str] | None = None,
) -> None:
    """Run a training example. Raises SystemExit with 2 after a mistake that is the user's, told in one line."""
    try:
        options = parser(program, presets, about).parse_args(arguments)
        settings = settings_of(options, presets)
        with joined(options.parallel) as ranks:
            run(program, settings, make_task, ranks=ranks, folder=options.folder, resume=options.resume)
    except RunError as error:
        if os.environ.get("RANK", "0") == "0":
            print(f"{program}: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print(f"{program}: interrupted; --resume goes on from the last checkpoint", file=sys.stderr)
        sys.exit(130)


def run(
    program: str, settings: Settings, make_task: MakeTask, *, ranks: Ranks, folder: Path, resume: Path | None
) -> None:
    """Train from the first step, or from a checkpoint, to the last step; then show what the model writes."""
    settings.check(world=ranks.world)
    task = make_task(settings)
    if task.n_held_out < settings.batch:
        raise RunError(f"batch = {settings.batch} is more than the {task.n_held_out} sequences held out for evaluation")
    identity = {"program": program, "data": task.data, "settings": asdict(settings)}
    kept = None if resume is None else read(resume if resume.name else folder / "checkpoint.pt", identity)
    if ranks.first:
        prepare(folder, fresh=kept is None)
    with sf.explain(), reproducible(), screen(settings.steps, speaks=ranks.first) as show:
        training = Training(task, settings, ranks)
        if kept is not None:
            training.load(kept)
        show.line(f"{program}: {training.n_parameters:,} parameters, {task.data}; {ranks}; from step {training.done}")
        train(training, show, lambda state: keep(folder, identity, state, training))
        show.line(training.sample())


def train(training: Training, show: Screen, keep: Callable[[dict[str, Any]], None]) -> None:
    """All steps that are left, with what is due between them."""
    settings = training.settings
    while training.done < settings.steps:
        norm = training.step()
        done, loss = training.done, training.curve.losses[-1]
        show.step(done, loss)
        if done % settings.eval_every == 0 or done == settings.steps:
            held_out = training.evaluate()
            show.line(f"step {done}/{settings.steps}  loss {loss:.4f}  held out {held_out:.4f}  gradient {norm:.2f}")
        if done % settings.save_every == 0 or done == settings.steps:
            keep(training.state())


def keep(folder: Path, identity: Mapping[str, Any], state: Mapping[str, Any], training: Training) -> None:
    """The first rank writes for all."""
    if training.ranks.first:
        save(folder / "checkpoint.pt", {**identity, **state})
        training.curve.write(folder / "curve.csv")


def read(path: Path, identity: Mapping[str, Any]) -> dict[str, Any]:
    """A checkpoint of this very run."""
    state = load(path)
    check_same(path, state, identity)
    return state


def prepare(folder: Path, *, fresh: bool) -> None:
    """Make the folder; what an earlier run left there gets out of the way, and is not lost."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if fresh and (folder / "checkpoint.pt").exists():
            (folder / "checkpoint.pt").replace(folder / "checkpoint.previous.pt")
    except OSError as error:
        raise RunError(f"{folder} cannot be the folder of a run: {error.strerror}") from error


class Parser(argparse.ArgumentParser):
    """argparse, but for the page of usage above every mistake."""

    def error(self, message: str) -> NoReturn:
        raise RunError(message)


def parser(program: str, presets: Mapping[str, Settings], about: str) -> Parser:
    """An option for each setting, and those that are no part of a configuration."""
    made = Parser(prog=program, description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = made.add_argument
    add("--preset", choices=presets, default="default", help="settings to start from; options change single ones")
    add("--folder", type=Path, default=Path("runs") / program, metavar="PATH", help="where checkpoint and curve go")
    add(
        "--resume",
        type=Path,
        nargs="?",
        const=Path(),
        metavar="FILE",
        help="go on from a checkpoint: that of the folder, or another",
    )
    add("--parallel", choices=["ddp", "fsdp"], help="how ranks that torchrun started share the work (default: ddp)")
    for each in fields(presets["default"]):
        value = getattr(presets["default"], each.name)
        shown = f"{each.metadata['help']} (default: {value})"
        add(f"--{each.name.replace('_', '-')}", type=type(value), metavar=type(value).__name__.upper(), help=shown)
    return made


def settings_of(options: argparse.Namespace, presets: Mapping[str, Settings]) -> Settings:
    """The preset with what was said otherwise."""
    if options.parallel is not None and "RANK" not in os.environ:
        raise RunError(f"--parallel {options.parallel} is for several processes, which torchrun starts")
    preset = presets[options.preset]
    said = {each.name: getattr(options, each.name) for each in fields(preset)}
    return replace(preset, **{name: value for name, value in said.items() if value is not None})
