"""What a run shows: lines that stay, and a bar below them where stdout is a terminal."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


@dataclass(frozen=True, slots=True)
class Screen:
    """Lines and a bar of the one rank that speaks; those of the others go nowhere."""

    progress: Progress
    bar: TaskID
    speaks: bool

    def line(self, text: str) -> None:
        if self.speaks:
            self.progress.console.print(text, markup=False, highlight=False, soft_wrap=True)
            self.progress.console.file.flush()  # a pipe would keep it until the end

    def step(self, done: int, loss: float) -> None:
        self.progress.update(self.bar, completed=done, description=f"loss {loss:.4f}")


@contextmanager
def screen(steps: int, *, speaks: bool) -> Iterator[Screen]:
    """A bar of `steps` while the block runs."""
    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not (speaks and console.is_terminal)) as progress:
        yield Screen(progress, progress.add_task("", total=steps), speaks)
