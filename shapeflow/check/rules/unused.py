"""SF315: parameters that no output depends on, because nothing reads them or because what reads them is lost."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from shapeflow.check.cause import constructor_line
from shapeflow.check.mentions import lost_name, mentions
from shapeflow.check.problem import Problem
from shapeflow.check.rules.rule import Rule
from shapeflow.check.rules.scene import Scene
from shapeflow.trace.source import location
from shapeflow.trace.traced import Record, traced

CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential, nn.ParameterList, nn.ParameterDict)


def find(scene: Scene) -> Iterator[Problem]:
    attempt = scene.trace._attempt  # outputs and modules are the run's
    if scene.root is None or attempt.error is not None or not attempt.outputs:
        return
    readers = _readers(attempt.recorder.ledger.records)
    told: set[tuple[str, int, str]] = set()
    missing = _unreached(scene.root, attempt.parameters, _needed(scene))
    for path in missing:
        problem = _problem(scene.root, path, missing, readers)
        key = (problem.file, problem.line, problem.fix) if problem.line else (problem.module, 0, "")
        if key not in told:  # all blocks of a class share their line, as do all modules that a lost value is made with
            told.add(key)
            yield problem


def _needed(scene: Scene) -> set[int]:
    """The records that the outputs depend on, and what is written into buffers."""
    attempt = scene.trace._attempt
    held = [known.root.writer for fake in attempt.parameters.values() if (known := traced(fake)) is not None]
    waiting = [*(record for _, record, _, _ in attempt.outputs), *(writer for writer in held if writer is not None)]
    found: set[int] = set()
    while waiting:
        record = waiting.pop()
        if id(record) not in found:
            found.add(id(record))
            waiting.extend(source for source, _, _ in record.sources)
    return found


def _unreached(root: nn.Module, fakes: dict[str, torch.Tensor], needed: set[int]) -> dict[str, Record]:
    """The parameters that are not needed; those frozen on purpose may well be unused."""
    found: dict[str, Record] = {}
    for path, parameter in root.named_parameters():
        known = traced(fakes[path]) if path in fakes else None
        if parameter.requires_grad and known is not None and id(known.record) not in needed:
            found[path] = known.record
    return found


def _readers(records: list[Record]) -> dict[int, list[Record]]:
    """Who reads each record."""
    found: dict[int, list[Record]] = {}
    for record in records:
        for source, _, _ in record.sources:
            found.setdefault(id(source), []).append(record)
    return found


def _problem(root: nn.Module, path: str, missing: dict[str, Record], readers: dict[int, list[Record]]) -> Problem:
    owner = path.rpartition(".")[0]
    beside = [record for other, record in missing.items() if other.rpartition(".")[0] == owner]
    read = [record for record in beside if id(record) in readers]
    certain = _lost(owner, read, readers) if read else _never_read(root, path, missing)
    return certain or _not_in_this_run(root, path, missing)


def _not_in_this_run(root: nn.Module, path: str, missing: dict[str, Record]) -> Problem:
    whole = next((each for each in _prefixes(path) if _is_missing(root, each, missing)), path)
    what = f"{type(root.get_submodule(whole)).__name__} '{whole}'" if whole != path else f"parameter '{path}'"
    message = f"no output depended on {what} in this run"
    problem = Problem("SF315", "note", message, module=whole, fix="see that another path uses it, or leave it out")
    return problem.at(constructor_line(root, whole))


def _prefixes(path: str) -> list[str]:
    """`a`, `a.b` of `a.b.weight`."""
    names = path.split(".")
    return [".".join(names[:depth]) for depth in range(1, len(names))]


def _is_missing(root: nn.Module, path: str, missing: dict[str, Record]) -> bool:
    """Whether nothing below a module is needed."""
    below = [name for name, each in root.get_submodule(path).named_parameters() if each.requires_grad]
    return all(f"{path}.{name}" in missing for name in below)


def _never_read(root: nn.Module, path: str, missing: dict[str, Record]) -> Problem | None:
    """Of an attribute that the class makes and never speaks of; a branch that was not taken may read the others."""
    for target in [*_prefixes(path), path]:
        owner, _, attribute = target.rpartition(".")
        holder = root.get_submodule(owner)
        if isinstance(holder, CONTAINERS) or type(holder).__module__.startswith("torch."):
            continue
        if target != path and not _is_missing(root, target, missing):
            continue
        if mentions(type(holder), attribute) or _read_from_above(root, owner, attribute):
            continue
        made = getattr(holder, attribute)
        what = f"{type(made).__name__} '{target}'" if isinstance(made, nn.Module) else f"parameter '{target}'"
        message = f"{what} is made and never used: no output depends on it"
        problem = Problem("SF315", "warning", message, module=target, fix=f"use self.{attribute}, or leave it out")
        return problem.at(constructor_line(root, target))
    return None


def _read_from_above(root: nn.Module, owner: str, attribute: str) -> bool:
    """Whether a module above speaks of an attribute of that name: `self.encoder.norm`."""
    names = owner.split(".") if owner else []
    above = (root.get_submodule(".".join(names[:depth])) for depth in range(len(names)))
    return any(mentions(type(module), attribute) for module in above if not isinstance(module, CONTAINERS))


def _lost(owner: str, read: list[Record], readers: dict[int, list[Record]]) -> Problem | None:
    """Of what is computed, given a name, and read by nobody."""
    places = {end.place for record in read for end in _ends(record, readers)}
    place = places.pop() if len(places) == 1 else None
    name = lost_name(*place) if place is not None else None
    if place is None or name is None:
        return None
    message = f"'{name}' is computed with '{owner}' and never read: no output depends on its parameters"
    fix = f"read '{name}', or leave it out"
    return Problem("SF315", "warning", message, module=owner, fix=fix).at(location(place))


def _ends(record: Record, readers: dict[int, list[Record]]) -> list[Record]:
    """What is made of a record and goes nowhere."""
    found: dict[int, Record] = {}
    waiting = [record]
    while waiting:
        each = waiting.pop()
        if id(each) not in found:
            found[id(each)] = each
            waiting.extend(readers.get(id(each), []))
    return [each for each in found.values() if id(each) not in readers]


RULES = (
    Rule(
        "SF315",
        "a parameter that no output depends on",
        "warning",
        """
        A layer that is made and never used is not trained, and mostly another one is used twice in its place. Where
        code that did not run speaks of it, this is a note.

        wrong:
            self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
            ...
            x = x + self.attention(self.norm1(x))
            return x + self.mlp(self.norm1(x))

        right:
            x = x + self.attention(self.norm1(x))
            return x + self.mlp(self.norm2(x))
        """,
        find,
    ),
)
