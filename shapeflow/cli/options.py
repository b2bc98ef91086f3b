"""The arguments and options that several commands share, with their one grammar."""

from __future__ import annotations

from typing import Annotated

import typer

TargetText = Annotated[
    str, typer.Argument(metavar="TARGET", help="file.py:name, package.module:name, or torchvision:NAME, timm:NAME, ...")
]
DrawnText = Annotated[
    str,
    typer.Argument(
        metavar="TARGET", help="file.py:name, package.module:name, torchvision:NAME, ...; or a trace saved as .json"
    ),
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
Marked = Annotated[bool, typer.Option("--check", help="Mark what `shapeflow check` finds in red.")]
Limit = Annotated[
    float | None,
    typer.Option("--limit", min=0.1, metavar="SECONDS", help="Stop a target after this time, with what was found; 60."),
]
Strict = Annotated[bool, typer.Option("--strict", help="Warnings too make the exit status 1.")]
Depth = Annotated[int | None, typer.Option("--depth", min=0, help="Do not go deeper into modules than this.")]
